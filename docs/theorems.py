"""The pages of docs/theory: their Python is run when they are written, and what it prints stands below it.

A page is markdown. All its blocks of Python are run in order, in one namespace, as a reader would run them; an assertion
that fails fails the build. In the text,

{{= worst:.2g }}                          is a value, written as in an f-string;
{{ figure NAME "words" curves(…) }}       on a line of its own, a figure in both themes: a call of `theorem_figures`, which
                                          gets the theme as `look`.

A section that states a theorem ends with a line **Exact.**, **Conditional.** or **Overstated.** and what was found: from
these lines the index of the pages is made.
"""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import theorem_figures
from ropewalk.lab.figures.theme import FIGURE_THEMES

SOURCES = Path(__file__).parent / "theory"
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
VALUE = re.compile(r"\{\{= (.+?) \}\}")
FIGURE = re.compile(r'^\{\{ figure (\S+) "([^"]+)" (.+) \}\}$', re.MULTILINE)
VERDICT = re.compile(r"^\*\*(Exact|Conditional|Overstated)\.\*\* (.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
ORDER = ("tokens", "rotations", "commuting", "breaking", "distance")


def write(folder: Path) -> None:
    """All pages with their figures, and the index."""
    (folder / "theory").mkdir(parents=True, exist_ok=True)
    rows = []
    for name in ORDER:
        text, figures = page((SOURCES / f"{name}.md").read_text(), name)
        (folder / "theory" / f"{name}.md").write_text(text)
        rows += [
            f"| [{title}]({name}.md#{anchor}) | {verdict} | {found} |" for title, anchor, verdict, found in claims(text)
        ]
        for (figure, theme), drawn in figures.items():
            drawn.savefig(folder / "theory" / f"{figure}-{theme}.png", dpi=160)
    index = (SOURCES / "index.md").read_text()
    table = "\n".join(["| claim | verdict | found |", "| --- | --- | --- |", *rows])
    (folder / "theory" / "index.md").write_text(index.replace("{{ claims }}", table))


def page(text: str, name: str) -> tuple[str, dict[tuple[str, str], Any]]:
    """A page with all that it computes, and its figures by name and theme. Words see what the code above them made."""
    namespace: dict[str, Any] = {"__name__": name}
    words, figures = "", {}
    for place, part in enumerate(BLOCK.split(text)):
        if place % 2:
            words += f"```python\n{part}```\n" + _printed(part, f"{name}.md", namespace)
            continue
        figures |= {
            (figure, theme): eval(call, vars(theorem_figures) | namespace | {"look": look})
            for figure, _, call in FIGURE.findall(part)
            for theme, look in FIGURE_THEMES.items()
        }
        part = VALUE.sub(lambda found: str(eval("f" + repr("{" + found[1] + "}"), namespace)), part)
        words += FIGURE.sub(lambda found: _picture(found[1], found[2]), part)
        if "{{" in words:
            raise ValueError(f"{name}.md has braces that say nothing: {words[words.index('{{') :][:60]!r}")
    return words, figures


def claims(text: str) -> list[tuple[str, str, str, str]]:
    """The title of each section of a page that states a theorem, its anchor, the verdict, and what was found."""
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, anchor = re.match(r"(.+?) \{#([\w-]+)\}\n", section).groups()
        found += [(title, anchor, verdict, " ".join(words.split())) for verdict, words in VERDICT.findall(section)]
    return found


def _printed(code: str, name: str, namespace: dict[str, Any]) -> str:
    """Run a block; what it prints, as a block of text."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, name, "exec"), namespace)
    return f"\n```text\n{output.getvalue()}```\n" if output.getvalue() else ""


def _picture(name: str, words: str) -> str:
    return "\n".join(f"![{words}]({name}-{theme}.png#only-{theme})" for theme in FIGURE_THEMES)

"""Pages are Markdown in which Python expressions stand in double braces.

    {{ worst:.2g }}                                      a value, formatted as in an f-string
    {{ include("README.md", "Install") }}                a section of a file in the repository's root
    {{ figure("decay", "alternative text", draw, x) }}   a figure: draw(look, x) in both themes, saved beside the page

Names are those of `make_namespace`. Blocks that begin with ```python hidden are run and not shown, those that begin with
```python folded are run and shown when a reader opens them. On pages of docs/theory all blocks are run, in order and in
one namespace, and what they print is shown below them; a failing assertion fails the build. There a section that states a
theorem ends with **Exact.**, **Conditional.** or **Overstated.** and what was found: `list_verdicts` collects these.
"""

import contextlib
import io
import re
from functools import partial
from pathlib import Path
from typing import Any

import benchmark_tables
import context_tables
import contrast_tables
import encoding_pages
import extension_tables
import folding_tables
import host_tables
import library_tables
import plots
import recipe_tables
import retrofit_tables
import size_tables
import study_tables
import trial_tables
from markdown_text import format_percent, format_table
from ropewalk.encodings import REGISTRY

HERE = Path(__file__).parent
ROOT = HERE.parent
# Pages that include the root's files; all of them lie at the top of the site.
ROOT_PAGES = {
    "README.md": "start.md",
    "CONTRIBUTING.md": "adding.md",
    "CHANGELOG.md": "changelog.md",
    "LOG.md": "log.md",
    "SECURITY.md": "security.md",
}
MODULES = (
    benchmark_tables,
    context_tables,
    contrast_tables,
    encoding_pages,
    extension_tables,
    folding_tables,
    host_tables,
    library_tables,
    recipe_tables,
    retrofit_tables,
    size_tables,
    trial_tables,
)

BLOCK = re.compile(r"^```python( hidden| folded)?\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
FOLDED = "<details markdown><summary>Code</summary>\n\n{}\n</details>\n"
EXPRESSION = re.compile(r"\{\{ (.+?) \}\}", re.DOTALL)
VERDICT = re.compile(r"^\*\*(Exact|Conditional|Overstated)\.\*\* (.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)


def write_page(source: Path, target: Path) -> None:
    """Render a page of docs/pages, docs/studies or docs/theory."""
    target.parent.mkdir(parents=True, exist_ok=True)
    namespace = make_namespace(target)
    if source.parent.name == "studies":
        namespace |= study_tables.make_study_namespace(source.stem, target)
    target.write_text(render_page(source.read_text(), namespace, name=source.name, run=source.parent.name == "theory"))


def make_namespace(target: Path) -> dict[str, Any]:
    """What expressions of a page can use."""
    return {
        "__name__": target.stem,
        "include": include_section,
        "figure": partial(plots.save_page_figure, target),
        "format_table": format_table,
        "format_percent": format_percent,
        "list_verdicts": partial(list_verdicts, target.parent),
        **{module.__name__: module for module in MODULES},
        **{name: draw for name, draw in vars(plots).items() if name.startswith("draw_")},
    }


def render_page(text: str, namespace: dict[str, Any], *, name: str, run: bool = False) -> str:
    """Evaluate expressions and, with `run`, all blocks of Python.

    Expressions see what the blocks above them set; those above the first block see what all blocks set.
    """
    first, *pieces = BLOCK.split(text)
    rendered = ""
    for kind, code, words in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        output = _run_code(code, namespace, name) if kind or run else ""
        shown = f"```python\n{code}```\n{output}"
        rendered += {None: shown, " folded": FOLDED.format(shown), " hidden": ""}[kind]
        rendered += fill_expressions(words, namespace, name)
    return fill_expressions(first, namespace, name) + rendered


def fill_expressions(text: str, namespace: dict[str, Any], name: str) -> str:
    if "{{" in (rest := EXPRESSION.sub("", text)):
        raise ValueError(f"{name}: braces must hold an expression, got {rest[rest.index('{{') :][:60]!r}")
    return EXPRESSION.sub(lambda found: _evaluate(found[1], namespace, name), text)


def _evaluate(code: str, namespace: dict[str, Any], name: str) -> str:
    """What follows the last colon is a format if the whole is no expression."""
    spec = ""
    try:
        compile(code, name, "eval")
    except SyntaxError:
        code, _, spec = code.rpartition(":")
    try:
        return format(eval(code, namespace), spec)
    except Exception as error:
        error.add_note(f"in {{{{ {code} }}}} of {name}")
        raise


def _run_code(code: str, namespace: dict[str, Any], name: str) -> str:
    """Run a block; what it prints, as a block of text."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, name, "exec"), namespace)
    return f"\n```text\n{output.getvalue()}```\n" if output.getvalue() else ""


# What expressions call


def include_section(source: str, heading: str | None = None) -> str:
    """A file of the root, or a section of it without its heading; encodings in tables are linked to their pages."""
    text = (ROOT / source).read_text()
    text = text if heading is None else find_section(text, heading)
    text = re.sub(r"\]\(([^)#]+)", lambda link: f"]({ROOT_PAGES.get(link[1], link[1])}", text)
    names = "|".join(map(re.escape, REGISTRY))
    link_names = partial(re.sub, rf"`({names})`", r"[`\1`](encodings/\1.md)")
    return re.sub(r"^\|.*", lambda row: link_names(row[0]), text, flags=re.MULTILINE).strip()


def find_section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one that is no lower. In code, a number sign is none."""
    lines, code = text.splitlines(), False
    levels: dict[int, int] = {}
    for i, line in enumerate(lines):
        code ^= line.startswith("```")
        if not code and (marks := re.match(r"#+ ", line)):
            levels[i] = len(marks[0])
    titles = {lines[i].lstrip("# "): i for i in levels}
    if heading not in titles:
        raise ValueError(f"Unknown section {heading!r}; expected one of {', '.join(titles)}.")
    first = titles[heading]
    last = next((i for i in levels if i > first and levels[i] <= levels[first]), len(lines))
    return "\n".join(lines[first + 1 : last])


def list_verdicts(folder: Path, *names: str) -> str:
    """The verdicts of pages that were rendered into this folder, each with a link to its section."""
    rows = [
        (f"[{title}]({name}.md#{anchor})", verdict, found)
        for name in names
        for title, anchor, verdict, found in find_verdicts((folder / f"{name}.md").read_text())
    ]
    return format_table(["claim", "verdict", "found"], rows)


def find_verdicts(text: str) -> list[tuple[str, str, str, str]]:
    """The title of each section of a page that states a theorem, its anchor, the verdict, and what was found."""
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, anchor = re.match(r"(.+?) \{#([\w-]+)\}\n", section).groups()
        found += [(title, anchor, verdict, " ".join(words.split())) for verdict, words in VERDICT.findall(section)]
    return found

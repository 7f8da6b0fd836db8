"""A page for each encoding. What it says, the class says."""

import inspect
import re
from collections.abc import Mapping
from pathlib import Path

import drawings
import ropewalk as rw
from aligned import definition, prose
from ropewalk.encoding import Encoding, Shape, parameters_of
from ropewalk.encodings import REGISTRY
from ropewalk.lab.figures import FIGURES
from ropewalk.lab.figures.theme import FIGURE_THEMES
from ropewalk.lab.inspect.encoding_facts import ParsedDocstring, parse_class_docstring, summarize_encoding
from ropewalk.positions import CONVENTIONS
from tables import table
from words import acts_on, axes, format_parameter_counts, learning, oblique, others, paper, relative, setting


def write(folder: Path, widths: Mapping[str, Mapping[str, int]]) -> None:
    """The pages of all encodings; for each, the widths of its figures."""
    for name in rw.names():
        (folder / f"{name}.md").write_text(page(REGISTRY[name], widths[name]))


def page(kind: type[Encoding], widths: Mapping[str, int]) -> str:
    """All about one encoding."""
    said = parse_class_docstring(kind)
    parts = [f"# {kind.name}", *map(prose, (said.summary, *said.definition)), *map(_beware, said.beware)]
    parts += ["## At a glance", facts(kind), "## How to create it", example(kind)]
    parts += [*_figures(kind, widths), *_variants(kind, said), *_options(kind, said)]
    return "\n\n".join(parts) + "\n"


def facts(kind: type[Encoding]) -> str:
    """What it acts on, claims and learns, as a table."""
    row, encoding = summarize_encoding(kind), drawings.instance(kind)
    lines = {
        "acts on": acts_on(row),
        "axes": axes(kind),
        "relative": relative(encoding.traits, long=True),
        "oblique": oblique(encoding.traits, long=True),
        "claims": others(encoding.traits),
        "reach": f"positions up to {encoding.traits.reach:,.0f}" if encoding.traits.reach else "",
        "needs learning": learning(row),
        "parameters": f"{format_parameter_counts(row)} in a ViT-S of 12 layers with 6 heads of 64 channels",
        "coordinates": f"`{encoding.coordinates}`: {CONVENTIONS[encoding.coordinates]}",
        "paper": paper(kind),
        "class": f"[`{kind.__name__}`][{kind.__module__}.{kind.__name__}]",
    }
    return table(["", ""], [line for line in lines.items() if line[1]])


def example(kind: type[Encoding]) -> str:
    """Code that makes one and uses it: it runs as it stands."""
    encoding = drawings.instance(kind)
    options = {name: getattr(encoding, name) for name in ("head_dim", "heads", "axes", "size")}
    tokens = len(encoding.grid(*encoding.size))
    made = ", ".join(f"{name}={value!r}" for name, value in options.items())
    lines = ["import torch", "", "import ropewalk as rw", "", f'encoding = rw.create("{kind.name}", {made})']
    lines += [f"code = encoding(encoding.grid({', '.join(map(str, encoding.size))}))  # once per forward pass", ""]
    if "tokens" in summarize_encoding(kind)["acts_on"]:
        lines += [f"x = code.tokens(torch.randn(2, {tokens}, 384))  # once, before the first block"]
    else:
        lines += [
            f"q, k, v = torch.randn(3, 2, 6, {tokens}, 64).unbind()",
            "out = rw.attend(q, k, v, code)  # in every block",
        ]
    return "\n".join(["```python", *lines, "```"])


def picture(name: str, alt: str, width: int) -> str:
    """A figure in both themes, of which the site shows one."""
    return "\n".join(f"![{alt}]({name}-{theme}.png#only-{theme}){{ width={width} }}" for theme in FIGURE_THEMES)


def explained(option: str, said: ParsedDocstring) -> str:
    """What is said of an option; where only another option or the definition speaks of it, which. Else nothing."""
    if option in said.options:
        return prose(said.options[option].text)
    others = [name for name, entry in said.options.items() if f"`{option}`" in entry.text]
    defined = re.search(rf"\b{option}\b", " ".join(said.definition))
    return f"See `{others[0]}`." if others else "See the definition." if defined else ""


def _figures(kind: type[Encoding], widths: Mapping[str, int]) -> list[str]:
    parts = ["## Figures"]
    for name, width in widths.items():
        words = (inspect.getdoc(FIGURES[name]) or "").split("\n\n")[0]
        parts += [prose(words), picture(f"{kind.name}-{name}", f"{name} of {kind.name}", width)]
    return parts


def _beware(warning: str) -> str:
    return f'!!! warning "Beware"\n\n    {prose(warning[0].upper() + warning[1:])}'


def _variants(kind: type[Encoding], said: ParsedDocstring) -> list[str]:
    """The variants, if there are several, with their settings; the first is the default."""
    if len(kind.variants) == 1:
        return []
    top = said.options["variant"]
    words = {entry.name: entry.text for entry in top.entries}
    shown = []
    for name, settings in kind.variants.items():
        term = f"`{name}`" + ("" if shown else " (the default)")
        shown.append(definition(term, prose(words[name]), f"*{', '.join(setting(*pair) for pair in settings.items())}*"))
    return ["## Variants", prose(top.text), *shown]


def _options(kind: type[Encoding], said: ParsedDocstring) -> list[str]:
    """Its own options, each with its default and what is said of it."""
    taken = parameters_of(kind)
    names = [n for n in {**said.options, **taken} if n in said.options or n not in Shape.__annotations__]
    shown = [definition(f"`{n}={taken[n].default!r}`", explained(n, said)) for n in names if n != "variant"]
    return ["## Options", *shown, f"{'And those' if shown else 'Those'} of [all encodings](../reference/options.md)."]

"""The gallery: a page for each encoding, made from its class, with its figures, and the table that compares all of them."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import ropewalk as rw
from markdown_text import escape_prose, format_definition, format_picture, format_table
from plots import save_figure
from ropewalk.encoding import Encoding, Shape, Traits, parameters_of
from ropewalk.encodings import REGISTRY
from ropewalk.lab.figures import FIGURES, applicable
from ropewalk.lab.figures.theme import FIGURE_THEMES
from ropewalk.lab.inspect.attention_scores import compute_attention_patterns
from ropewalk.lab.inspect.encoding_facts import (
    ParsedDocstring,
    format_parameter_counts,
    parse_class_docstring,
    parse_docstring,
    summarize_encoding,
)
from ropewalk.lab.inspect.figure_grid import get_axis_names, get_default_grid_size
from ropewalk.positions import CONVENTIONS

THUMBNAIL = 112  # pixels
SEPARATE_TRAITS = ("oblique", "learned")  # each has a row of its own
CHANNEL_GROUPS = ("pairs", "triplets", "blocks")


def write_encoding_page(name: str, folder: Path) -> None:
    """FOLDER/NAME.md, with its figures in both themes."""
    torch.set_num_threads(1)
    kind, widths = REGISTRY[name], {}
    for theme in FIGURE_THEMES:
        draw_thumbnail(create_instance(kind), theme).save(folder / f"{name}-thumbnail-{theme}.png", optimize=True)
        for title in applicable(create_instance(kind)):
            figure = FIGURES[title](create_instance(kind), theme=theme)
            save_figure(figure, folder / f"{name}-{title}-{theme}.png")
            widths[title] = round(100 * figure.get_figwidth())
    (folder / f"{name}.md").write_text(format_encoding_page(kind, widths))


@cache
def _get_summary(kind: type[Encoding]) -> dict[str, Any]:
    return summarize_encoding(kind)


def create_instance(kind: type[Encoding]) -> Encoding:
    """The attention of a ViT-S, on 14 × 14 patches if it can take images; its random start is always the same."""
    axes = 2 if kind.allowed_axes is None or 2 in kind.allowed_axes else kind.default_axes
    torch.manual_seed(1)
    return kind(head_dim=64, heads=6, axes=axes, size=get_default_grid_size(axes))


def draw_thumbnail(encoding: Encoding, theme: str) -> Image.Image:
    """The attention pattern of the first head, without words."""
    scores = compute_attention_patterns(encoding, heads=1).heads[0].scores
    scaled = 0.5 + 0.5 * scores / scores.abs().max().clamp(min=1e-9)
    pixels = FIGURE_THEMES[theme].colours()(scaled.numpy(), bytes=True)
    return Image.fromarray(pixels).convert("RGB").resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BICUBIC).quantize(64)


def list_encodings() -> str:
    """The table that compares all encodings."""
    head = ["encoding", "acts on", "axes", "relative", "oblique", "needs learning", "parameters", "coordinates", "paper"]
    return format_table(head, map(_format_row, rw.names()))


def _format_row(name: str) -> list[str]:
    kind = REGISTRY[name]
    row, encoding = _get_summary(kind), create_instance(kind)
    thumbnail = format_picture(f"{name}-thumbnail", f"attention pattern of {name}", width=56).replace("\n", " ")
    traits = [format_relative(encoding.traits), format_oblique(encoding.traits)]
    more = [
        "yes" if row["needs_learning"] else row["learned"],
        format_parameter_counts(row),
        f"`{encoding.coordinates}`",
        format_paper(kind),
    ]
    return [f"[{thumbnail}<br>`{name}`]({name}.md)", row["acts_on"], format_axes(kind), *traits, *more]


def format_encoding_page(kind: type[Encoding], widths: Mapping[str, int]) -> str:
    """A page with these figures, each of a width in pixels."""
    said = parse_class_docstring(kind)
    parts = [f"# {kind.name}", *map(escape_prose, (said.summary, *said.definition))]
    parts += [f'!!! warning "Beware"\n\n    {escape_prose(each[0].upper() + each[1:])}' for each in said.beware]
    parts += ["## At a glance", format_facts(kind), "## How to create it", format_example(kind), "## Figures"]
    for name, width in widths.items():
        parts.append(escape_prose((inspect.getdoc(FIGURES[name]) or "").split("\n\n")[0]))
        parts.append(format_picture(f"{kind.name}-{name}", f"{name} of {kind.name}", width=width))
    return "\n\n".join([*parts, *_format_variants(kind, said), *_format_options(kind, said)]) + "\n"


def format_facts(kind: type[Encoding]) -> str:
    """What it acts on, its traits and its parameters, as a table."""
    row, encoding = _get_summary(kind), create_instance(kind)
    traits = encoding.traits
    facts = {
        "acts on": ", ".join(
            f"{each} of channels" if each in CHANNEL_GROUPS else each for each in row["acts_on"].split(", ")
        ),
        "axes": format_axes(kind),
        "relative": format_relative(traits, long=True),
        "oblique": format_oblique(traits, long=True),
        "claims": format_claims(traits),
        "reach": f"positions up to {traits.reach:,.0f}" if traits.reach else "",
        "needs learning": "yes" if row["needs_learning"] else row["learned"],
        "parameters": f"{format_parameter_counts(row)} in a ViT-S of 12 layers with 6 heads of 64 channels",
        "coordinates": f"`{encoding.coordinates}`: {CONVENTIONS[encoding.coordinates]}",
        "paper": format_paper(kind),
        "class": f"[`{kind.__name__}`][{kind.__module__}.{kind.__name__}]",
    }
    return format_table(["", ""], [line for line in facts.items() if line[1]])


def format_example(kind: type[Encoding]) -> str:
    """Code that creates and uses it, and runs as it stands."""
    encoding = create_instance(kind)
    options = {name: getattr(encoding, name) for name in ("head_dim", "heads", "axes", "size")}
    tokens = len(encoding.grid(*encoding.size))
    arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
    lines = ["import torch", "", "import ropewalk as rw", "", f'encoding = rw.create("{kind.name}", {arguments})']
    lines += [f"code = encoding(encoding.grid({', '.join(map(str, encoding.size))}))  # once per forward pass", ""]
    if "tokens" in _get_summary(kind)["acts_on"]:
        lines += [f"x = code.tokens(torch.randn(2, {tokens}, 384))  # once, before the first block"]
    else:
        lines += [f"q, k, v = torch.randn(3, 2, 6, {tokens}, 64).unbind()"]
        lines += ["out = rw.attend(q, k, v, code)  # in every block"]
    return "\n".join(["```python", *lines, "```"])


def _format_variants(kind: type[Encoding], said: ParsedDocstring) -> list[str]:
    """The variants, if there are several, with their settings; the first is the default."""
    if len(kind.variants) == 1:
        return []
    variant = said.options["variant"]
    texts, shown = {entry.name: entry.text for entry in variant.entries}, []
    for name, settings in kind.variants.items():
        term = f"`{name}`" + ("" if shown else " (the default)")
        values = ", ".join(_format_setting(*pair) for pair in settings.items())
        shown.append(format_definition(term, escape_prose(texts[name]), f"*{values}*"))
    return ["## Variants", escape_prose(variant.text), *shown]


def _format_setting(name: str, value: Any) -> str:
    shown = ("no", "yes")[value] if isinstance(value, bool) else f"{value:.6g}" if isinstance(value, float) else value
    return f"{name.replace('_', ' ')}: {shown}"


def _format_options(kind: type[Encoding], said: ParsedDocstring) -> list[str]:
    """Its own options, each with its default and description."""
    taken = parameters_of(kind)
    names = [n for n in {**said.options, **taken} if n in said.options or n not in Shape.__annotations__]
    shown = [format_definition(f"`{n}={taken[n].default!r}`", explain_option(n, said)) for n in names if n != "variant"]
    return ["## Options", *shown, f"{'And those' if shown else 'Those'} of [all encodings](../reference/options.md)."]


def explain_option(option: str, said: ParsedDocstring) -> str:
    """The description of an option; if there is none, a reference to the option or definition that mentions it."""
    if option in said.options:
        return escape_prose(said.options[option].text)
    mentions = [name for name, entry in said.options.items() if f"`{option}`" in entry.text]
    defined = re.search(rf"\b{option}\b", " ".join(said.definition))
    return f"See `{mentions[0]}`." if mentions else "See the definition." if defined else ""


# Facts in words


def format_relative(traits: Traits, *, long: bool = False) -> str:
    """The axes along which scores depend on differences of positions alone."""
    along = [name for name, holds in zip(get_axis_names(traits.axes), traits.relative, strict=True) if holds]
    if len(along) == traits.axes:
        short, why = "yes", "scores stay the same when all positions shift"
    elif not along:
        short, why = "no", "scores change when all positions shift"
    else:
        short, why = f"{' and '.join(along)} only", "when all positions shift along another axis, scores change"
    return f"{short}: {why}" if long else short


def format_oblique(traits: Traits, *, long: bool = False) -> str:
    """Whether channels mix axes; empty with a single axis, or if the encoding rotates no channels."""
    if traits.axes == 1 or not traits.rotary:
        return ""
    short = "yes" if traits.oblique else "no"
    why = "some channels encode a mixture of axes" if traits.oblique else "each channel encodes one axis"
    return f"{short}: {why}" if long else short


def format_claims(traits: Traits) -> str:
    """Its other traits, one a line, as `Traits` describes them."""
    said = parse_docstring(Traits.__doc__ or "").options
    held = [name for name, value in asdict(traits).items() if value is True and name not in SEPARATE_TRAITS]
    return "<br>".join(said[name].text for name in held)


def format_axes(kind: type[Encoding]) -> str:
    """The default number of axes, and how many there can be."""
    most = "any" if kind.allowed_axes is None else f"1 to {kind.allowed_axes[-1]}"
    return str(kind.default_axes) if kind.allowed_axes and len(kind.allowed_axes) == 1 else f"{kind.default_axes} ({most})"


def format_paper(kind: type[Encoding]) -> str:
    """A link to the paper, or to a page in its place."""
    number = kind.paper.removeprefix("arXiv:")
    return f"[{number.removeprefix('https://')}]({number if '://' in number else f'https://arxiv.org/abs/{number}'})"

"""Facts about encodings, as plain JSON values and as text: of one, and of all in a table.

The docstrings of encodings are parsed here, too. They have one form, in paragraphs: the first is the summary; text indented
by four is a formula; "Beware:" begins a warning; and a list has names, each with a text that continues below it, indented:

    variant  Whose settings.
      heo    Names indented by two belong to the entry above.
    base     Replaces the
             variant's.
"""

import inspect
import json
import math
import re
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ropewalk.encoding import Encoding, parameters_of
from ropewalk.lab.inspect.code_structure import compute_sample_code, describe_code_target
from ropewalk.lab.inspect.figure_grid import get_default_grid_size
from ropewalk.positions import CONVENTIONS


def create_sample_encoding(kind: type[Encoding], **options: Any) -> Encoding:
    """An instance with these options; where they are silent, 8 heads of 48 channels and, if it needs one, a usual size."""
    options = {"head_dim": 48, "heads": 8} | options
    try:
        return kind(**options)
    except ValueError:
        axes = options.get("axes", kind.default_axes)
        if options.get("size") is not None or (kind.allowed_axes is not None and axes not in kind.allowed_axes):
            raise
        return kind(**options | {"size": get_default_grid_size(axes)})


def summarize_encoding(kind: type[Encoding]) -> dict[str, Any]:
    """What a table of encodings says of one: its class, and the traits of an instance with its own number of axes.

    The columns of Table 1 of arXiv 2511.08368 are among them: relative (equivariant), oblique, and whether it needs
    learning or has a fixed form.
    """
    encoding = create_sample_encoding(kind)
    traits = _traits_to_dict(encoding)
    optional = "learned" in parameters_of(kind)
    return {
        "name": kind.name,
        "class": kind.__name__,
        "axes": {"default": kind.default_axes, "most": kind.allowed_axes[-1] if kind.allowed_axes else None},
        "relative": traits["relative"],
        "oblique": traits["oblique"],
        "learned": "optional" if optional else "yes" if traits["learned"] else "no",
        "needs_learning": traits["learned"],
        "parameters": {
            "fixed": None if traits["learned"] else _count_vit_parameters(kind),
            "learned": _count_vit_parameters(kind, learned=True)
            if optional
            else _count_vit_parameters(kind)
            if traits["learned"]
            else None,
        },
        "acts_on": describe_code_target(compute_sample_code(encoding)),
        "reach": traits["reach"],
        "variants": list(kind.variants),
        "paper": kind.paper,
    }


def _count_vit_parameters(kind: type[Encoding], **options: Any) -> int:
    """How many parameters it has in a ViT-S: 12 layers with 6 heads of 64, 14 x 14 patches, 8 frames of them in a clip."""
    options |= {"head_dim": 64, "heads": 6, "layers": 12, "size": get_default_grid_size(kind.default_axes)}
    return count_parameters(kind(**options))


def count_parameters(encoding: Encoding) -> int:
    """How many numbers it learns."""
    return sum(value.numel() for value in encoding.parameters())


def describe_encoding(encoding: Encoding) -> dict[str, Any]:
    """All about one instance."""
    return {
        "name": encoding.name,
        "class": type(encoding).__name__,
        "paper": encoding.paper,
        "description": inspect.getdoc(type(encoding)),
        "repr": repr(encoding),
        "acts_on": describe_code_target(compute_sample_code(encoding)),
        "traits": _traits_to_dict(encoding),
        "parameters": {name: list(value.shape) for name, value in encoding.named_parameters()},
        "parameter_count": count_parameters(encoding),
        "coordinates": {"name": encoding.coordinates, "meaning": CONVENTIONS[encoding.coordinates]},
        "variant": encoding.variant,
        "variants": encoding.variants,
        "config": encoding.config(),
    }


def format_encoding_facts(card: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """A card in words, but for its description: labels, blank where the one above still holds, and words."""
    yield "instance", card["repr"]
    yield "acts on", card["acts_on"]
    yield "traits", _format_settings(card["traits"])
    yield "learns", f"{card['parameter_count']:,} parameters"
    for name, shape in card["parameters"].items():
        yield "", f"{name} {tuple(shape)}"
    yield "coordinates", "{name}: {meaning}".format(**card["coordinates"])
    for i, (name, settings) in enumerate(card["variants"].items()):
        yield (
            "" if i else "variants",
            f"{name}{' (this one)' if name == card['variant'] else ''}: {_format_settings(settings)}",
        )
    yield "config", json.dumps(card["config"])


def _format_settings(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in values.items())


def _traits_to_dict(encoding: Encoding) -> dict[str, Any]:
    """The traits; a boundless reach is None, which JSON can say."""
    traits = asdict(encoding.traits)
    reach = traits["reach"] if math.isfinite(traits["reach"]) else None
    return traits | {"relative": list(traits["relative"]), "reach": reach}


FORMULA_INDENT = " " * 4
WARNING_PREFIX = "Beware:"


@dataclass(frozen=True)
class DocstringEntry:
    """A name of a list, its text, and the entries below it."""

    name: str
    text: str
    entries: tuple["DocstringEntry", ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParsedDocstring:
    """The parts of a docstring. Formulas stand in the definition too, where they stood, still indented."""

    summary: str
    definition: tuple[str, ...]
    options: dict[str, DocstringEntry]
    beware: tuple[str, ...]

    @property
    def formulas(self) -> tuple[str, ...]:
        """The formulas of the definition, no longer indented."""
        return tuple(inspect.cleandoc(paragraph) for paragraph in self.definition if paragraph.startswith(FORMULA_INDENT))


def parse_docstring(text: str) -> ParsedDocstring:
    """Take a docstring apart. Paragraphs that are nothing else belong to the definition, also after a list."""
    summary, *rest = split_paragraphs(text)
    lists = [entry for paragraph in rest for entry in parse_docstring_entries(paragraph)]
    warnings = [paragraph for paragraph in rest if paragraph.startswith(WARNING_PREFIX)]
    return ParsedDocstring(
        summary=" ".join(summary.split()),
        definition=tuple(p for p in rest if p not in warnings and not parse_docstring_entries(p)),
        options={entry.name: entry for entry in lists},
        beware=tuple(_join_line(warning.removeprefix(WARNING_PREFIX)) for warning in warnings),
    )


def parse_class_docstring(kind: type[Encoding]) -> ParsedDocstring:
    """The docstring of a class; options that its family explains and it does not itself come last."""
    own, *family = [parse_docstring(vars(cls)["__doc__"]) for cls in kind.__mro__ if cls in _list_family(kind)]
    inherited = {name: entry for parent in reversed(family) for name, entry in parent.options.items()}
    return replace(own, options=own.options | {n: entry for n, entry in inherited.items() if n not in own.options})


def split_paragraphs(text: str) -> list[str]:
    """The parts of a docstring between empty lines, formulas still indented."""
    return [part.strip("\n").rstrip() for part in re.split(r"\n\s*\n", inspect.cleandoc(text))]


def parse_docstring_entries(paragraph: str) -> tuple[DocstringEntry, ...]:
    """The entries of a paragraph that is a list, else none. Names begin a line; the first shows that it is a list."""
    first, _, rest = paragraph.partition("\n")
    begins = re.match(r"[a-z]\w*  +\S", first) or (re.fullmatch(r"[a-z]\w*", first) and rest.startswith("  "))
    return tuple(_parse_entry(part) for part in re.split(r"\n(?=\S)", paragraph)) if begins else ()


def _parse_entry(part: str) -> DocstringEntry:
    """An entry from its lines: a name, words, and lines indented by two if other names belong to it."""
    head, *nested = re.split(r"\n  (?=\S)", part)
    name, _, words = head.partition(" ")
    return DocstringEntry(name.strip(), _join_line(words), tuple(_parse_entry(line) for line in nested))


def _list_family(kind: type[Encoding]) -> Iterator[type]:
    """The class and its family: what lies between it and `Encoding`."""
    return (cls for cls in kind.__mro__ if issubclass(cls, Encoding) and cls is not Encoding)


def _join_line(words: str) -> str:
    return " ".join(words.split())


COLUMN_HEADERS = {
    "name": "name",
    "class": "class",
    "axes": "axes",
    "relative": "relative",
    "oblique": "oblique",
    "needs": "needs learning",
    "parameters": "ViT-S parameters",
    "acts_on": "acts on",
    "reach": "reach",
    "paper": "paper",
    "variants": "variants",
}
SECOND_LINE_COLUMNS = ("class", "paper", "variants")  # what goes to a second line where there is no room


def format_encoding_table(rows: list[dict[str, Any]], *, width: int) -> list[str]:
    """The table in lines no wider than `width`, or than its columns need: a line for each encoding if they fit, else two."""
    cells = [_make_cells(row) for row in rows]
    wide = _align_columns([COLUMN_HEADERS, *cells], list(COLUMN_HEADERS), between=2)
    if max(map(len, wide)) <= width:
        return wide
    stacked = {name: words.split() for name, words in COLUMN_HEADERS.items()}
    top = {name: words[0] if len(words) > 1 and name != "acts_on" else "" for name, words in stacked.items()}
    bottom = {name: words[-1] if top[name] else COLUMN_HEADERS[name] for name, words in stacked.items()}
    short = [name for name in COLUMN_HEADERS if name not in SECOND_LINE_COLUMNS]
    lines = _align_columns([top, bottom, *cells], short, between=1 if width < 90 else 2)
    found = lines[:2]
    for line, cell in zip(lines[2:], cells, strict=True):
        rest = f"{cell['class']}, {cell['paper']}: {cell['variants']}"
        found += [line, *textwrap.wrap(rest, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)]
    return found


def format_parameter_counts(row: dict[str, Any]) -> str:
    """How many numbers it learns in a ViT-S, fixed or learned."""
    return " or ".join(f"{count:,}" for count in row["parameters"].values() if count is not None)


def _align_columns(rows: list[dict[str, str]], names: list[str], *, between: int) -> list[str]:
    widths = {name: max(len(row[name]) for row in rows) for name in names}
    return [(" " * between).join(row[name].ljust(widths[name]) for name in names).rstrip() for row in rows]


def _make_cells(row: dict[str, Any]) -> dict[str, str]:
    default, most = row["axes"]["default"], row["axes"]["most"]
    same = len(set(row["relative"])) == 1
    return {
        "name": row["name"],
        "class": row["class"],
        "axes": f"{default} (any)" if most is None else f"{default} (to {most})" if most > default else str(default),
        "relative": ", ".join(map(_format_yes_no, row["relative"][:1] if same else row["relative"])),
        "oblique": _format_yes_no(row["oblique"]),
        "needs": _format_yes_no(row["needs_learning"]),
        "parameters": format_parameter_counts(row),
        "acts_on": row["acts_on"],
        "reach": "any" if row["reach"] is None else f"{row['reach']:.5g}",
        "paper": row["paper"].removeprefix("arXiv:"),
        "variants": ", ".join(row["variants"]),
    }


def _format_yes_no(value: bool) -> str:
    return "yes" if value else "no"

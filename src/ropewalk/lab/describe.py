"""What there is to say of an encoding, as plain JSON values and in words."""

import inspect
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ropewalk.code import Bias, Code, Offset, Rotation, Sphere, Turn
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.positions import CONVENTIONS

if TYPE_CHECKING:
    from rich.table import Table

ACTS_ON = {Rotation: "pairs", Sphere: "triplets", Turn: "blocks", Bias: "logits", Offset: "tokens", Code: "nothing"}


def sample(kind: type[Encoding], **options: Any) -> Encoding:
    """An instance with these options; where they are silent, 8 heads of 48 channels and, if it needs one, a size of 14."""
    options = {"head_dim": 48, "heads": 8} | options
    try:
        return kind(**options)
    except ValueError:
        axes = options.get("axes", kind.default_axes)
        if options.get("size") is not None or (kind.allowed_axes is not None and axes not in kind.allowed_axes):
            raise
        return kind(**options | {"size": (14,) * axes})


def acts_on(encoding: Encoding) -> str:
    """What its code works on: groups of channels, logits or tokens."""
    code = encoding(encoding.grid(*[1] * encoding.axes))
    return ACTS_ON.get(type(code), type(code).__name__.lower())


def row(kind: type[Encoding]) -> dict[str, Any]:
    """What a table of encodings says of one: its class, and the traits of an instance with its own number of axes."""
    encoding = sample(kind)
    traits = _traits(encoding)
    return {
        "name": kind.name,
        "class": kind.__name__,
        "axes": {"default": kind.default_axes, "most": kind.allowed_axes[-1] if kind.allowed_axes else None},
        "relative": traits["relative"],
        "learned": "yes" if traits["learned"] else "optional" if "learned" in parameters_of(kind) else "no",
        "oblique": traits["oblique"],
        "acts_on": acts_on(encoding),
        "reach": traits["reach"],
        "variants": list(kind.variants),
        "paper": kind.paper,
    }


def card(encoding: Encoding) -> dict[str, Any]:
    """All about one instance."""
    return {
        "name": encoding.name,
        "class": type(encoding).__name__,
        "paper": encoding.paper,
        "description": inspect.getdoc(type(encoding)),
        "repr": repr(encoding),
        "acts_on": acts_on(encoding),
        "traits": _traits(encoding),
        "parameters": {name: list(value.shape) for name, value in encoding.named_parameters()},
        "parameter_count": sum(value.numel() for value in encoding.parameters()),
        "coordinates": {"name": encoding.coordinates, "meaning": CONVENTIONS[encoding.coordinates]},
        "variant": encoding.variant,
        "variants": encoding.variants,
        "config": encoding.config(),
    }


def facts(card: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """A card in words, but for its description: labels, blank where the one above still holds, and words."""
    yield "instance", card["repr"]
    yield "acts on", card["acts_on"]
    yield "traits", _pairs(card["traits"])
    yield "learns", f"{card['parameter_count']:,} parameters"
    for name, shape in card["parameters"].items():
        yield "", f"{name} {tuple(shape)}"
    yield "coordinates", "{name}: {meaning}".format(**card["coordinates"])
    for i, (name, settings) in enumerate(card["variants"].items()):
        yield "" if i else "variants", f"{name}{' (this one)' if name == card['variant'] else ''}: {_pairs(settings)}"
    yield "config", json.dumps(card["config"])


def table(rows: list[dict[str, Any]], *, width: int) -> "Table":
    """Rows as a table. If it is narrow, the class stands below the name; below 92 columns there is no room for variants."""
    from rich.table import Table

    narrow = width < 150
    columns = ["name", "axes", "relative", "learned", "oblique", "acts on", "reach", "arXiv", "variants"]
    columns = columns if narrow else [columns[0], "class", *columns[1:]]
    columns = columns if width > 91 else columns[:-1]
    made = Table(box=None, pad_edge=False, padding=(0, 1 if narrow else 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column != "variants")
    for row in rows:
        cells = _cells(row)
        made.add_row(*(f"{cells[c]}\n  {cells['class']}" if narrow and c == "name" else cells[c] for c in columns))
    return made


def _cells(row: dict[str, Any]) -> dict[str, str]:
    default, most = row["axes"]["default"], row["axes"]["most"]
    return {
        "name": row["name"],
        "class": row["class"],
        "axes": f"{default} (any)" if most is None else f"{default} (to {most})" if most > 1 else str(default),
        "relative": ", ".join(map(_yes, row["relative"])),
        "learned": row["learned"],
        "oblique": _yes(row["oblique"]),
        "acts on": row["acts_on"],
        "reach": "any" if row["reach"] is None else f"{row['reach']:g}",
        "arXiv": row["paper"].removeprefix("arXiv:"),
        "variants": ", ".join(row["variants"]),
    }


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in values.items())


def _traits(encoding: Encoding) -> dict[str, Any]:
    """The traits; a boundless reach is None, which JSON can say."""
    traits = asdict(encoding.traits)
    reach = traits["reach"] if math.isfinite(traits["reach"]) else None
    return traits | {"relative": list(traits["relative"]), "reach": reach}

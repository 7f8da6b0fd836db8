"""What there is to say of an encoding, as plain JSON values and in words."""

import inspect
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ropewalk.encoding import Encoding, parameters_of
from ropewalk.lab.anatomy import acts_on, sample_code
from ropewalk.lab.places import ordinary_size
from ropewalk.positions import CONVENTIONS


def sample(kind: type[Encoding], **options: Any) -> Encoding:
    """An instance with these options; where they are silent, 8 heads of 48 channels and, if it needs one, a usual size."""
    options = {"head_dim": 48, "heads": 8} | options
    try:
        return kind(**options)
    except ValueError:
        axes = options.get("axes", kind.default_axes)
        if options.get("size") is not None or (kind.allowed_axes is not None and axes not in kind.allowed_axes):
            raise
        return kind(**options | {"size": ordinary_size(axes)})


def row(kind: type[Encoding]) -> dict[str, Any]:
    """What a table of encodings says of one: its class, and the traits of an instance with its own number of axes.

    The columns of Table 1 of arXiv 2511.08368 are among them: relative (equivariant), oblique, and whether it needs
    learning or has a fixed form.
    """
    encoding = sample(kind)
    traits = _traits(encoding)
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
            "fixed": None if traits["learned"] else _in_vit(kind),
            "learned": _in_vit(kind, learned=True) if optional else _in_vit(kind) if traits["learned"] else None,
        },
        "acts_on": acts_on(sample_code(encoding)),
        "reach": traits["reach"],
        "variants": list(kind.variants),
        "paper": kind.paper,
    }


def _in_vit(kind: type[Encoding], **options: Any) -> int:
    """How many parameters it has in a ViT-S: 12 layers with 6 heads of 64, 14 x 14 patches, 8 frames of them in a clip."""
    options |= {"head_dim": 64, "heads": 6, "layers": 12, "size": ordinary_size(kind.default_axes)}
    return count(kind(**options))


def count(encoding: Encoding) -> int:
    """How many numbers it learns."""
    return sum(value.numel() for value in encoding.parameters())


def card(encoding: Encoding) -> dict[str, Any]:
    """All about one instance."""
    return {
        "name": encoding.name,
        "class": type(encoding).__name__,
        "paper": encoding.paper,
        "description": inspect.getdoc(type(encoding)),
        "repr": repr(encoding),
        "acts_on": acts_on(sample_code(encoding)),
        "traits": _traits(encoding),
        "parameters": {name: list(value.shape) for name, value in encoding.named_parameters()},
        "parameter_count": count(encoding),
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


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in values.items())


def _traits(encoding: Encoding) -> dict[str, Any]:
    """The traits; a boundless reach is None, which JSON can say."""
    traits = asdict(encoding.traits)
    reach = traits["reach"] if math.isfinite(traits["reach"]) else None
    return traits | {"relative": list(traits["relative"]), "reach": reach}

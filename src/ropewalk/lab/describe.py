"""What there is to say of an encoding, as plain JSON values."""

import inspect
import math
from dataclasses import asdict
from typing import Any

from ropewalk.code import Bias, Code, Offset, Rotation, Sphere, Turn
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.positions import CONVENTIONS

ACTS_ON = {Rotation: "pairs", Sphere: "triplets", Turn: "blocks", Bias: "logits", Offset: "tokens", Code: "nothing"}


def sample(kind: type[Encoding], **options: Any) -> Encoding:
    """An instance with these options; where they are silent, of 8 heads of 48 channels and, if it needs one, a size of 14."""
    options = {"head_dim": 48, "heads": 8} | options
    try:
        return kind(**options)
    except ValueError:
        axes = options.get("axes", kind.default_axes)
        if options.get("size") is not None or axes not in kind.allowed_axes:
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
        "axes": {"default": kind.default_axes, "least": kind.allowed_axes[0], "most": kind.allowed_axes[-1]},
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


def _traits(encoding: Encoding) -> dict[str, Any]:
    """The traits; a boundless reach is None, which JSON can say."""
    traits = asdict(encoding.traits)
    reach = traits["reach"] if math.isfinite(traits["reach"]) else None
    return traits | {"relative": list(traits["relative"]), "reach": reach}

"""Build one encoding for each attention of a model, for its own grid, heads and channels."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ropewalk.adapters.offloading import computing_device
from ropewalk.adapters.timm.grid_models import Spot, Survey
from ropewalk.code import Chain, Code, Offset
from ropewalk.encoding import Encoding
from ropewalk.factory import create
from ropewalk.image_sizes import settle_size

NAMES = ("head_dim", "heads", "kv_heads", "axes", "layers")


def make_encodings(model: nn.Module, found: Survey, encoding: Any, options: dict[str, Any]) -> list[Encoding]:
    """Encodings for what was found, in its order, or an error that says what does not fit."""
    if options and not isinstance(encoding, str):
        raise TypeError(f"options go with the name of an encoding, got {', '.join(options)} and {encoding!r}")
    if encoding is None:
        if any(spot.kind.without for spot in found.spots):
            kind = type(model).__name__
            raise ValueError(f"the rotation of {kind} cannot be kept as an encoding: name the one to put in its place")
        encoding = "none"
    made = _each(found.spots, encoding, options)
    for spot, each in zip(found.spots, made, strict=True):
        _check(spot, each)
        attention = model.get_submodule(spot.path)
        each.to(computing_device(attention))
    return made


def _each(spots: Sequence[Spot], encoding: Any, options: dict[str, Any]) -> list[Encoding]:
    if isinstance(encoding, str):
        return [_named(spot, encoding, options) for spot in spots]
    if isinstance(encoding, dict):
        paths = [spot.path for spot in spots]
        if set(encoding) != set(paths):
            raise ValueError(
                f"there must be an encoding for each of {', '.join(paths)}, got {', '.join(map(str, encoding))}"
            )
        return [encoding[path] for path in paths]
    if isinstance(encoding, Encoding) and len({spot.describe() for spot in spots}) > 1:
        shapes = "; ".join(dict.fromkeys(spot.describe() for spot in spots))
        wanted = (
            "one encoding cannot fit attention of several shapes: give its name, or a dictionary as installed(model) has"
        )
        raise ValueError(f"{wanted}; the shapes are {shapes}")
    return [encoding] * len(spots)


def _named(spot: Spot, name: str, options: dict[str, Any]) -> Encoding:
    try:
        return create(name, **{**spot.shape, **options})
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error} (for {spot.path}: {spot.describe()})") from error


def _check(spot: Spot, encoding: Any) -> None:
    if not isinstance(encoding, Encoding):
        raise TypeError(f"encoding must be an encoding of ropewalk, a name or None, got {type(encoding).__name__}")
    for name in NAMES:
        got, wanted = getattr(encoding, name), spot.shape[name]
        if got != wanted:
            raise ValueError(f"an encoding for {spot.path} must have {name}={wanted}, got {name}={got}")
    with torch.no_grad():
        code = settle_size(encoding, spot.sizes)(encoding.grid(*spot.sizes))
    if adds_to_tokens(code):
        reason = "tokens of windows and stages come from others, to which it would be added again"
        raise ValueError(f"{encoding.name} adds to the tokens, and needs a plain ViT: {reason}")


def adds_to_tokens(code: Code) -> bool:
    """Whether a code acts on tokens before the first block."""
    return isinstance(code, Offset) or (isinstance(code, Chain) and any(map(adds_to_tokens, code.codes)))

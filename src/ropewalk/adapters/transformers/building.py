"""The encoding that a model is to have: given, by name, or what its config says."""

from collections.abc import Mapping
from typing import Any

import torch

from ropewalk.adapters.transformers.embedding import by_length, pair
from ropewalk.adapters.transformers.families import Host
from ropewalk.code import Code
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.extension.config import options as read
from ropewalk.factory import create, find

Asked = Encoding | str | Mapping[str, Any] | None
BY_CALL = ("dynamic", "longrope")  # rules that transformers settles anew in each call
FOLDED = "folded"  # beside the options of an encoding whose basis is in the weights of its model
Made = Encoding | dict[str, Encoding]


def build(host: Host, asked: Asked, config: Any, options: dict[str, Any]) -> Made:
    """The encoding of a host, or one for each type of its layers. `config` is that of the model as it came.

    One and the same for all types is an encoding for all layers: no model has to save it twice.
    """
    types = host.layer_types
    if isinstance(asked, Mapping) and "name" not in asked:
        if set(asked) != set(types):
            wanted = ", ".join(map(repr, types)) or "no types of layers"
            raise ValueError(f"encodings by type of layers must be for {wanted}, got {', '.join(map(repr, asked))}")
        given = list(asked.values())
        if isinstance(given[0], Encoding) and all(each is given[0] for each in given):
            return one(host, given[0], config, options, None)
        return {kind: one(host, asked[kind], config, options, kind) for kind in types}
    if asked is None and types:
        return {kind: one(host, None, config, options, kind) for kind in types}
    return one(host, asked, config, options, None)


def one(host: Host, asked: Asked, config: Any, options: dict[str, Any], kind: str | None) -> Encoding:
    """One encoding, checked against its host."""
    if isinstance(asked, Encoding):
        if options:
            raise ValueError(f"an encoding has its options already, got {', '.join(options)}")
        made = asked
    elif asked is None:
        made = as_config(host, config, options, kind)
    else:
        said = {"name": asked} if isinstance(asked, str) else asked
        name, own = said["name"], {key: value for key, value in said.items() if key != FOLDED}
        chosen = find(name, load=isinstance(asked, str))  # a name that the model's config says imports nothing
        made = chosen(**{key: value for key, value in {**defaults(host, name), **own, **options}.items() if key != "name"})
    check(host, made)
    return made


def defaults(host: Host, name: str) -> dict[str, Any]:
    """What an encoding is made with unless somebody says otherwise."""
    shape = host.shape | {"axes": host.family.axes}
    if "width" in parameters_of(find(name)):
        shape["width"] = host.config.hidden_size
    if host.family.axes == 1:
        return shape | {"coordinates": "index"}
    sizes = zip(pair(host.config.image_size), pair(host.config.patch_size), strict=True)
    return shape if name == "dinov3" else shape | {"size": tuple(n // p for n, p in sizes)}


def as_config(host: Host, config: Any, options: dict[str, Any], kind: str | None) -> Encoding:
    """RoPE as the config says, with options of the encoding besides."""
    shape = host.shape
    if host.family.axes == 2:
        return create("dinov3", **(shape | {"base": float(config.rope_theta)} | options))
    said = config.rope_parameters if kind is None else config.rope_parameters[kind]
    if not host.family.partial and said.get("rope_type", "default") == "default":
        said = {key: value for key, value in said.items() if key != "partial_rotary_factor"}
    found = read(
        said if kind is None else {kind: said},
        head_dim=shape["head_dim"],
        max_position_embeddings=config.max_position_embeddings,
        original_max_position_embeddings=getattr(config, "original_max_position_embeddings", None),
        rope_theta=getattr(config, "rope_theta", None),
        layer_type=kind,
        framework="transformers",
    )
    made = create("rope", **(shape | found | options))
    settled = by_length(made) and found["extension"]["rope_type"] not in BY_CALL
    return made.at(config.max_position_embeddings) if settled else made


def check(host: Host, encoding: Encoding) -> None:
    """Refuse what the host cannot use, by a trial of one token."""
    kind, axes = type(host.base).__name__, host.family.axes
    if encoding.axes != axes:
        raise ValueError(f"positions of {kind} have {'one axis' if axes == 1 else f'{axes} axes'}, got axes={encoding.axes}")
    if axes == 1 and encoding.coordinates != "index":
        raise ValueError(f"positions of text count tokens: coordinates must be 'index', got {encoding.coordinates!r}")
    layers = len(host.layers)
    if encoding.layers not in (None, layers):
        raise ValueError(f"{kind} has {layers} layers: layers must be {layers} or None, got {encoding.layers}")
    whole = encoding.at(1) if by_length(encoding) else encoding
    with torch.no_grad():
        place = whole.grid(*[1] * axes)
        _try(host, whole(place), place.device)


def _try(host: Host, code: Code, device: torch.device) -> None:
    shape = host.shape
    code.tokens(torch.zeros(1, 1, host.config.hidden_size, device=device))
    own = code if code.layers is None else code[0]
    counts = (shape["heads"], shape["kv_heads"] or shape["heads"])
    q, k = (torch.zeros(1, heads, 1, shape["head_dim"], device=device) for heads in counts)
    own.scores(*own.qk(q, k))

"""An encoding goes into a model."""

from dataclasses import replace
from typing import Any, TypeVar

import torch
from timm.layers.pos_embed_sincos import RotaryEmbeddingMixed
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from ropewalk.adapters.timm.attach import before, device_of, put, uninstall
from ropewalk.adapters.timm.class_swap import host_of
from ropewalk.adapters.timm.hosts import Host, look_at
from ropewalk.adapters.timm.native import Own, own
from ropewalk.adapters.timm.rope import Moves, Rope, Rule
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.factory import create, find
from ropewalk.positions import Resolution, check_resolution

Model = TypeVar("Model", bound=nn.Module)


def install(
    model: Model,
    encoding: Encoding | str | None = None,
    *,
    drop_table: bool = False,
    resolution: Resolution | None = None,
    shift: float | None = None,
    jitter: float | None = None,
    rescale: float | None = None,
    **options: Any,
) -> Model:
    """Give a vision transformer of timm's an encoding, in place, and return it. What was installed before is replaced.

    encoding    An encoding of two axes; the name of one, with `options` as `rw.create` takes them; or None for the one that
                the model has, with its parameters: then nothing changes but the arithmetic.
    drop_table  Whether the absolute table (`pos_embed`) is left out. A rotation that the model had always is.
    resolution  At another size than the present one, "extrapolate" keeps the distance between patches and "rescale" the
                extent of the image. The default is what the model does if it keeps its encoding, and else that of
                `Encoding.grid`: images are rescaled, unless a rule of context extension is given.
    shift       In training, moves all tokens by up to this much along each axis, drawn anew for each batch. This and the
                next two are in the coordinates of the encoding; where none is given, the model keeps its own if it keeps
                its encoding.
    jitter      In training, stretches each axis by a factor of its own between 1/jitter and jitter.
    rescale     In training, stretches all axes by one factor between 1/rescale and rescale.
    """
    host, was = look_at(model), before(model)
    chosen = own(was.rope, host) if encoding is None and not options else Own(_checked(encoding, options, host), Rule())
    rule = replace(chosen.rule, known=host.grid)
    if resolution is not None:
        check_resolution(resolution, 2)
        rule = replace(rule, resolution=resolution, reference=None)
    given = {"shift": shift, "jitter": jitter, "rescale": rescale}
    moves = chosen.moves if all(value is None for value in given.values()) else Moves(**given)
    with torch.random.fork_rng(devices=[]):
        moves(torch.zeros(1, 2))  # or an error in words
    if drop_table and host_of(model)._pos_embed not in (VisionTransformer._pos_embed, Eva._pos_embed):
        raise TypeError(f"{host_of(model).__name__} always adds its table: it cannot be left out")
    columns_first = was.rope.grid_indexing == "xy" if isinstance(was.rope, RotaryEmbeddingMixed) else None
    uninstall(model)
    rope = Rope(chosen.encoding.to(device_of(model)), rule, moves, columns_first)
    put(model, rope.train(model.training), host, drop_table=drop_table)
    return model


def _checked(encoding: Any, options: dict[str, Any], host: Host) -> Encoding:
    """The encoding for a model, by name or as it is."""
    if options and not isinstance(encoding, str):
        raise TypeError(f"options go with the name of an encoding, got {', '.join(options)} and {encoding!r}")
    made = _named(encoding, options, host) if isinstance(encoding, str) else encoding
    if not isinstance(made, Encoding):
        raise TypeError(f"encoding must be an encoding of ropewalk, a name or None, got {type(made).__name__}")
    for name in ("head_dim", "heads", "kv_heads", "axes", "layers"):
        got, wanted = getattr(made, name), host.shape[name]
        if got != wanted and not (name == "layers" and got is None):
            raise ValueError(f"an encoding for this model must have {name}={wanted}, got {name}={got}")
    return made


def _named(name: str, options: dict[str, Any], host: Host) -> Encoding:
    width = {"width": host.width} if "width" in parameters_of(find(name, load=True)) else {}
    return create(name, **{**host.shape, **width, **options})

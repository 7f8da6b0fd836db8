"""Install an encoding in a model of timm."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
from timm.layers.pos_embed_sincos import RotaryEmbeddingMixed
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from ropewalk.adapters.offloading import computing_device, is_offloaded
from ropewalk.adapters.timm.attach import before, put, uninstall
from ropewalk.adapters.timm.class_swap import host_of
from ropewalk.adapters.timm.grid_encodings import make_encodings
from ropewalk.adapters.timm.grid_models import GridModel, Survey, put_back, put_grids, survey, taken_grids
from ropewalk.adapters.timm.hosts import Host, look_at
from ropewalk.adapters.timm.models import CodedModel
from ropewalk.adapters.timm.native import Own, own
from ropewalk.adapters.timm.rope import Moves, Rope, Rule
from ropewalk.arguments import flag, instance_of
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
    image_size: Sequence[int] | None = None,
    describe: bool = False,
    **options: Any,
) -> Model:
    """Install an encoding in a vision transformer of timm, in place, and return the model. A previous one is replaced.

    A plain ViT gets one encoding for all layers. If each attention has its own grid (windows, stages of a hierarchy,
    branches), each gets its own encoding, for its number of heads and its grid.

    encoding    An encoding of two axes; the name of one, with `options` as for `rw.create`; a dictionary of encodings, as
                `installed` returns; or None to keep the model's own, with its parameters: only the arithmetic changes.
    drop_table  Whether to remove the absolute table (`pos_embed`) of a plain ViT. A rotation is always replaced.
    resolution  At another size than the present one, "extrapolate" keeps the distance between patches and "rescale" the
                extent of the image. The default is what the model does if it keeps its encoding, and else that of
                `Encoding.grid`: images are rescaled, unless a rule of context extension is given.
    shift       In training, moves all tokens by up to this much along each axis, drawn anew for each batch. This and the
                next two are in the coordinates of the encoding; where none is given, the model keeps its own if it keeps
                its encoding.
    jitter      In training, stretches each axis by a factor of its own between 1/jitter and jitter.
    rescale     In training, stretches all axes by one factor between 1/rescale and rescale.
    image_size  Rows and columns, in pixels, of the images that the model was made for, if it does not store them.
    describe    Print what was found and installed, in one line.
    """
    given = {"shift": shift, "jitter": jitter, "rescale": rescale}
    flag("drop_table", drop_table), flag("describe", describe)
    try:
        host = look_at(model)
    except (TypeError, ValueError) as plain:
        found = _install_grids(model, plain, encoding, options, resolution, drop_table, given, image_size)
        if describe:
            print(f"{host_of(model).__name__}: {encoding or 'none'} in each attention: {found.describe()}")
        return model
    if image_size is not None:
        raise ValueError(
            f"a plain ViT has its image size: call model.set_input_size, or leave image_size out, got {image_size}"
        )
    _install_plain(model, host, encoding, options, resolution, drop_table, given)
    if describe:
        print(f"{host_of(model).__name__}: {cast(Any, model).encoding!r} in {host.depth} layers, grid {host.grid}")
    return model


def installed(model: nn.Module) -> Encoding | dict[str, Encoding] | None:
    """The installed encoding, a dictionary of encodings by the attention's module name, or None if none is installed."""
    return model.encoding if isinstance(model, CodedModel | GridModel) else None


def _install_grids(
    model: Any,
    plain: Exception,
    encoding: Any,
    options: dict[str, Any],
    resolution: Resolution | None,
    drop_table: bool,
    moves: dict[str, float | None],
    image_size: Sequence[int] | None,
) -> Survey:
    """An encoding for each attention that has a grid of its own. What was there comes back if it cannot be done."""
    if drop_table:
        raise ValueError("drop_table=True is for plain ViTs: tables and biases of other models cannot be removed")
    if moved := [name for name, value in moves.items() if value is not None]:
        raise ValueError(
            f"{' and '.join(moved)} move the patches of plain ViTs: leave them out where attention has grids of its own"
        )
    if is_offloaded(instance_of("model", model, nn.Module)):
        raise ValueError(
            f"{host_of(model).__name__} must be tried on an image, and its weights are offloaded: install before"
        )
    if resolution is not None:
        check_resolution(resolution, 2)
    rule = Rule(resolution=resolution)
    old = taken_grids(model)
    try:
        found = survey(model, image_size)
        if not found.spots:
            raise plain if _plain(model) else TypeError(found.refuse(host_of(model))) from plain
        made = make_encodings(model, found, encoding, options)
    except BaseException:
        put_back(model, old)
        raise
    put_grids(model, found.spots, made, rule)
    return found


def _plain(model: nn.Module) -> bool:
    """Whether it is a plain ViT of timm's, so that its own error says what is wrong with it."""
    return issubclass(host_of(model), VisionTransformer | Eva)


def _install_plain(
    model: Any,
    host: Host,
    encoding: Any,
    options: dict[str, Any],
    resolution: Resolution | None,
    drop_table: bool,
    given: dict[str, float | None],
) -> None:
    was = before(model)
    chosen = own(was.rope, host) if encoding is None and not options else Own(_checked(encoding, options, host), Rule())
    rule = replace(chosen.rule, known=host.grid)
    if resolution is not None:
        check_resolution(resolution, 2)
        rule = replace(rule, resolution=resolution, reference=None)
    moves = chosen.moves if all(value is None for value in given.values()) else Moves(**given)
    with torch.random.fork_rng(devices=[]):
        moves(torch.zeros(1, 2))  # or an error in words
    if drop_table and host_of(model)._pos_embed not in (VisionTransformer._pos_embed, Eva._pos_embed):
        raise TypeError(f"{host_of(model).__name__} always adds its table: it cannot be left out")
    columns_first = was.rope.grid_indexing == "xy" if isinstance(was.rope, RotaryEmbeddingMixed) else None
    uninstall(model)
    rope = Rope(chosen.encoding.to(computing_device(model)), rule, moves, columns_first)
    put(model, rope.train(model.training), host, drop_table=drop_table)


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

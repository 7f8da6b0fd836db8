"""What installing changes in a model, and how it is put back."""

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from timm.layers.patch_dropout import PatchDropout, PatchDropoutWithIndices
from timm.layers.pos_embed import resample_abs_pos_embed
from torch import Tensor, nn

from ropewalk.adapters.offloading import computing_device
from ropewalk.adapters.timm.attention import CodedAttention
from ropewalk.adapters.timm.class_swap import restore, swap
from ropewalk.adapters.timm.grid_models import GridModel, taken_grids
from ropewalk.adapters.timm.hosts import Host
from ropewalk.adapters.timm.models import CodedBlock, CodedModel, CodedViT, KeepingPatchDropout
from ropewalk.adapters.timm.names import TimmMixed
from ropewalk.adapters.timm.rope import Rope

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Before:
    """What a model had before: kept beside its modules, so that it is neither saved nor trained."""

    rope: Any
    rope_mixed: bool
    table: nn.Parameter | None
    grid: tuple[int, int]
    folded: bool = False


def before(model: Any) -> Before:
    """What is to be put back one day."""
    if isinstance(model, CodedModel):
        _filled(model)
        _learned(model)
        return model.before
    table, grid = model.pos_embed, model.patch_embed.grid_size
    return Before(getattr(model, "rope", None), getattr(model, "rope_mixed", False), table, grid)


def _filled(model: Any) -> None:
    """A rotation that was set aside on the meta device is computed anew where the model has values by now."""
    rope, device = model.before.rope, computing_device(model)
    if device.type == "meta":
        return
    if lost := _lost(model):
        got = f"got none for {' and '.join(lost)}, set aside on the meta device"
        raise ValueError(f"what is put back must have values, {got}: install an encoding after to_empty()")
    if rope is not None and any(tensor.is_meta for tensor in (*rope.parameters(), *rope.buffers())):
        rope.to_empty(device=device).init_non_persistent_buffers()


def _lost(model: Any) -> list[str]:
    """What nothing can compute: a table, and frequencies that are not those of the encoding."""
    was, own = model.before, isinstance(model.rope.encoding, TimmMixed)
    freqs = [] if was.rope is None or own else list(was.rope.parameters())
    table = [] if was.table is None or model.pos_embed is not None else [was.table]
    named = {"the table": table, "the frequencies": freqs}
    return [name for name, tensors in named.items() if any(tensor.is_meta for tensor in tensors)]


@torch.no_grad()
def _learned(model: Any) -> None:
    """Frequencies that are the model's own go back to it as they are now, learned or loaded."""
    own, was = model.rope.encoding, model.before.rope
    if isinstance(own, TimmMixed) and was is not None:
        was.freqs.copy_(own.freqs)


def put(model: Any, rope: Rope, host: Host, *, drop_table: bool) -> None:
    """Give a model an encoding."""
    for layer, several in enumerate(host.attentions):
        for attention in several:
            attention.layer = layer
            swap(attention, CodedAttention)
    if host.family is CodedViT:
        for block in model.blocks:
            swap(block, CodedBlock)
    if isinstance(model.patch_drop, PatchDropout | PatchDropoutWithIndices):
        swap(model.patch_drop, KeepingPatchDropout)
    model.before, model.rope = before(model), rope
    if hasattr(model, "rope_mixed"):
        model.rope_mixed = True  # so that each block gets a code of its own
    if drop_table:
        model.pos_embed = None
    swap(model, host.family)


def uninstall(model: Model) -> Model:
    """Restore the classes, rotation and table that a model had before `install`, if there was one. Returns the model.

    Other weights keep their present values. What is restored gets the model's present device, dtype and image size. Raises
    for a folded model that had a rotation.
    """
    if isinstance(model, GridModel):
        taken_grids(model)
    if isinstance(model, CodedModel) and model.before.folded and model.before.rope is not None:
        raise ValueError("the weights of q and k were folded, into a basis in which the model's own rotation is another")
    return _taken(model) if isinstance(model, CodedModel) else model


def _taken(model: Any) -> Any:
    was, dropped = before(model), model.pos_embed is None
    for module in model.modules():
        if isinstance(module, CodedAttention):
            del module.layer
        restore(module)
    for name in ("before", *(["rope"] if was.rope is None else [])):
        delattr(model, name)
    if hasattr(model, "rope_mixed"):
        model.rope, model.rope_mixed = was.rope, was.rope_mixed
    if was.rope is not None:
        was.rope.to(computing_device(model)).train(model.training).update_feat_shape(model.patch_embed.grid_size)
    if dropped and was.table is not None:
        model.pos_embed = _fitting(model, was)
    return model


def _fitting(model: Any, was: Before) -> nn.Parameter:
    """The absolute table that was dropped, or as timm makes it fit images of another size."""
    table, grid = was.table, model.patch_embed.grid_size
    assert table is not None
    table.data = table.data.to(model.patch_embed.proj.weight)
    return table if grid == was.grid else nn.Parameter(_resampled(model, table, was.grid, grid))


def _resampled(model: Any, table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    prefix = 0 if model.no_embed_class else model.num_prefix_tokens
    return resample_abs_pos_embed(table.detach(), new_size=list(new), old_size=list(old), num_prefix_tokens=prefix)

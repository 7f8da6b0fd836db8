"""A commuting encoding becomes mixed RoPE, and its basis goes into the projections of q and k."""

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ropewalk.adapters.timm.grid_models import GridModel
from ropewalk.adapters.timm.models import CodedModel, attentions
from ropewalk.theory import fold
from ropewalk.theory import fold_into as fold_weights
from ropewalk.theory.waves import TOLERANCE

Model = TypeVar("Model", bound=nn.Module)


@torch.no_grad()
def fold_into(model: Model, *, tolerance: float = TOLERANCE) -> Model:
    """Fold the encoding that is installed in a model, in place, and return the model: same logits, the cost of RoPE-Mixed.

    As `rw.fold_into`, which it calls; besides, it knows that EVA keeps the biases of q beside its projection. Norms of q and
    k that do not commute with the basis, such as a LayerNorm or gains that differ, are refused.
    """
    if isinstance(model, GridModel):
        wanted = "plain ViTs of timm can be folded, whose q and k come from projections that are known"
        raise TypeError(f"{wanted}: keep the encodings of {model.host.__name__} as they are")
    if not isinstance(model, CodedModel):
        raise TypeError(f"the model must have an encoding of ropewalk: install one first, got {type(model).__name__}")
    _, basis = fold(model.encoding, tolerance=tolerance)
    layered = model.encoding.layers is not None
    fold_weights(model, tolerance=tolerance)
    model.before = replace(model.before, folded=True)
    for layer, block in enumerate(model.blocks):
        for attention in attentions(block):
            _turn_bias(attention, basis[layer] if layered else basis)
    return model


def _turn_bias(attention: Any, basis: Tensor) -> None:
    """Uᵀ of the bias of q, head by head, where it stands by itself."""
    bias = getattr(attention, "q_bias", None)
    if bias is None:
        return
    heads = bias.double().unflatten(0, (attention.num_heads, -1))
    basis = basis.to(bias.device).double().repeat_interleave(attention.num_heads // basis.shape[0], 0)
    bias.copy_(torch.einsum("hij,hi->hj", basis, heads).flatten())

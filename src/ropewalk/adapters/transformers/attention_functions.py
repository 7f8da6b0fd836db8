"""Attention for encodings that add to the logits, through transformers' tables of attention functions and masks."""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.utils import logging

from ropewalk.adapters.transformers.code_state import EAGER, FUSED, KEYWORD, Scored
from ropewalk.attention import attend

logger = logging.get_logger(__name__)


def fused(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """Scaled-dot-product attention whose logits get what the encoding adds."""
    if options.get("softcap") is not None:
        raise ValueError(
            f"logits with a bias cannot be capped here: use attn_implementation={EAGER!r}, got {options['softcap']}"
        )
    if options.get("output_attentions", False):
        logger.warning_once(f"attention {FUSED!r} returns no weights with output_attentions=True: {EAGER!r} does")
    code = scored(options).code(key.shape[2])
    out = attend(query, key, value, code, mask=attention_mask, scale=scaling, dropout=dropout, turned=True)
    return out.transpose(1, 2).contiguous(), None


def eager(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor]:
    """The model's own eager attention, which returns its weights, with a mask that has what the encoding adds."""
    bias = scored(options).code(key.shape[2]).scores(query, key)
    mask = attention_mask if bias is None else _added(bias.to(query.dtype), attention_mask)
    host = sys.modules[type(module).__module__].eager_attention_forward
    return host(module, query, key, value, mask, **options)


def scored(options: dict[str, Any]) -> Scored:
    """What the hook of an attention layer has left for its attention function."""
    found = options.pop(KEYWORD, None)
    if not isinstance(found, Scored):
        wanted = "a model with an encoding that adds to the logits, or that was installed into a model with this attention"
        raise TypeError(f"the attention functions {FUSED!r} and {EAGER!r} are for {wanted}, got one without")
    return found


def _added(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Bias and mask as one that is added. Not -inf: a query that may look at nothing must not become NaN."""
    if mask is None:
        return bias
    return torch.where(mask, bias, torch.finfo(bias.dtype).min) if mask.dtype is torch.bool else bias + mask


def whole_mask(*args: Any, **options: Any) -> Tensor | None:
    """The boolean mask of scaled-dot-product attention, never left out for being plainly causal."""
    return sdpa_mask(*args, **{**options, "allow_is_causal_skip": False})


def register() -> None:
    """Enter both functions, and their mask, in transformers' tables."""
    for name, function in ((FUSED, fused), (EAGER, eager)):
        AttentionInterface.register(name, function)
        AttentionMaskInterface.register(name, whole_mask)

"""timm's attention with a code: projection, norms of q and k, code, attention, and all that comes after as timm has it."""

from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.attention import resolve_self_attn_mask
from torch import Tensor, nn

from ropewalk.adapters.timm.class_swap import Swapped
from ropewalk.attention import attend
from ropewalk.code import Code, Sealed, unseal


class Handed:
    """What a plain ViT hands to its blocks in the place of a mask: the codes of all layers, and the mask.

    No dataclass: see `ropewalk.code.sealed`.
    """

    def __init__(self, mask: Tensor | None, *, checkpointing: bool) -> None:
        self.mask, self.checkpointing = mask, checkpointing
        self.codes: tuple[Sealed, ...] = ()


class CodedAttention(Swapped):
    """Attention that a code acts on. It comes as `rope`, or in a `Handed`, of which `layer` says what is meant for it."""

    layer: int
    num_heads: int
    scale: float
    fused_attn: bool
    qkv_bias_separate: bool
    attn_drop: nn.Dropout
    qkv: nn.Linear | None
    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    q_norm: nn.Module
    k_norm: nn.Module
    norm: nn.Module
    proj: nn.Module
    proj_drop: nn.Module
    q_bias: Tensor
    k_bias: Tensor
    v_bias: Tensor

    def forward(self, x: Tensor, rope: Any = None, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
        code, mask = self._given(rope, attn_mask)
        q, k, v = self._turned(x, code)
        out = self._attended(q, k, v, code, mask, is_causal).transpose(1, 2).flatten(2)
        out = self.norm(out)
        gate = getattr(self, "gate", None)
        out = out if gate is None else out * gate(x).sigmoid()
        return self.proj_drop(self.proj(out))

    def _given(self, rope: Any, attn_mask: Any) -> tuple[Code, Tensor | None]:
        code, mask = (attn_mask.codes[self.layer], attn_mask.mask) if isinstance(attn_mask, Handed) else (rope, attn_mask)
        if not isinstance(code, Code | Sealed):
            wanted = "the code of its tokens, which the model's forward_features and forward_intermediates give it"
            raise TypeError(f"this attention has an encoding and needs {wanted}, got {type(code).__name__}")
        return unseal(code), mask

    def _turned(self, x: Tensor, code: Code) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v (B h N D), turned. Norms come before; without them, q and k turn as they lie in one projection."""
        if self.qkv is not None and isinstance(self.q_norm, nn.Identity) and isinstance(self.k_norm, nn.Identity):
            return code.qkv(self._projected(x).unflatten(-1, (3 * self.num_heads, -1)), self.num_heads)
        q, k, v = self._apart(x)
        q, k = self.q_norm(q), self.k_norm(k)
        if k.shape[1] not in (code.k_heads, self.num_heads):  # blocks differ in how many heads share a key
            k = k.repeat_interleave(self.num_heads // k.shape[1], dim=1)
            v = v.repeat_interleave(self.num_heads // v.shape[1], dim=1)
        q, k = code.qk(q, k)
        return q.to(v.dtype), k.to(v.dtype), v

    def _projected(self, x: Tensor) -> Tensor:
        """q, k and v as one. EVA keeps the biases apart: keys have one of zeros, which is not learned."""
        assert self.qkv is not None
        if getattr(self, "q_bias", None) is None:
            return self.qkv(x)
        bias = torch.cat((self.q_bias, self.k_bias, self.v_bias))
        return self.qkv(x) + bias if self.qkv_bias_separate else F.linear(x, self.qkv.weight, bias)

    def _apart(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.qkv is not None:
            q, k, v = self._projected(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
            return q, k, v
        depth = self.q_proj.out_features // self.num_heads
        q, k, v = (make(x).unflatten(-1, (-1, depth)).transpose(1, 2) for make in (self.q_proj, self.k_proj, self.v_proj))
        return q, k, v

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, code: Code, mask: Tensor | None, causal: bool) -> Tensor:
        if self.fused_attn:
            dropout = self.attn_drop.p if self.training else 0.0
            return attend(q, k, v, code, mask=mask, causal=causal, dropout=dropout, turned=True)
        k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], dim=1) for each in (k, v))
        logits = (q * self.scale) @ k.mT
        for added in (code.scores(q, k), resolve_self_attn_mask(q.shape[2], logits, mask, causal)):
            logits = logits if added is None else logits + added.to(logits.dtype)
        return self.attn_drop(logits.softmax(dim=-1)) @ v

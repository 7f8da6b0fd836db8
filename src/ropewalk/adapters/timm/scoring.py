"""A code acts where an attention of any class scores keys against queries; the attention's forward method stays as it is.

Attention of every class either calls `scaled_dot_product_attention`, or its first matrix product is that of q and kᵀ, and
what `softmax` is taken of are the logits. Norms, scales, biases and masks of the class stay around these calls.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ropewalk.attention import attend
from ropewalk.code import Code

FUSED = F.scaled_dot_product_attention
PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__)
SOFTMAXES = (F.softmax, torch.softmax, Tensor.softmax)

LAYOUTS = ("bhnd", "bwhnd", "bhwnd", "(bh)nd", "bnd")
"""How q may lie: batch, heads, tokens and channels; windows before or after heads; heads in the batch; one head."""


class Scoring(TorchFunctionMode):
    """While it is on, q and k of the attention that runs are seen by `meet`, in (B H N D), before they are compared."""

    def __init__(self, heads: int, layout: str) -> None:
        super().__init__()
        self.heads, self.layout, self.met = heads, layout, False
        self.added: Tensor | None = None

    def meet(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """What is compared in the place of q and k."""
        raise NotImplementedError

    @property
    def biased(self) -> bool:
        """Whether something is added to the logits: by `fused`, or by `logits` before the softmax."""
        return False

    def fused(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        """Attention of q and k that `meet` has seen, all (B H N D)."""
        raise NotImplementedError

    def logits(self, q: Tensor, k: Tensor) -> Tensor | None:
        """What is added to the logits before the softmax."""
        return None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is FUSED:
            return self._fused(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            return self._multi_head(*args, **kwargs)
        if not self.met and func in PRODUCTS:
            return self._product(func, *args)
        if self.added is not None and func in SOFTMAXES:
            args, self.added = ((args[0] + self.added).to(args[0].dtype), *args[1:]), None
        return func(*args, **kwargs)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, *rest: Any, **options: Any) -> Tensor:
        self.met = True
        dtype, queries, keys = v.dtype, q.shape[:-1], k.shape[:-1]
        options |= dict(zip(("dropout_p", "is_causal"), rest, strict=False))
        q, k = self.meet(self._heads(q), self._heads(k))
        if not self.biased:
            q, k = self._as_before(q, queries).to(dtype), self._as_before(k, keys).to(dtype)
            return FUSED(q, k, v, attn_mask, **options)
        mask = attn_mask if attn_mask is None or self.layout != "(bh)nd" else self._heads(attn_mask)
        return self._as_before(self.fused(q.to(dtype), k.to(dtype), self._heads(v), mask, **options), queries)

    def _multi_head(
        self, query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, *rest: Any, **named: Any
    ) -> Any:
        """What `nn.MultiheadAttention` calls: its own way to the scores is closed to modes."""
        weight, bias, bias_k, bias_v, zeros, dropout, out_weight, out_bias = rest[:8]
        asked = [named.get(name) for name in ("key_padding_mask", "attn_mask", "q_proj_weight")] + [bias_k, bias_v]
        if (
            not (query is key is value)
            or zeros
            or named.get("need_weights", True)
            or any(each is not None for each in asked)
        ):
            wanted = "nn.MultiheadAttention with an encoding takes one input, without masks, and need_weights=False"
            raise ValueError(f"{wanted}: leave out other arguments, or install no encoding in it")
        q, k, v = F.linear(query, weight, bias).unflatten(-1, (3, heads, -1)).permute(2, 1, 3, 0, 4).unbind(0)
        out = self._fused(q, k, v, dropout_p=dropout if named.get("training", True) else 0.0)
        return F.linear(out.permute(2, 0, 1, 3).flatten(2), out_weight, out_bias), None

    def _product(self, func: Any, a: Tensor, b: Tensor) -> Tensor:
        self.met = True
        dtype, whole, keys = a.dtype, a.shape[:-1], b.mT.shape[:-1]
        q, k = self.meet(self._heads(a), self._heads(b.mT))
        self.added = self.logits(q, k)
        return func(self._as_before(q, whole).to(dtype), self._as_before(k, keys).mT.to(dtype))

    def _heads(self, x: Tensor) -> Tensor:
        """A tensor as (B H N D), with windows in the batch."""
        if self.layout == "(bh)nd":
            return x.unflatten(0, (-1, self.heads))
        if x.ndim == 4:
            return x
        if self.layout == "bnd":
            return x.unsqueeze(1)
        return (x if self.layout == "bwhnd" else x.transpose(1, 2)).flatten(0, 1)

    def _as_before(self, x: Tensor, whole: Sequence[int]) -> Tensor:
        """A tensor (B H N D) as q or k lay, whose sizes before channels were `whole`."""
        if self.layout == "(bh)nd":
            return x.flatten(0, 1)
        if len(whole) < 4:
            return x if len(whole) == 3 else x.squeeze(1)
        return x.unflatten(0, whole[:2]) if self.layout == "bwhnd" else x.unflatten(0, whole[::2][:2]).transpose(1, 2)


class Coding(Scoring):
    """q and k are met by a code, and its bias is added to their logits."""

    def __init__(self, code: Code, heads: int, layout: str) -> None:
        super().__init__(heads, layout)
        self.code = code

    def meet(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.code.qk(q, k)

    @property
    def biased(self) -> bool:
        return self.code.biased

    def fused(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        named = {"is_causal": "causal", "dropout_p": "dropout", "scale": "scale"}
        given = {name: options[theirs] for theirs, name in named.items() if theirs in options}
        return attend(q, k, v, self.code, mask=mask, turned=True, **given)

    def logits(self, q: Tensor, k: Tensor) -> Tensor | None:
        if self.code.biased and self.layout not in ("bhnd", "bnd"):
            raise ValueError(
                "an encoding that adds to the logits needs an attention that is fused here: set fused_attn = True"
            )
        scores = self.code.scores(q, k)
        return scores if scores is None or self.layout == "bhnd" else scores.squeeze(1)


class Noting(Scoring):
    """Notes the shapes of the first q and k, and changes nothing."""

    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def meet(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if self.shapes is None:
            self.shapes = tuple(q.shape), tuple(k.shape)
        return q, k

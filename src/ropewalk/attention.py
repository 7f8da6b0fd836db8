"""Attention with any code."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from ropewalk import ops
from ropewalk.arguments import flag, floating, instance_of, number, one_of, same_device, tensor
from ropewalk.code import Code
from ropewalk.ops.attend import few

LARGEST_SCALE = 1e9  # above it scores may overflow, and below its inverse vanish, in float32

LARGE, HUGE = 1 << 26, 1 << 30
"""Entries of a dense mask from which on flex attention replaces it. HUGE is for a bias that learns: flex attention adds up
the gradient of its table entry by entry, some fifty times slower."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    code: Code | None = None,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    kernel: str = "auto",
    turned: bool = False,
) -> Tensor:
    """softmax(scale · q' k'ᵀ + scores) v, with q', k' and scores from the code.

    q is (B, H, N, D), k and v are (B, h, M, D) with h dividing H. `mask` is boolean, True where a query may look, or
    floating and added to the logits; it must broadcast to (B, H, N, M). `causal` lets query i see the keys up to i, counted
    from the end: with fewer queries than keys, the last query sees all. `scale` defaults to 1/√D.

    kernel  "sdpa" passes scores as a dense mask, (B, H, N, M). "flex" computes them inside compiled flex attention.
            "auto" takes flex on CUDA where it spares a large dense mask, of 2^26 entries or more: a code with a bias,
            no dropout, not float64; of 2^30, where the bias learns. The first such call compiles for some seconds.
            In code compiled for CUDA, "auto" takes a kernel of ropewalk, whichever PyTorch was set to use, for q, k and
            v of 16 bits, at most 128 tokens (64 without gradients) and 64 channels, as many key heads as query heads,
            and B · H of 256 or more, without bias, mask, `causal` or dropout. It is not differentiable twice. "sdpa"
            leaves the choice to PyTorch.
    turned  Whether q and k have been through the code already, as keys in a cache have.

    A query that may look at nothing gets zeros.
    """
    code = Code() if code is None else instance_of("code", code, Code)
    one_of("kernel", kernel, ("auto", "sdpa", "flex"))
    flag("causal", causal), flag("turned", turned)
    scale = None if scale is None else number("scale", scale, least=1 / LARGEST_SCALE, most=LARGEST_SCALE)
    mask = None if mask is None else tensor("mask", mask)
    dropout = number("dropout", dropout, least=0, most=1)
    dtypes = {floating(name, x).dtype for name, x in (("q", q), ("k", k), ("v", v))}
    same_device(q=q, k=k, v=v, mask=mask)
    if len(dtypes) > 1:
        raise ValueError(f"q, k and v must have the same dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    fits = q.ndim == k.ndim == 4 and v.shape[:-1] == k.shape[:-1] and (q.shape[0], q.shape[3]) == (k.shape[0], k.shape[3])
    if not fits or not k.shape[1] or q.shape[1] % k.shape[1]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(f"q must be (B, H, N, D), k (B, h, M, D) and v (B, h, M, any) with h dividing H, got {shapes}")
    mask = None if mask is None else _checked(mask, (*q.shape[:3], k.shape[2]))
    q, k = (q, k) if turned else code.qk(q, k)
    if kernel == "flex" or (kernel == "auto" and not dropout and _spares(q, k, code, mask)):
        if dropout:
            raise ValueError("flex attention has no dropout: use kernel='sdpa'")
        return _flex(q, k, v, code, mask, causal, scale)
    grouped = bool(q.shape[1] != k.shape[1])  # torch.jit.trace has tensors for sizes
    bias = code.scores(q, k)
    if bias is None and mask is None and (not causal or q.shape[2] == k.shape[2]):
        if kernel == "auto" and not (causal or dropout) and few(q, k, v):
            return ops.attend(q, k, v, q.shape[-1] ** -0.5 if scale is None else scale)
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, dropout_p=dropout, enable_gqa=grouped)
    added = _dense(q, k, bias, mask, causal)
    return F.scaled_dot_product_attention(q, k, v, added, scale=scale, dropout_p=dropout, enable_gqa=grouped)


def attend_qkv(x: Tensor, heads: int, code: Code | None = None, **options: Any) -> Tensor:
    """`attend` of one projection x (B, N, H + 2 h, D) of q with H = `heads`, k and v, whose gradient is written in one pass.

    It takes the options of `attend`. The result is (B, H, N, D).
    """
    code = Code() if code is None else instance_of("code", code, Code)
    return attend(*code.qkv(x, heads), code, turned=True, **options)


def _spares(q: Tensor, k: Tensor, code: Code, mask: Tensor | None) -> bool:
    """Whether flex attention spares a dense mask that is worth a compilation. One mask may serve a whole batch."""
    batch = q.shape[0] if code.batched or (mask is not None and mask.shape[0] > 1) else 1
    large = batch * q.shape[1] * q.shape[2] * k.shape[2] >= (HUGE if code.learning else LARGE)
    return q.is_cuda and q.dtype is not torch.float64 and large and code.sparing


def _checked(mask: Tensor, full: tuple[int, ...]) -> Tensor:
    """The mask with all four dimensions."""
    if not (mask.dtype is torch.bool or mask.is_floating_point()):
        raise ValueError(f"mask must be boolean, True where a query may look, or floating, got {mask.dtype}")
    sizes = zip(reversed(mask.shape), reversed(full), strict=False)
    if mask.ndim > 4 or any(size not in (1, whole) for size, whole in sizes):
        raise ValueError(f"mask must broadcast to (B, H, N, M) = {full}, got {tuple(mask.shape)}")
    return mask[(None,) * (4 - mask.ndim)]


def _dense(q: Tensor, k: Tensor, bias: Tensor | None, mask: Tensor | None, causal: bool) -> Tensor:
    """All that is added to the logits in one mask: boolean where nothing but visibility is asked for."""
    allowed = _lower_right(q.shape[2], k.shape[2], q.device) if causal else None
    if mask is not None and mask.dtype is torch.bool:
        allowed, mask = mask if allowed is None else mask & allowed, None
    if bias is None and mask is None:
        assert allowed is not None
        return allowed
    added = mask if bias is None else bias if mask is None else bias + mask
    assert added is not None
    added = added if allowed is None else added.masked_fill(~allowed, float("-inf"))
    return added.to(q.dtype)


def _lower_right(n: int, m: int, device: torch.device) -> Tensor:
    return torch.ones(n, m, dtype=torch.bool, device=device).tril(m - n)


def _flex(q: Tensor, k: Tensor, v: Tensor, code: Code, mask: Tensor | None, causal: bool, scale: float | None) -> Tensor:
    if not torch.compiler.is_compiling() and q.device.type == "cpu" and torch.is_grad_enabled():
        given = [x for x in (q, k, v, mask, *pytree.tree_leaves(code)) if x is not None]
        if any(x.requires_grad for x in given):
            raise ValueError("flex attention has no backward pass on CPUs: use kernel='sdpa' or torch.no_grad()")
    modify = code.score_mod(q, k)
    ahead = k.shape[2] - q.shape[2]
    seen = None if mask is None else mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])

    def score_mod(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        score = score if modify is None else modify(score, batch, head, i, j)
        if seen is not None:
            here = seen[batch, head, i, j]
            score = torch.where(here, score, float("-inf")) if seen.dtype is torch.bool else score + here
        return torch.where(j <= i + ahead, score, float("-inf")) if causal else score

    grouped = q.shape[1] != k.shape[1]
    if torch.compiler.is_compiling():
        from torch.nn.attention.flex_attention import flex_attention

        return flex_attention(q, k, v, score_mod=score_mod, scale=scale, enable_gqa=grouped)
    with torch._dynamo.config.patch(recompile_limit=256):  # each rule, mask and dtype is a graph of its own
        return _compiled_flex(q.device.type)(q, k, v, score_mod=score_mod, scale=scale, enable_gqa=grouped)


@functools.cache
def _compiled_flex(device: str) -> Callable[..., Tensor]:
    """Flex attention as one graph: broken into several, it would build the dense scores that it is to spare.

    On CPUs it is compiled for each size anew, because its kernels there go wrong where sizes change.
    """
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, fullgraph=True, dynamic=False if device == "cpu" else None)

"""q and k turned by tables."""

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from ropewalk.arguments import flag, integer, one_of, same_device, tensor
from ropewalk.functional.angles import turn, turn_
from ropewalk.ops.layout import check_sections

LAYOUTS = ("bhnd", "bnhd")


@overload
def apply_rotary(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: bool = ...,
    layout: str = ...,
    prefix: int = ...,
    sections: Sequence[int] | None = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def apply_rotary(
    q: Tensor,
    k: None,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: bool = ...,
    layout: str = ...,
    prefix: int = ...,
    sections: Sequence[int] | None = ...,
) -> tuple[Tensor, None]: ...
def apply_rotary(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: bool = False,
    layout: str = "bhnd",
    prefix: int = 0,
    sections: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """q (B, H, N, D) and k (B, h, N, D), or q alone where k is None, turned by the angles of these cosines and sines.

    cos, sin     (N, P) for all, (B, N, P) for each sample, or (B, heads, N, P) with heads that divide H and h; the B and
                 the heads of these may be 1. P is at most D / 2; channels from 2P on stay as they are.
    interleaved  Pair i is channels (2i, 2i + 1) if True, (i, i + P) if False.
    layout       "bhnd", or "bnhd" for q (B, N, H, D) and k (B, N, h, D) as flash-attn has them. Tables stay as above.
    prefix       So many leading tokens, class tokens and registers, stay as they are; tables have no rows for them.
    sections     Half-split within each axis' share: numbers of pairs that make P. Channels are cut into sections of twice so
                 many, and each is half-split by itself.

    Arithmetic is in float32 or better, and results have the dtypes of q and k. Tables may be of any floating dtype; a narrow
    one is as exact as it came, where a code with such a table is refused. All four get gradients. On CUDA it is the
    kernel of `Rotation`, which takes the angle and the length of (cos, sin): results are as exact, but not bit by bit what
    the formula gives, a pair whose cos and sin are both 0 gets no gradient, and there is no second derivative.
    """
    xs, cos, sin, parts = _checked(q, k, cos, sin, interleaved, layout, prefix, sections)
    turned = [_in_order(x, layout) for x in turn(xs, cos, sin, interleaved, parts, prefix)]
    return turned[0], None if k is None else turned[1]


def apply_rotary_(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: bool = False,
    layout: str = "bhnd",
    prefix: int = 0,
    sections: Sequence[int] | None = None,
) -> None:
    """As `apply_rotary`, where q and k lie, for inference: on CUDA without room for others. It turns both or none."""
    xs, cos, sin, parts = _checked(q, k, cos, sin, interleaved, layout, prefix, sections)
    for name, x in zip("qk", xs, strict=False):
        _check_memory(name, x)
    turn_(xs, cos, sin, interleaved, parts, prefix)


def _checked(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
    layout: str,
    prefix: int,
    sections: Sequence[int] | None,
) -> tuple[list[Tensor], Tensor, Tensor, list[int]]:
    """q and k as (B H N D), tables as (B h n P), and sections as a list, empty for none."""
    flag("interleaved", interleaved)
    one_of("layout", layout, LAYOUTS)
    given = {"q": q} if k is None else {"q": q, "k": k}
    for name, x in given.items():
        if tensor(name, x).ndim != 4 or not x.is_floating_point():
            wanted = f"{name} must be floating, ({', '.join(layout.upper())})"
            raise ValueError(f"{wanted}, got {x.dtype} {tuple(x.shape)}")
    xs = [_in_order(x, layout) for x in given.values()]
    if k is not None and (xs[0].shape[0], *xs[0].shape[2:]) != (xs[1].shape[0], *xs[1].shape[2:]):
        wanted = "q and k must have the same B, N and D; where they stand elsewhere, turn each alone, with k=None"
        raise ValueError(f"{wanted}; got {tuple(q.shape)} and {tuple(k.shape)}")
    _check_tables(xs, cos, sin, prefix)
    same_device(q=q, k=k, cos=cos, sin=sin)
    parts = [] if sections is None else check_sections(sections, cos.shape[-1], interleaved)
    return xs, _with_heads(cos), _with_heads(sin), list(parts)


def _check_tables(xs: list[Tensor], cos: Tensor, sin: Tensor, prefix: int) -> None:
    for name, table in (("cos", cos), ("sin", sin)):
        if not tensor(name, table).is_floating_point():
            hint = "; for complex numbers there is tables.from_complex" if table.is_complex() else ""
            raise ValueError(f"{name} must be floating, got {table.dtype}{hint}")
    if cos.shape != sin.shape or cos.dtype != sin.dtype:
        got = " and ".join(f"{table.dtype} {tuple(table.shape)}" for table in (cos, sin))
        raise ValueError(f"cos and sin must have the same shape and dtype, got {got}")
    batch, _, tokens, depth = xs[0].shape
    if integer("prefix", prefix, least=0) > tokens:
        raise ValueError(f"prefix must be from 0 to the {tokens} tokens, got {prefix}")
    shape, got = cos.shape, f"got {tuple(cos.shape)}"
    if cos.ndim not in (2, 3, 4):
        raise ValueError(f"cos and sin must be (N, P), (B, N, P) or (B, heads, N, P), {got}")
    if 2 * shape[-1] > depth:
        hint = "tables of full width, which name each pair twice, go through tables.from_transformers or tables.from_timm"
        raise ValueError(f"cos and sin must have a column a pair, at most D / 2 = {depth // 2}, {got}; {hint}")
    if shape[-2] + prefix != tokens:
        before = f", one for each of {tokens} but {prefix} of the prefix" if prefix else ""
        raise ValueError(f"cos and sin must have N = {tokens - prefix} rows{before}, {got}")
    if cos.ndim > 2 and shape[0] not in (1, batch):
        hint = "; tables of three dimensions are (B, N, P), those for heads have four" if cos.ndim == 3 else ""
        raise ValueError(f"cos and sin must be for a batch of {batch}, or of 1 for all, {got}{hint}")
    heads = [x.shape[1] for x in xs]
    if cos.ndim == 4 and any(own % shape[1] for own in heads):
        raise ValueError(f"heads of cos and sin must divide those of q and k, {' and '.join(map(str, heads))}, {got}")


def _check_memory(name: str, x: Tensor) -> None:
    """Refuse what cannot be written to, before anything is."""
    if any(size > 1 and step == 0 for size, step in zip(x.shape, x.stride(), strict=True)):
        wanted = f"{name} must have memory for each of its entries to be turned in place; apply_rotary turns any"
        raise ValueError(f"{wanted}; got {tuple(x.shape)} with strides {x.stride()}")
    if not torch.compiler.is_compiling() and x.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError(f"{name} was made in torch.inference_mode(), outside of which it cannot be turned in place")


def _with_heads(table: Tensor) -> Tensor:
    """(B h n P)."""
    return table[None, None] if table.ndim == 2 else table.unsqueeze(1) if table.ndim == 3 else table


def _in_order(x: Tensor, layout: str) -> Tensor:
    return x if layout == "bhnd" else x.transpose(1, 2)

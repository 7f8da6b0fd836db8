"""Functions that stand for a modelling file's `apply_rotary_pos_emb`: they take a code in the place of cosines and sines."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ropewalk.adapters.transformers.token_rows import Rows, TableLike, count_tokens, select_tokens
from ropewalk.code import Code, Rotary, Rotation, Sealed, unseal
from ropewalk.ops.rotate.reference import made, whole_halves

FEW = 1 << 16
"""Entries of hidden states that are few: to launch what turns them takes longer than to turn them."""


class Usage(NamedTuple):
    """How an attention calls a rotation function.

    name         Of the function.
    tensors      How many tensors it rotates: q and k, or one at a time.
    axis         Of the tokens in these tensors, from the end: -2 for (B H N D), -3 for (B N H D) and (N H D).
    offset       Channels before those that the encoding is given.
    interleaved  Which channels make a pair here, or None for as the encoding has it.
    prefix       Whether tokens without a position may lead, as many as there are more than positions.
    """

    name: str
    tensors: int
    axis: int = -2
    offset: int = 0
    interleaved: bool | None = None
    prefix: bool = False


class Few(TableLike):
    """Turns q and k of few tokens, (B H N D), in few calls: (cos, cos) and (-sin, sin) times gain, each (B 1 N D).

    It is no dataclass: see `ropewalk.code.sealed`.
    """

    def __init__(self, along: Tensor, across: Tensor) -> None:
        self.along, self.across = along, across

    def qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Both together, but for a compiler, which makes one kernel of each."""
        if torch.compiler.is_compiling():
            return whole_halves(q, self.along, self.across), whole_halves(k, self.along, self.across)
        both = whole_halves(torch.cat([q, k], dim=1), self.along, self.across)
        q, k = both.split_with_sizes([q.shape[1], k.shape[1]], dim=1)
        return q, k

    def to(self, device: Any = None, **options: Any) -> "Few":
        """The same on another device: what moves the inputs of layers asks for it."""
        return Few(self.along.to(device=device), self.across.to(device=device))


def lighter(code: Code, hidden: Tensor) -> Code | Few:
    """What turns as a code does, and for few tokens in less time if it can; `hidden` is (B N C)."""
    if (
        hidden.numel() > FEW
        or not isinstance(code, Rotation)
        or code.interleaved
        or code.sections
        or code.k_angle is not None
    ):
        return code
    angle, gain = code.q_angle, code.q_gain
    if code.k_gain is not gain or 2 * angle.shape[-1] != code.head_dim or angle.shape[-3] != 1 or code.q_prefix:
        return code
    return Few(*made(angle).stretched(gain).spread())


def make_rotation(usage: Usage, host: Callable[..., Any]) -> Callable[..., Any]:
    """A function for the name of a host's. With cosines and sines it does what the host's does."""

    def rotate(*args: Any, **options: Any) -> Any:
        given = [*args, *options.values()]
        codes = [each for each in given if isinstance(each, Code | Sealed | Few | Rows)]
        if not codes:
            return host(*args, **options)
        code = codes[0].code() if isinstance(codes[0], Rows) else codes[0]
        tensors = [each for each in given[: usage.tensors] if isinstance(each, Tensor)]
        whole = len(args) < usage.tensors and len(tensors) != usage.tensors
        turned = _rotate_each(usage, code, tensors, int(options.get("num_k_exclude_rope", 0)))
        if usage.tensors == 1 or whole:
            return turned[0]
        return tuple(turned) if len(turned) == 2 else (turned[0], None)

    return rotate


def _rotate_each(usage: Usage, code: Code | Sealed | Few, xs: list[Tensor], unrotated: int) -> list[Tensor]:
    """q and k, or one of them, as the host has them. The last keys may be unrotated."""
    if len(xs) == 2 and xs[0].shape[usage.axis] != xs[1].shape[usage.axis]:
        return _rotate_unequal(usage, code, xs[0], xs[1], unrotated)
    if isinstance(code, Few) and usage == Usage(usage.name, 2) and len(xs) == 2:
        return list(code.qk(*xs))
    heads_first = [_heads_first(x, usage.axis)[..., usage.offset :] for x in xs]
    turned = _rotate(code, usage, heads_first)
    whole = [
        torch.cat([_heads_first(x, usage.axis)[..., : usage.offset], y], dim=-1) if usage.offset else y
        for x, y in zip(xs, turned, strict=True)
    ]
    return [_as_it_came(y, x, usage.axis) for x, y in zip(xs, whole, strict=True)]


def _rotate(code: Code | Sealed | Few, usage: Usage, xs: list[Tensor]) -> list[Tensor]:
    if isinstance(code, Few):
        return [whole_halves(x, code.along, code.across) for x in xs]
    found = unseal(code)
    if usage.interleaved is not None and isinstance(found, Rotation):
        found = replace(found, interleaved=usage.interleaved)
    if usage.prefix and isinstance(found, Rotary):
        more = xs[0].shape[-2] - found.q_prefix - count_tokens(found)
        found = found.prefixed(q=more, k=more) if more else found
    if len(xs) == 2:
        return list(found.qk(*xs))
    (x,) = xs
    keys = found.k_heads is not None and found.k_heads != found.q_heads and x.shape[1] == found.k_heads
    return [found.k(x) if keys else found.q(x)]


def _rotate_unequal(usage: Usage, code: Code | Sealed | Few, q: Tensor, k: Tensor, unrotated: int) -> list[Tensor]:
    """Queries of fewer or more tokens than keys.

    Either keys are several groups of tokens that stand where the queries stand, some more behind them (memory of videos); or
    queries are the last of the tokens that are keys.
    """
    assert usage.axis == -2
    rest = k.narrow(-2, k.shape[-2] - unrotated, unrotated)
    k = k.narrow(-2, 0, k.shape[-2] - unrotated)
    if k.shape[-2] and k.shape[-2] % q.shape[-2] == 0 and _count(code) == q.shape[-2]:
        groups = k.unflatten(-2, (-1, q.shape[-2]))  # (B h g N D)
        (turned,) = _rotate(code, usage, [groups.flatten(1, 2)])
        turned = turned.unflatten(1, groups.shape[1:3]).flatten(2, 3)
        (q,) = _rotate(code, usage, [q])
    else:
        (turned,) = _rotate(code, usage, [k])
        (q,) = _rotate(_last(code, q.shape[-2]), usage, [q])
    return [q, torch.cat([turned, rest], dim=-2)]


def _count(code: Code | Sealed | Few) -> int:
    return code.along.shape[-2] if isinstance(code, Few) else count_tokens(cast(Rotary, unseal(code)))


def _last(code: Code | Sealed | Few, count: int) -> Code | Few:
    if isinstance(code, Few):
        return Few(code.along[..., -count:, :], code.across[..., -count:, :])
    return select_tokens(cast(Rotary, unseal(code)), slice(-count, None))


def _heads_first(x: Tensor, axis: int) -> Tensor:
    """(B H N D) of what a host has."""
    x = x if axis == -2 else x.transpose(-2, -3)
    return x[None] if x.ndim == 3 else x


def _as_it_came(x: Tensor, host: Tensor, axis: int) -> Tensor:
    x = x[0] if host.ndim == 3 else x
    return x if axis == -2 else x.transpose(-2, -3)

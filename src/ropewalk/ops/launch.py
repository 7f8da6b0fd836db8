"""What the kernels share: how work is laid out over programs, what a program gets to know, and how it is launched.

A side is q or k with its table ([B] h n …). Its programs come in the order (sample of the table, split, head of the table,
block of tokens), the last one fastest. A split is a share of the items that an entry of the table serves: the heads of its
group, times all samples if the table has none of its own.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_PLANS = 4096


class Side:
    """The work on x (B H N D) with a table of `trailing` dimensions after n, in blocks of `rows` tokens.

    Items are split until there are as many `programs` as fill a device.
    """

    def __init__(self, x: Tensor, table: Tensor, trailing: int, prefix: int, *, rows: int, programs: int) -> None:
        batch, heads, tokens, _ = x.shape
        own = table.ndim == 3 + trailing and table.shape[0] != 1
        self.samples, table_heads = table.shape[0] if own else 1, table.shape[-2 - trailing]
        group, blocks = heads // table_heads, triton.cdiv(tokens, rows)
        items = group * (1 if own else batch)
        wanted = triton.cdiv(programs, max(self.samples * table_heads * blocks, 1))
        self.splits = max(1, min(items, wanted))
        self.programs = self.samples * self.splits * table_heads * blocks if batch else 0
        self.sizes = (items, group, table_heads, tokens, prefix, blocks, self.splits)


class Plan:
    """How a kernel runs over both sides; what was compiled for it is kept here once it has run."""

    def __init__(self, sides: Sequence[Side], strides: Sequence[tuple[Any, ...]]) -> None:
        self.sides, self.strides = sides, strides
        self.first, self.grid = sides[0].programs, (sum(side.programs for side in sides), 1, 1)
        self.compiled: Any = None

    def run(self, kernel: Any, sides: Sequence[tuple[Any, ...]], constants: tuple[Any, ...], warps: int) -> None:
        """Launch. Triton finds out at every call what it has compiled, which takes longer than the turn; a plan knows."""
        arguments = (sides[0], sides[-1], self.first, *constants)
        if self.compiled is not None:
            self.compiled[self.grid](*arguments)
        elif self.grid[0]:
            self.compiled = kernel[self.grid](*arguments, num_warps=warps)


PLANS: dict[Hashable, Plan] = {}
"""Plans by all that what is compiled depends on: sizes, strides, dtypes, devices and alignments."""


def launch(
    kernel: Any,
    xs: Sequence[Tensor],
    outs: Sequence[Tensor],
    ys: Sequence[Tensor],
    tables: Sequence[Tensor],
    prefixes: Sequence[int],
    *,
    gains: Sequence[Tensor | None] | None = None,
    trailing: int,
    rows: int,
    programs: int,
    constants: tuple[Any, ...],
    warps: int = 4,
    tail: tuple[int, ...] = (),
) -> list[Tensor]:
    """Run a kernel over all sides. If outputs ys are given, the sums that tables get: (samples, splits, h, n, …, *tail)."""
    xs, tables = [dense(x) for x in xs], [dense(table, trailing) for table in tables]
    seen = [dense(y) for y in ys] or xs
    scales = tables if gains is None or gains[0] is None else [dense(gain) for gain in gains if gain is not None]
    every = [*xs, *outs, *seen, *tables, *scales]
    key = (kernel, constants, bool(ys), tuple(prefixes), *map(_print, every))
    plan = PLANS.get(key)
    if plan is None:
        made = [
            Side(x, table, trailing, prefix, rows=rows, programs=programs)
            for x, table, prefix in zip(xs, tables, prefixes, strict=True)
        ]
        strides = [
            (steps(x), steps(out), steps(y), steps(table, trailing), steps(scale, trailing))
            for x, out, y, table, scale in zip(xs, outs, seen, tables, scales, strict=True)
        ]
        if len(PLANS) >= MOST_PLANS:
            PLANS.clear()
        plan = PLANS[key] = Plan(made, strides)
    sums = [_room(side, table, trailing, tail) for side, table in zip(plan.sides, tables, strict=True)] if ys else tables
    groups = zip(xs, outs, seen, tables, scales, sums, plan.sides, plan.strides, strict=True)
    plan.run(kernel, [(*group[:6], group[6].sizes, *group[7]) for group in groups], constants, warps)
    return sums if ys else []


def _print(x: Tensor) -> tuple[Any, ...]:
    return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16


def _room(side: Side, table: Tensor, trailing: int, tail: tuple[int, ...]) -> Tensor:
    """Room for partial sums of a table's gradient; zeros where no program writes."""
    shape = (side.samples, side.splits, *table.shape[-2 - trailing :], *tail)
    return (torch.empty if side.programs else torch.zeros)(shape, dtype=torch.float32, device=table.device)


def steps(x: Tensor, trailing: int = 1) -> tuple[int, int, int]:
    """Strides of sample, head and token of ([B] h n *trailing); what all samples share does not move."""
    found = x.stride()[: x.ndim - trailing]
    return (0 if len(found) == 2 or x.shape[0] == 1 else found[0], found[-2], found[-1])


def dense(x: Tensor, trailing: int = 1) -> Tensor:
    """x itself if its last `trailing` dimensions are contiguous, or a copy."""
    if trailing == 1:
        return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()
    step = 1
    for size, stride in zip(reversed(x.shape[-trailing:]), reversed(x.stride()[-trailing:]), strict=True):
        if size > 1 and stride != step:
            return x.contiguous()
        step *= size
    return x


def power(n: int) -> int:
    """The next power of two, or 0 for 0."""
    return triton.next_power_of_2(n) if n else 0


def summed(sums: Tensor, table: Tensor, *dims: int) -> Tensor:
    """Partial sums added up in their order, shaped like the table."""
    return sums.sum((1, *dims)).reshape(table.shape).to(table.dtype)


@triton.jit
def owner(pid, blocks, heads, splits, items):
    """What a program owns: block of tokens, head, sample, row of partial sums, and its items from first to last."""
    block, rest = pid % blocks, pid // blocks
    head, row = rest % heads, rest // heads
    share = tl.cdiv(items, splits)
    first = (row % splits) * share
    return block, head.to(tl.int64), (row // splits).to(tl.int64), row.to(tl.int64), first, tl.minimum(first + share, items)


@triton.jit
def after(b, g, group):
    """The item after sample b and member g of a group: no division, which would cost more than the turn."""
    g += 1
    return tl.where(g == group, b + 1, b), tl.where(g == group, 0, g)


@triton.jit
def copy_rest(source, target, from_rows, to_rows, mask, first: tl.constexpr, last: tl.constexpr, width: tl.constexpr):
    """Copy the channels from `first` to `last`, which no group has."""
    channels = first + tl.arange(0, width)
    inside = mask[:, None] & (channels < last)[None, :]
    rest = tl.load(source + from_rows[:, None] + channels[None, :], mask=inside, other=0.0)
    tl.store(target + to_rows[:, None] + channels[None, :], rest, mask=inside)

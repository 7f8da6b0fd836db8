"""What the kernels share: how work is laid out over programs, what a program gets to know, and how it is launched.

A side is q or k with its table ([B] h n …); both may have the same. Its programs come in the order (sample of the table,
split, head of the table, block of tokens), the last one fastest. A split is a share of the items that an entry of the table
serves: the heads of its group, times all samples if the table has none of its own.
"""

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ropewalk.ops.fused import room

MOST_PLANS = 4096


class Settings(NamedTuple):
    """How a kernel is compiled and laid out: blocks of `rows` tokens, and `programs` that fill a device."""

    constants: tuple[Any, ...]
    rows: int
    programs: int
    warps: int = 4
    stages: int = 3


class Side:
    """The work on x (B H N D) with a table of `trailing` dimensions after n, in blocks of tokens.

    Items are split until there are as many programs as fill a device.
    """

    def __init__(self, x: Tensor, table: Tensor, trailing: int, prefix: int, settings: Settings) -> None:
        batch, heads, tokens, _ = x.shape
        own = table.ndim == 3 + trailing and table.shape[0] != 1
        self.samples, self.heads = table.shape[0] if own else 1, table.shape[-2 - trailing]
        self.group, self.tokens, self.prefix, self.empty = heads // self.heads, tokens, prefix, not batch
        self.blocks, self.items = triton.cdiv(tokens, settings.rows), self.group * (1 if own else batch)
        wanted = triton.cdiv(settings.programs, max(self.samples * self.heads * self.blocks, 1))
        self.splits = max(1, min(self.items, wanted))

    def sizes(self) -> tuple[int, ...]:
        return self.items, self.group, self.heads, self.tokens, self.prefix, self.blocks, self.splits

    def programs(self) -> int:
        return 0 if self.empty else self.samples * self.splits * self.heads * self.blocks


class Plan:
    """How a kernel runs over its sides, q, k and perhaps v; what was compiled for it is kept here once it has run.

    Triton finds out at every call what it has compiled, which takes longer than the turn; a plan knows.
    """

    def __init__(self, settings: Settings, sides: Sequence[Side], strides: Sequence[tuple[Any, ...]], shared: int) -> None:
        self.settings = settings
        if shared:  # as many splits, so that the sums of one table are one tensor
            for side in sides:
                side.splits = max(other.splits for other in sides)
        self.layout = [(side.sizes(), *steps) for side, steps in zip(sides, strides, strict=True)]
        ends = list(itertools.accumulate(side.programs() for side in sides))
        self.ends, self.grid = (ends[0], ends[min(1, len(sides) - 1)]), (ends[-1], 1, 1)
        self.lead = [(shared or 1, side.samples, side.splits) for side in sides]
        self.full = all(side.programs() for side in sides)
        self.again: Any = None

    def run(self, kernel: Any, tensors: Sequence[tuple[Tensor, ...]]) -> None:
        """Launch over the tensors of each side."""
        (constants, _, _, warps, stages), last = self.settings, len(tensors) - 1
        if self.again is not None:
            given = [(*[x.data_ptr() for x in side], *rest) for side, rest in zip(tensors, self.layout, strict=True)]
            self.again(given[0], given[min(1, last)], given[last], *self.ends, *constants)
        elif self.grid[0]:
            whole = [(*side, *rest) for side, rest in zip(tensors, self.layout, strict=True)]
            sides = (whole[0], whole[min(1, last)], whole[last])
            compiled = kernel[self.grid](*sides, *self.ends, *constants, num_warps=warps, num_stages=stages)
            self.again = None if compiled is None else compiled[self.grid]

    def room(self, tables: Sequence[Tensor], trailing: int) -> list[Tensor]:
        """Room for partial sums of each table's gradient; zeros where no program writes."""
        make = torch.empty if self.full else torch.zeros
        shapes = [(*lead, *table.shape[-2 - trailing :]) for lead, table in zip(self.lead, tables, strict=False)]
        return [make(shape, dtype=torch.float32, device=tables[0].device) for shape in shapes]


PLANS: dict[Hashable, Plan] = {}
"""Plans by all that what is compiled depends on: sizes, strides, dtypes, devices and alignments."""


def launch(
    kernel: Any,
    settings: Callable[..., Settings],
    xs: Sequence[Tensor],
    outs: Sequence[Tensor],
    ys: Sequence[Tensor],
    tables: Sequence[Tensor],
    prefixes: Sequence[int],
    *flags: Hashable,
    gains: Sequence[Tensor] = (),
    trailing: int = 1,
) -> list[Tensor]:
    """Run a kernel over all sides, with a table for each or one for all; xs beyond the prefixes are copied.

    If outputs ys are given, the result is what tables get: for each, sums of (sides, samples, splits, h, n, …), of which the
    first and the third are still to be added up.
    """
    xs, ys, tables = [dense(x) for x in xs], [dense(y) for y in ys], [dense(table, trailing) for table in tables]
    gains = [dense(gain) for gain in gains]
    key = (kernel, flags, len(xs), len(ys), len(tables), *prefixes, *map(_print, (*xs, *outs, *ys, *tables, *gains)))
    each, copied = tables * (len(prefixes) // len(tables)), len(xs) - len(prefixes)
    seen, scales = ys or xs[: len(prefixes)], gains or each
    groups = [xs, outs, [*seen, *xs[len(xs) - copied :]], each + each[-1:] * copied, [*scales, *scales[-1:] * copied]]
    plan = PLANS.get(key)
    if plan is None:
        if len(PLANS) >= MOST_PLANS:
            PLANS.clear()
        chosen = settings(xs, tables, bool(ys), bool(gains), bool(copied), *flags)
        still = [x.shape[2] for x in xs[len(prefixes) :]]
        shared = len(prefixes) if len(tables) < len(prefixes) else 0
        plan = _planned(chosen, groups, [*prefixes, *still], trailing, shared)
    sums = plan.room(tables, trailing) if ys else []
    parts = [part for whole in sums for part in whole] or each
    tensors = list(zip(*groups, parts + parts[-1:] * copied, strict=True))
    if xs[0].is_cuda and xs[0].device.index != torch.cuda.current_device():
        with torch.cuda.device(xs[0].device):
            plan.run(kernel, tensors)
    else:
        plan.run(kernel, tensors)
    PLANS[key] = plan
    return sums


def _planned(settings: Settings, groups: Sequence[Any], prefixes: Sequence[int], trailing: int, shared: int) -> Plan:
    sides = [Side(x, t, trailing, prefix, settings) for x, t, prefix in zip(groups[0], groups[3], prefixes, strict=True)]
    after_n = (1, 1, 1, trailing, trailing)
    strides = [tuple(steps(*pair) for pair in zip(side, after_n, strict=True)) for side in zip(*groups, strict=True)]
    return Plan(settings, sides, strides, shared)


def _print(x: Tensor) -> tuple[Any, ...]:
    return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16


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


def every_way(run: Callable[..., list[Tensor]]) -> tuple[Callable[..., list[Tensor]], ...]:
    """The four functions of an op whose kernel is launched by `run(xs, outs, ys, tables, *options, back)`: turned xs; xs
    turned where they lie; gradients of xs, and of tables if ys are given; and the same of q, k and v as one projection's.
    """

    def fused(xs: list[Tensor], tables: list[Tensor], *options: Any) -> list[Tensor]:
        outs = [room(x) for x in xs]
        run(xs, outs, [], tables, *options, back=False)
        return outs

    def into(xs: list[Tensor], tables: list[Tensor], *options: Any) -> list[Tensor]:
        run(xs, xs, [], tables, *options, back=False)
        return xs

    def back(dys: list[Tensor], ys: list[Tensor], tables: list[Tensor], *options: Any) -> list[Tensor]:
        dxs = [room(dy) for dy in dys]
        return dxs + summed(run(dys, dxs, ys, tables, *options, back=True), tables)

    def join(dys: list[Tensor], ys: list[Tensor], tables: list[Tensor], *options: Any) -> list[Tensor]:
        dx, parts = joined(dys)
        return [dx, *summed(run(dys, parts, ys, tables, *options, back=True), tables)]

    return fused, into, back, join


def joined(parts: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Room for q, k and v (B H N D) in one tensor (B N H+h+h D), and where each of them lies in it."""
    batch, _, tokens, depth = parts[0].shape
    heads = [part.shape[1] for part in parts]
    whole = parts[0].new_empty(batch, tokens, sum(heads), depth)
    return whole, [part.transpose(1, 2) for part in whole.split_with_sizes(heads, 2)]


def summed(sums: Sequence[Tensor], tables: Sequence[Tensor]) -> list[Tensor]:
    """Partial sums added up in their order, shaped like their tables."""
    return [each.sum((0, 2)).reshape(table.shape).to(table.dtype) for each, table in zip(sums, tables, strict=False)]


@triton.jit
def owner(pid, blocks, heads, splits, items):
    """What a program owns: block of tokens, head, sample, row of partial sums, and its items from first to last."""
    block, rest = pid % blocks, pid // blocks
    head, row = rest % heads, rest // heads
    share = tl.cdiv(items, splits)
    first = (row % splits) * share
    return block, head.to(tl.int64), (row // splits).to(tl.int64), row.to(tl.int64), first, tl.minimum(first + share, items)


@triton.jit
def within_a_turn(t):
    """Angles in float32; where one of them is large, less whole turns: its sine and cosine would take their slow road."""
    t = t.to(tl.float32)
    if tl.max(tl.abs(t)) > 65536.0:
        turns = t.to(tl.float64) * 0.15915494309189535
        t = ((turns - tl.floor(turns + 0.5)) * 6.283185307179586).to(tl.float32)
    return t


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

"""What the kernels share: how work is laid out over programs, what a program gets to know, and how it is launched.

A side is q or k with its table ([B] h n …); both may have the same. Its programs come in the order (sample of the table,
split, head of the table, block of tokens), the last one fastest. A split is a share of the items that an entry of the table
serves: the heads of its group, times all samples if the table has none of its own.
"""

import contextlib
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
        self.samples, self.heads = table.shape[0] if own else 1, table.shape[-2 - trailing]
        self.group, self.tokens, self.prefix = heads // self.heads, tokens, prefix
        self.blocks, self.items = triton.cdiv(tokens, rows), self.group * (1 if own else batch)
        self.splits = max(1, min(self.items, triton.cdiv(programs, max(self.samples * self.heads * self.blocks, 1))))
        self.empty = not batch

    def sizes(self) -> tuple[int, ...]:
        return self.items, self.group, self.heads, self.tokens, self.prefix, self.blocks, self.splits

    def programs(self) -> int:
        return 0 if self.empty else self.samples * self.splits * self.heads * self.blocks


class Plan:
    """How a kernel runs over both sides; what was compiled for it is kept here once it has run.

    Triton finds out at every call what it has compiled, and asks the driver about every pointer: that takes longer than the
    turn. A plan knows the first, and hands over pointers as numbers.
    """

    def __init__(self, sides: Sequence[Side], strides: Sequence[tuple[Any, ...]]) -> None:
        self.sides = sides
        self.layout = [(side.sizes(), *steps) for side, steps in zip(sides, strides, strict=True)]
        self.first, self.grid = sides[0].programs(), (sum(side.programs() for side in sides), 1, 1)
        self.again: Any = None

    def run(
        self, kernel: Any, tensors: Sequence[tuple[Tensor, ...]], constants: tuple[Any, ...], how: dict[str, int]
    ) -> None:
        """Launch over the tensors of each side."""
        if self.again is not None:
            numbers = [
                (*[tensor.data_ptr() for tensor in side], *rest) for side, rest in zip(tensors, self.layout, strict=True)
            ]
            self.again(numbers[0], numbers[-1], self.first, *constants)
        elif self.grid[0]:
            given = [(*side, *rest) for side, rest in zip(tensors, self.layout, strict=True)]
            compiled = kernel[self.grid](given[0], given[-1], self.first, *constants, **how)
            self.again = None if compiled is None else compiled[self.grid]


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
    gains: Sequence[Tensor] = (),
    trailing: int,
    rows: int,
    programs: int,
    constants: tuple[Any, ...],
    warps: int = 4,
    stages: int = 3,
) -> list[Tensor]:
    """Run a kernel over all sides, with a table for each or one for all. If outputs ys are given, the result is what tables
    get: for each, sums of (sides, samples, splits, h, n, …), of which the first and the third are still to be added up.
    """
    xs, tables = [dense(x) for x in xs], [dense(table, trailing) for table in tables]
    each = tables * (len(xs) // len(tables))
    seen, scales = [dense(y) for y in ys] or xs, [dense(gain) for gain in gains] or each
    key = (kernel, constants, bool(ys), *prefixes, *map(_print, (*xs, *outs, *seen, *tables, *scales)))
    plan = PLANS.get(key)
    if plan is None:
        plan = _planned(key, xs, outs, seen, each, scales, prefixes, trailing, rows, programs, shared=len(tables) < len(xs))
    sums = _room(plan.sides, tables, trailing) if ys else []
    parts = [part for all_sides in sums for part in all_sides] or each
    tensors = list(zip(xs, outs, seen, each, scales, parts, strict=True))
    with on(xs[0]):
        plan.run(kernel, tensors, constants, {"num_warps": warps, "num_stages": stages})
    return sums


def _planned(key, xs, outs, seen, tables, scales, prefixes, trailing, rows, programs, *, shared):
    """A plan for new shapes. Sides with one table have as many splits, so that their sums are one tensor."""
    options = {"rows": rows, "programs": programs}
    sides = [Side(x, t, trailing, prefix, **options) for x, t, prefix in zip(xs, tables, prefixes, strict=True)]
    if shared:
        for side in sides:
            side.splits = max(other.splits for other in sides)
    groups = zip(xs, outs, seen, tables, scales, strict=True)
    strides = [
        (steps(x), steps(out), steps(y), steps(t, trailing), steps(scale, trailing)) for x, out, y, t, scale in groups
    ]
    if len(PLANS) >= MOST_PLANS:
        PLANS.clear()
    PLANS[key] = Plan(sides, strides)
    return PLANS[key]


def _print(x: Tensor) -> tuple[Any, ...]:
    return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16


def on(x: Tensor) -> Any:
    """A context in which x's device is the current one."""
    return torch.cuda.device(x.device) if x.is_cuda and x.device.index != torch.cuda.current_device() else NOTHING


NOTHING = contextlib.nullcontext()


def _room(sides: Sequence[Side], tables: Sequence[Tensor], trailing: int) -> list[Tensor]:
    """Room for partial sums of each table's gradient; zeros where no program writes."""
    shared = len(sides) // len(tables)
    found = []
    for side, table in zip(sides, tables, strict=False):
        shape = (shared, side.samples, side.splits, *table.shape[-2 - trailing :])
        found.append((torch.empty if side.programs() else torch.zeros)(shape, dtype=torch.float32, device=table.device))
    return found


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

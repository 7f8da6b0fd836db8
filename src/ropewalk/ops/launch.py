"""What the kernels share: how work is laid out over programs, and what a program gets to know.

A side is q or k with its table ([B] h n …). Its programs come in the order (sample of the table, split, head of the table,
block of tokens), the last one fastest. A split is a share of the items that an entry of the table serves: the heads of its
group, times all samples if the table has none of its own.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


class Side:
    """The work on x (B H N D) with a table of `trailing` dimensions after n, in blocks of `rows` tokens.

    Items are split until there are as many `programs` as fill a device.
    """

    def __init__(self, x: Tensor, table: Tensor, trailing: int, prefix: int, *, rows: int, programs: int) -> None:
        batch, heads, self.tokens, _ = x.shape
        own = table.ndim == 3 + trailing and table.shape[0] != 1
        self.samples, self.heads = table.shape[0] if own else 1, table.shape[-2 - trailing]
        self.group, self.blocks = heads // self.heads, triton.cdiv(self.tokens, rows)
        self.items = self.group * (1 if own else batch)
        wanted = triton.cdiv(programs, max(self.samples * self.heads * self.blocks, 1))
        self.splits = max(1, min(self.items, wanted))
        self.prefix = prefix
        self.programs = self.samples * self.splits * self.heads * self.blocks if batch else 0

    def sizes(self) -> tuple[int, ...]:
        """What `owner` and its callers unpack."""
        return self.items, self.group, self.heads, self.tokens, self.prefix, self.blocks, self.splits


def steps(x: Tensor, trailing: int = 1) -> tuple[int, int, int]:
    """Strides of sample, head and token of ([B] h n *trailing); what all samples share does not move."""
    found = x.stride()[: x.ndim - trailing]
    return (0 if len(found) == 2 or x.shape[0] == 1 else found[0], found[-2], found[-1])


def dense(x: Tensor, trailing: int = 1) -> Tensor:
    """x itself if its last `trailing` dimensions are contiguous, or a copy."""
    step = 1
    for size, stride in zip(reversed(x.shape[-trailing:]), reversed(x.stride()[-trailing:]), strict=True):
        if size > 1 and stride != step:
            return x.contiguous()
        step *= size
    return x


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


def power(n: int) -> int:
    """The next power of two, or 0 for 0."""
    return triton.next_power_of_2(n) if n else 0


def summed(sums: Tensor) -> Tensor:
    """Partial sums (samples, splits, h, n, …) added up in their order."""
    return sums.sum(1) if sums.shape[1] > 1 else sums.squeeze(1)


def partial(side: Side, table: Tensor, trailing: int) -> Tensor:
    """Room for partial sums of a table's gradient."""
    shape = (side.samples, side.splits, *table.shape[-2 - trailing :])
    return (torch.empty if side.programs else torch.zeros)(shape, dtype=torch.float32, device=table.device)

"""Turn blocks of channels by a matrix."""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.ops.turn.reference import turn_reference
from ropewalk.ops.turning import Turning


def suits(x: Tensor, matrices: list[Tensor], prefixes: Sequence[int]) -> bool:
    """Whether the head is narrow enough for the device, and q and k have blocks of one size that it has room for."""
    groups, size = matrices[0].shape[-3:-1]
    narrow = x.shape[-1] <= 64 or (x.shape[-1] <= 128 and shared_memory(x.device) >= 96 << 10)
    return narrow and groups * size <= x.shape[-1] and matrices[0].shape[-3:] == matrices[-1].shape[-3:]


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Bytes that a block of threads may ask for; where there is no such device, but one is pretended, plenty."""
    if not torch.cuda.is_available():
        return 1 << 20
    properties = torch.cuda.get_device_properties(device)
    return getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)


_turn = Turning("turn", 3, "SymInt[] prefixes", turn_reference, suits)


def turn(xs: Sequence[Tensor], matrices: Sequence[Tensor], *, prefixes: Sequence[int]) -> list[Tensor]:
    """Multiply the blocks of each x (B H N D) by its matrices ([B] h n G b b).

    Block g is channels gb to gb + b - 1. Channels from Gb on and the first `prefix` tokens stay as they are. The kernel is
    not differentiable twice; an entry of x that is not finite may spread over its head.
    """
    return _turn(xs, matrices, list(prefixes))


def turn_(xs: Sequence[Tensor], matrices: Sequence[Tensor], *, prefixes: Sequence[int]) -> None:
    """As `turn`, where xs lie, for inference."""
    _turn.in_place(xs, matrices, list(prefixes))


def turn_qkv(x: Tensor, heads: int, matrices: Sequence[Tensor], *, prefixes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Turn q (B H N D) and k (B h N D) of a projection x (B N H+h+h D), H = `heads`; v comes with them."""
    return _turn.qkv(x, heads, matrices, list(prefixes))

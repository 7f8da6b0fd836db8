"""Turn blocks of channels by a matrix."""

from collections.abc import Sequence

from torch import Tensor

from ropewalk.ops.turn.reference import turn_reference
from ropewalk.ops.turning import Turning

WIDEST = 128
"""The widest head whose matrix fits into the memory of a multiprocessor."""


def suits(x: Tensor, matrices: list[Tensor], prefixes: Sequence[int]) -> bool:
    """Whether the head is narrow enough, and q and k have blocks of one size."""
    return x.shape[-1] <= WIDEST and matrices[0].shape[-3:] == matrices[-1].shape[-3:]


_turn = Turning("turn", "SymInt[] prefixes", turn_reference, suits)


def turn(xs: Sequence[Tensor], matrices: Sequence[Tensor], *, prefixes: Sequence[int]) -> list[Tensor]:
    """Multiply the blocks of each x (B H N D) by its matrices ([B] h n G b b).

    Block g is channels gb to gb + b - 1. Channels from Gb on and the first `prefix` tokens stay as they are. The kernel's
    gradients hold for orthogonal matrices.
    """
    return _turn(xs, matrices, list(prefixes))


def turn_(xs: Sequence[Tensor], matrices: Sequence[Tensor], *, prefixes: Sequence[int]) -> None:
    """As `turn`, where xs lie, for inference."""
    _turn.in_place(xs, matrices, list(prefixes))


def turn_qkv(x: Tensor, heads: int, matrices: Sequence[Tensor], *, prefixes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Turn q (B H N D) and k (B h N D) of a projection x (B N H+h+h D), H = `heads`; v comes with them."""
    return _turn.qkv(x, heads, matrices, list(prefixes))

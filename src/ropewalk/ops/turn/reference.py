"""Turns of blocks in plain PyTorch: small blocks number by number, larger ones as one matrix product each.

The matrices are read once for a whole batch. With gradients, on a CPU, blocks up to 4 take half to nine tenths of the time
of a matrix product, and blocks of 8 more than twice as much.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.ops.layout import exactly, per_group, turn_part, widened

SMALL = 4


def turn_reference(xs: list[Tensor], matrices: list[Tensor], prefixes: list[int]) -> list[Tensor]:
    return [turn_one(*args) for args in zip(xs, matrices, prefixes, strict=True)]


def turn_one(x: Tensor, matrix: Tensor, prefix: int) -> Tensor:
    heads, blocks, size = matrix.shape[-5], matrix.shape[-3], matrix.shape[-1]
    product = sums if size <= SMALL else products
    matrix = widened(matrix)

    def turn(x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, matrix.dtype)
        return product(matrix.to(dtype), x.to(dtype).unflatten(-1, (blocks, size))).flatten(-2)

    return turn_part(x, prefix, heads, blocks * size, turn)


def sums(matrix: Tensor, x: Tensor) -> Tensor:
    """([B] h n G b b) times (B h g n G b), from b² products of whole tensors."""
    matrix, parts = per_group(matrix, 3), x.unbind(-1)
    return torch.stack([_dot(row.unbind(-1), parts) for row in matrix.unbind(-2)], dim=-1)


def _dot(row: Sequence[Tensor], parts: Sequence[Tensor]) -> Tensor:
    total = row[0] * parts[0]
    for entry, part in zip(row[1:], parts[1:], strict=True):
        total = total + entry * part
    return total


def products(matrix: Tensor, x: Tensor) -> Tensor:
    """The same as one matrix product a block."""
    letters = "hnzij,bhgnzj->bhgnzi" if matrix.ndim == 5 else "bhnzij,bhgnzj->bhgnzi"
    with exactly(x):
        return torch.einsum(letters, matrix, x)

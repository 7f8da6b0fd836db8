"""Turns of blocks in plain PyTorch: one small matrix product a block, the matrices read once for a whole batch."""

import torch
from torch import Tensor

from ropewalk.ops.layout import exactly, turn_part, widened


def turn_reference(xs: list[Tensor], matrices: list[Tensor], prefixes: list[int]) -> list[Tensor]:
    return [turn_one(*args) for args in zip(xs, matrices, prefixes, strict=True)]


def turn_one(x: Tensor, matrix: Tensor, prefix: int) -> Tensor:
    heads, blocks, size = matrix.shape[-5], matrix.shape[-3], matrix.shape[-1]
    product = "hnzij,bhgnzj->bhgnzi" if matrix.ndim == 5 else "bhnzij,bhgnzj->bhgnzi"
    matrix = widened(matrix)

    def turn(x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, matrix.dtype)
        with exactly(x):
            return torch.einsum(product, matrix.to(dtype), x.to(dtype).unflatten(-1, (blocks, size))).flatten(-2)

    return turn_part(x, prefix, heads, blocks * size, turn)

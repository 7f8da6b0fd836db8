"""Rotations of triplets in plain PyTorch: with turns by t0 in (a, c), then t1 in (b, c), then t2 in (a, b),

    c0 c2 + s0 s1 s2    -c1 s2    -s0 c2 + c0 s1 s2
M = c0 s2 - s0 s1 c2     c1 c2    -s0 s2 - c0 s1 c2
    s0 c1                s1        c0 c1
"""

import torch
from torch import Tensor

from ropewalk.ops.layout import widened

PLANES = ((0, 2), (1, 2), (0, 1))
"""The plane of the triplet (a, b, c) that each axis turns: (a, c), (b, c), (a, b)."""


def sphere_reference(angle: Tensor) -> Tensor:
    one, zero = torch.ones_like(widened(angle)[..., 0]), torch.zeros_like(widened(angle)[..., 0])
    rows = [[one if i == j else zero for j in range(3)] for i in range(3)]
    for axis, (i, j) in enumerate(PLANES[: angle.shape[-1]]):
        cos, sin = widened(angle)[..., axis].cos(), widened(angle)[..., axis].sin()
        above = [cos * a - sin * b for a, b in zip(rows[i], rows[j], strict=True)]
        below = [sin * a + cos * b for a, b in zip(rows[i], rows[j], strict=True)]
        rows[i], rows[j] = above, below
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)

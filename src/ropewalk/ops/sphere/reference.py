"""Turns of triplets in plain PyTorch: one plane rotation an axis, in the order of the axes."""

import torch
from torch import Tensor

from ropewalk.ops.layout import per_group, turn_part, widened

PLANES = ((0, 2), (1, 2), (0, 1))
"""The plane of the triplet (a, b, c) that each axis turns: (a, c), (b, c), (a, b)."""


def sphere_reference(xs: list[Tensor], angles: list[Tensor], prefixes: list[int]) -> list[Tensor]:
    return [sphere_one(*args) for args in zip(xs, angles, prefixes, strict=True)]


def sphere_one(x: Tensor, angle: Tensor, prefix: int) -> Tensor:
    angle = widened(angle)
    cos, sin = per_group(angle.cos(), 2), per_group(angle.sin(), 2)

    def turn(x: Tensor) -> Tensor:
        triplet = list(x.to(torch.promote_types(x.dtype, angle.dtype)).unflatten(-1, (-1, 3)).unbind(-1))
        for axis, (i, j) in enumerate(PLANES[: angle.shape[-1]]):
            c, s = cos[..., axis], sin[..., axis]
            triplet[i], triplet[j] = triplet[i] * c - triplet[j] * s, triplet[i] * s + triplet[j] * c
        return torch.stack(triplet, dim=-1).flatten(-2)

    return turn_part(x, prefix, angle.shape[-4], 3 * angle.shape[-2], turn)

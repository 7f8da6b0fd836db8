"""Rotation of pairs in plain PyTorch: (a, b) becomes (a cos t - b sin t, a sin t + b cos t)."""

import torch
from torch import Tensor

from ropewalk.ops.layout import per_group, turn_part, widened


def rotate_reference(
    xs: list[Tensor], angles: list[Tensor], gains: list[Tensor | None], interleaved: bool, prefixes: list[int]
) -> list[Tensor]:
    return [rotate_one(*args, interleaved) for args in zip(xs, angles, gains, prefixes, strict=True)]


def rotate_one(x: Tensor, angle: Tensor, gain: Tensor | None, prefix: int, interleaved: bool) -> Tensor:
    angle = widened(angle)
    cos, sin = angle.cos(), angle.sin()
    if gain is not None:
        cos, sin = cos * gain, sin * gain
    cos, sin = per_group(cos, 1), per_group(sin, 1)

    def turn(x: Tensor) -> Tensor:
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else x.chunk(2, dim=-1)
        turned = (a * cos - b * sin, a * sin + b * cos)
        return torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)

    return turn_part(x, prefix, angle.shape[-3], 2 * angle.shape[-1], turn)

"""Rotation of pairs in plain PyTorch: (a, b) becomes (a cos t - b sin t, a sin t + b cos t)."""

import torch
from torch import Tensor

from ropewalk.ops.layout import per_group, turn_part, widened


def rotate_reference(
    xs: list[Tensor], angles: list[Tensor], gains: list[Tensor | None], interleaved: bool, prefixes: list[int]
) -> list[Tensor]:
    first = circle(angles[0])
    circles = [first if angle is angles[0] else circle(angle) for angle in angles]
    return [rotate_one(*args, interleaved) for args in zip(xs, circles, gains, prefixes, strict=True)]


def circle(angle: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine, (B h 1 n P)."""
    angle = per_group(widened(angle), 1)
    return angle.cos(), angle.sin()


def rotate_one(x: Tensor, point: tuple[Tensor, Tensor], gain: Tensor | None, prefix: int, interleaved: bool) -> Tensor:
    cos, sin = point if gain is None else (part * per_group(gain, 1) for part in point)

    def turn(x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, cos.dtype))
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else x.chunk(2, dim=-1)
        turned = (a * cos - b * sin, a * sin + b * cos)
        return torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)

    return turn_part(x, prefix, cos.shape[1], 2 * cos.shape[-1], turn)

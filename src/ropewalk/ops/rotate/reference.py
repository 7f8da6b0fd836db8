"""Rotation of pairs in plain PyTorch: (a, b) becomes (a cos t - b sin t, a sin t + b cos t).

Two neighbouring channels are a complex number, which eager PyTorch multiplies in one pass; compilers and exporters, which
know little of complex numbers, see the same in real ones.
"""

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
    turn = halves if not interleaved else complex_pairs if plain(x) else pairs

    def wide(x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, cos.dtype)
        return turn(x.to(dtype), cos.to(dtype), sin.to(dtype), x.dtype)

    return turn_part(x, prefix, cos.shape[1], 2 * cos.shape[-1], wide)


def plain(x: Tensor) -> bool:
    """Whether this is eager PyTorch on a device with complex numbers."""
    return type(x) in (Tensor, torch.nn.Parameter) and x.device.type in ("cpu", "cuda") and not torch.compiler.is_compiling()


def halves(x: Tensor, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([torch.addcmul(a * cos, b, -sin).to(dtype), torch.addcmul(a * sin, b, cos).to(dtype)], dim=-1)


def pairs(x: Tensor, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2).to(dtype)


def complex_pairs(x: Tensor, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
    x = x.unflatten(-1, (-1, 2))
    even = x.stride(-1) == 1 and not x.storage_offset() % 2 and not any(stride % 2 for stride in x.stride()[:-1])
    turned = torch.view_as_complex(x if even else x.clone(memory_format=torch.contiguous_format)) * torch.complex(cos, sin)
    return torch.view_as_real(turned).flatten(-2).to(dtype)

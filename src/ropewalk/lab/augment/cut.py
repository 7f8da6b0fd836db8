"""Flips and crops: pixels that only move, so that every bit of them stays."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.lab.augment.samples import along, per_sample, take


def flipped(images: Tensor, u: Tensor) -> Tensor:
    """Images (B C …) mirrored along the last axis where u (B,) is below a half."""
    return torch.where(per_sample(u < 0.5, images), images.flip(-1), images)


def cropped(images: Tensor, u: Tensor, size: Sequence[int], pad: int, padding: str) -> Tensor:
    """`size` cut out of padded images (B C *sides), at a place uniform among all that fit; u (B, axes)."""
    for axis, side in enumerate(size):
        n = images.shape[2 + axis]
        if n + 2 * pad < side or (padding == "reflect" and pad >= n):
            wanted = f"a crop to {side} with {padding} padding of {pad}"
            raise ValueError(f"{wanted} needs a longer side, got images {tuple(images.shape)}")
        start = (u[:, axis] * (n + 2 * pad - side + 1)).long() - pad
        source = start[:, None] + torch.arange(side, device=u.device)
        images = _padded(images, 2 + axis, source, padding)
    return images


def _padded(images: Tensor, dim: int, source: Tensor, padding: str) -> Tensor:
    """Places of an axis that may lie outside it."""
    last = images.shape[dim] - 1
    if padding == "reflect":
        return take(images, dim, last - (last - source.abs()).abs())
    inside = (source >= 0) & (source <= last)
    return take(images, dim, source.clamp(0, last)) * along(inside, images, dim)

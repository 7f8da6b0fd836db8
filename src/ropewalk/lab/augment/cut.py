"""Flips, quarter turns and crops: pixels that only move, so that every bit of them stays."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.lab.augment.samples import along, per_sample, take


def flipped(images: Tensor, u: Tensor, axes: Sequence[int] = (-1,)) -> Tensor:
    """Images (B C *sides) mirrored along each axis by a coin of its own: the first binary digits of u (B,), 0 mirrors."""
    for dim in _dims(images, axes):
        images = torch.where(per_sample(u < 0.5, images), images.flip(dim), images)
        u = (2 * u).frac()
    return images


def turned(images: Tensor, u: Tensor, upright: int = -1) -> Tensor:
    """Images (B C H W), or volumes (B C D H W) about one axis, after 0 to 3 quarter turns, as many as u (B,) has quarters.

    A turn takes the first of the two other axes to the second. Their sides must agree.
    """
    plane = [2, 3] if images.ndim == 4 else sorted({2, 3, 4} - {*_dims(images, [upright])})
    if len({images.shape[dim] for dim in plane}) > 1:
        raise ValueError(f"a quarter turn needs equal sides across its axis, got images {tuple(images.shape)}")
    quarters, result = per_sample((4 * u).long(), images), images
    for count in (1, 2, 3):
        result = torch.where(quarters == count, images.rot90(count, plane), result)
    return result


def _dims(images: Tensor, axes: Sequence[int]) -> list[int]:
    """The dimensions of axes of images (B C *sides), which may be counted from the last one, as -1, -2, …"""
    return [2 + axis % (images.ndim - 2) for axis in axes]


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

"""Images as tensors of bytes, (N C *size): how arrays are read, resized and summed up."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.encoding import positives

RESIZE_CHUNK = 1024
"""Images that are worked on at once, where each takes memory beyond its own."""


def infer_layout(shape: Sequence[int], what: str) -> tuple[int, tuple[int, ...]]:
    """Channels and sides of images in an array of this shape, the last axis being channels if it is 1 or 3.

    (N H W) has one channel; (N H W 1) and (N H W 3) are images; any other (N D H W) is volumes of one channel, and
    (N D H W 1) and (N D H W 3) are volumes. So volumes of width 1 or 3 need an axis of channels.
    """
    axes, trailing = len(shape) - 1, shape[-1] in (1, 3) if shape else False
    plain, with_channels = axes == 2 or (axes == 3 and not trailing), axes in (3, 4) and trailing
    if not (plain or with_channels) or 0 in shape:
        wanted = "(N, H, W), (N, H, W, 3), (N, D, H, W) or (N, D, H, W, 1), with no side 0"
        raise ValueError(f"{what} must be {wanted}, got {tuple(shape)}")
    return (1, tuple(shape[1:])) if plain else (shape[-1], tuple(shape[1:-1]))


def move_channels_first(array: np.ndarray, what: str) -> Tensor:
    """The images of an array, (N C *sides)."""
    channels, sides = infer_layout(array.shape, what)
    return torch.from_numpy(array.reshape(-1, *sides, channels)).movedim(-1, 1).contiguous()


def resolve_sides(size: int | Sequence[int], axes: int) -> tuple[int, ...]:
    """Sides as they were asked for, one number being all."""
    sides = positives("size", tuple(size) if isinstance(size, Sequence) else (size,) * axes)
    if len(sides) != axes:
        raise ValueError(f"size must be one number or {axes}, got {sides}")
    return sides


def resize_images(images: Tensor, size: tuple[int, ...]) -> Tensor:
    """Images of another size, bilinear and antialiased; volumes as `resampled` says."""
    if images.shape[2:] == size:
        return images
    out = images.new_empty(*images.shape[:2], *size)
    for i in range(0, len(images), RESIZE_CHUNK):
        chunk = images[i : i + RESIZE_CHUNK].float()
        chunk = (
            F.interpolate(chunk, size, mode="bilinear", antialias=True) if len(size) == 2 else resample_volumes(chunk, size)
        )
        out[i : i + RESIZE_CHUNK] = chunk.round_().clamp_(0, 255)
    return out


def resample_volumes(volumes: Tensor, size: tuple[int, ...]) -> Tensor:
    """Float volumes (N C D H W) of another size: means of what cells cover along axes that shrink, trilinear along others.

    So an occupancy becomes the share of a cell that is filled. Where a side is no multiple of the new one, a cell counts all
    voxels that it touches.
    """
    fewer = tuple(min(old, new) for old, new in zip(volumes.shape[2:], size, strict=True))
    volumes = volumes if fewer == volumes.shape[2:] else F.interpolate(volumes, fewer, mode="area")
    return volumes if fewer == size else F.interpolate(volumes, size, mode="trilinear")


def channel_moments(some: Iterable[Tensor], channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel of images (N C *size), in [0, 1]. Sums are of integers, hence exact."""
    count, first, second = 0, [0] * channels, [0] * channels
    for images in some:
        rows = images.transpose(0, 1).flatten(1)
        count += rows.shape[1]
        first = [a + b for a, b in zip(first, rows.sum(1, dtype=torch.int64).tolist(), strict=True)]
        squares = rows.int().square().sum(1, dtype=torch.int64).tolist()
        second = [a + b for a, b in zip(second, squares, strict=True)]
    mean = tuple(a / count / 255 for a in first)
    return mean, tuple((count * b - a * a) ** 0.5 / count / 255 for a, b in zip(first, second, strict=True))

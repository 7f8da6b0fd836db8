"""Resized crops: a box of random area and shape of each sample, made as large as all others.

Resizing is a linear map of each axis. Output i of n looks at the box at c = (i + 1/2) s, where s is the box's side over n,
through a triangle that reaches max(1, s) pixels either way and is normalised inside the box. This is bilinear interpolation
where the box grows, and an antialiased one where it shrinks: what torchvision calls `antialias=True`. Each output is a
sum of as many pixels as the largest box needs, two if the image is not larger than n.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.lab.augment.samples import along, take

TRIES = 10
"""How many boxes are drawn before one is made that fits."""


class Box(NamedTuple):
    """A rectangle of every sample, each (B,), in whole pixels."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


def boxes(u: Tensor, sides: Sequence[int], scale: Sequence[float], ratio: Sequence[float]) -> Box:
    """Boxes of an area uniform in `scale` of the image's and of a width over height log-uniform in `ratio`.

    u is (B, 2 · TRIES + 2). The first of TRIES boxes that fits is taken, at a place uniform among all; where none does,
    the largest box in the middle whose shape is allowed.
    """
    rows, columns = sides
    area = rows * columns * (scale[0] + u[:, :TRIES].double() * (scale[1] - scale[0]))
    shape = (math.log(ratio[0]) + u[:, TRIES:-2].double() * math.log(ratio[1] / ratio[0])).exp()
    height, width = (area / shape).sqrt().round(), (area * shape).sqrt().round()
    misfit = (height > rows) | (width > columns) | (height < 1) | (width < 1)
    tries = misfit.long().cumprod(1).sum(1, keepdim=True)  # that failed before the first that fits
    largest = _largest(rows, columns, ratio)
    height, width = (
        torch.cat([drawn, drawn.new_full((len(u), 1), side)], 1).gather(1, tries)[:, 0].long()
        for drawn, side in zip((height, width), largest, strict=True)
    )
    none = tries[:, 0] == TRIES
    top = torch.where(none, (rows - height) // 2, (u[:, -2] * (rows - height + 1)).long())
    left = torch.where(none, (columns - width) // 2, (u[:, -1] * (columns - width + 1)).long())
    return Box(top, left, height, width)


def _largest(rows: int, columns: int, ratio: Sequence[float]) -> tuple[int, int]:
    """Height and width of the largest box in an image whose width over height is allowed."""
    if columns / rows < ratio[0]:
        return max(1, round(columns / ratio[0])), columns
    if columns / rows > ratio[1]:
        return rows, max(1, round(rows * ratio[1]))
    return rows, columns


def resized(images: Tensor, box: Box, size: Sequence[int]) -> Tensor:
    """Each sample's box of float images (B C H W), resized."""
    images = _resized(images, 2, box.top, box.height, size[0])
    return _resized(images, 3, box.left, box.width, size[1])


def _resized(images: Tensor, dim: int, start: Tensor, length: Tensor, n: int) -> Tensor:
    """One axis: n places through triangles, one tap after another, so that the order of the sum is always the same."""
    step = (length.double() * (1 / n)).float()[:, None, None]
    reach = step.clamp(min=1)
    centre = (torch.arange(n, device=step.device) + 0.5)[:, None] * step
    taps = torch.arange(math.ceil(2 * max(1, images.shape[dim] / n)), device=step.device)
    place = (centre - reach + 0.5).floor().clamp(min=0) + taps  # (B, n, taps)
    weight = (1 - (place + 0.5 - centre).abs() / reach).clamp(min=0) * (place < length[:, None, None])
    weight = weight / weight.sum(2, keepdim=True)
    source = (place.long() + start[:, None, None]).clamp(max=images.shape[dim] - 1)
    parts = zip(source.unbind(2), weight.unbind(2), strict=True)
    terms = [take(images, dim, there) * along(share, images, dim) for there, share in parts]
    return sum(terms[1:], terms[0]).clamp(max=1)  # weights sum to 1 but for a bit

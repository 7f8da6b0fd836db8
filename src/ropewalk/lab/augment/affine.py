"""Shears, moves and turns as affine maps, one a sample, and one interpolation for all of them.

A map (2, 3) says where a pixel of the new image comes from in the old one: p -> L p + t, in the coordinates x (to the
right) and y (down) that go from -1 to 1 across the image. The image that is warped by A and then by B is the old one at
A(B p).
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.lab.augment.samples import per_sample


class Moves(NamedTuple):
    """What a sample does, each (B,), at most one of them not zero.

    Shears are seen from the upper left corner. Right and down are in pixels. The turn is -1, 0 or 1 times an angle.
    """

    shear_x: Tensor
    shear_y: Tensor
    right: Tensor
    down: Tensor
    turn: Tensor


def affine(moves: Moves, degrees: float, rows: int, columns: int) -> Tensor:
    """Maps (B, 2, 3) of moves, where a turn is by so many degrees against the clock.

    No angle is a tensor: cosines are Python's, and so the same on every device.
    """
    shear_x, shear_y, right, down, turn = moves
    tall, sine, versine = rows / columns, math.sin(math.radians(degrees)), 1 - math.cos(math.radians(degrees))
    x, y, cosine = shear_x * tall, shear_y * (1 / tall), 1 - turn.abs() * versine
    across = [cosine, x - turn * (sine * tall), x - right * (2 / columns)]
    downward = [y + turn * (sine / tall), cosine, y - down * (2 / rows)]
    return torch.stack(across + downward, dim=1).view(-1, 2, 3)


def then(first: Tensor, second: Tensor) -> Tensor:
    """The maps of images that are warped by the first and then by the second."""
    turned = (first[:, :, :2, None] * second[:, None]).sum(2)
    return turned + F.pad(first[:, :, 2:], (2, 0))


def warp(images: Tensor, maps: Tensor, moving: Tensor) -> Tensor:
    """Float images (B C H W) after their maps, bilinear, black beyond the edges; who is not moving (B,) keeps every bit."""
    rows, columns = images.shape[-2:]
    y = ((torch.arange(rows, device=images.device) + 0.5) * (2 / rows) - 1)[:, None]
    x = (torch.arange(columns, device=images.device) + 0.5) * (2 / columns) - 1
    a, b, c = maps[..., None, None].unbind(2)
    grid = (a * x + b * y + c).movedim(1, -1)
    moved = F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return torch.where(per_sample(moving, images), moved, images)

"""Flips, rotations, crops, affine maps and resizing of a batch, with parameters of its own for each sample."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


def broadcast_per_sample(values: Tensor, images: Tensor) -> Tensor:
    """Values (B,) so that they broadcast over images (B …)."""
    return values.view(-1, *[1] * (images.ndim - 1))


def broadcast_along_axis(values: Tensor, images: Tensor, dim: int) -> Tensor:
    """Values (B, n) so that they broadcast over images (B …) whose dimension `dim` has length n."""
    shape = [1] * images.ndim
    shape[0], shape[dim] = values.shape
    return values.view(shape)


def gather_along_axis(images: Tensor, dim: int, source: Tensor) -> Tensor:
    """Images whose place j along a dimension is the old place source[b, j], source (B, n)."""
    shape = list(images.shape)
    shape[dim] = source.shape[1]
    return images.gather(dim, broadcast_along_axis(source, images, dim).expand(shape))


# Affine maps: shears, translations and rotations, and one interpolation for all of them. A map (2, 3) says where a pixel of
# the new image comes from in the old one: p -> L p + t, in the coordinates x (to the right) and y (down) that go from -1 to
# 1 across the image. An image that is warped by A and then by B is the old one at A(B p).
class AffineMoves(NamedTuple):
    """What a sample does, each (B,), at most one of them not zero.

    Shears are seen from the upper left corner. Right and down are in pixels. The turn is -1, 0 or 1 times an angle.
    """

    shear_x: Tensor
    shear_y: Tensor
    right: Tensor
    down: Tensor
    turn: Tensor


def build_affine_maps(moves: AffineMoves, degrees: float, rows: int, columns: int) -> Tensor:
    """Maps (B, 2, 3) of moves, where a turn is by so many degrees against the clock.

    No angle is a tensor: cosines are Python's, and so the same on every device.
    """
    shear_x, shear_y, right, down, turn = moves
    tall, sine, versine = rows / columns, math.sin(math.radians(degrees)), 1 - math.cos(math.radians(degrees))
    x, y, cosine = shear_x * tall, shear_y * (1 / tall), 1 - turn.abs() * versine
    across = [cosine, x - turn * (sine * tall), x - right * (2 / columns)]
    downward = [y + turn * (sine / tall), cosine, y - down * (2 / rows)]
    return torch.stack(across + downward, dim=1).view(-1, 2, 3)


def compose_affine_maps(first: Tensor, second: Tensor) -> Tensor:
    """The maps of images that are warped by the first and then by the second."""
    turned = (first[:, :, :2, None] * second[:, None]).sum(2)
    return turned + F.pad(first[:, :, 2:], (2, 0))


def warp_images(images: Tensor, maps: Tensor, moving: Tensor) -> Tensor:
    """Float images (B C H W) after their maps, bilinear, black beyond the edges; who is not moving (B,) keeps every bit."""
    rows, columns = images.shape[-2:]
    y = ((torch.arange(rows, device=images.device) + 0.5) * (2 / rows) - 1)[:, None]
    x = (torch.arange(columns, device=images.device) + 0.5) * (2 / columns) - 1
    a, b, c = maps[..., None, None].unbind(2)
    grid = (a * x + b * y + c).movedim(1, -1)
    moved = F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return torch.where(broadcast_per_sample(moving, images), moved, images)


# Flips, quarter turns and padded crops: pixels move without interpolation, so that every bit of them stays.
def flip_images(images: Tensor, u: Tensor, axes: Sequence[int] = (-1,)) -> Tensor:
    """Images (B C *sides) mirrored along each axis by a coin of its own: the first binary digits of u (B,), 0 mirrors."""
    for dim in _tensor_dims(images, axes):
        images = torch.where(broadcast_per_sample(u < 0.5, images), images.flip(dim), images)
        u = (2 * u).frac()
    return images


def rotate_quarter_turns(images: Tensor, u: Tensor, upright: int = -1) -> Tensor:
    """Images (B C H W), or volumes (B C D H W) about one axis, after 0 to 3 quarter turns, as many as u (B,) has quarters.

    A turn takes the first of the two other axes to the second. Their sides must agree.
    """
    plane = [2, 3] if images.ndim == 4 else sorted({2, 3, 4} - {*_tensor_dims(images, [upright])})
    if len({images.shape[dim] for dim in plane}) > 1:
        raise ValueError(f"a quarter turn needs equal sides across its axis, got images {tuple(images.shape)}")
    quarters, result = broadcast_per_sample((4 * u).long(), images), images
    # All rotations are computed and one is kept for each sample: reading from the device which it drew would wait for it.
    for count in (1, 2, 3):
        result = torch.where(quarters == count, images.rot90(count, plane), result)
    return result


def _tensor_dims(images: Tensor, axes: Sequence[int]) -> list[int]:
    """The dimensions of axes of images (B C *sides), which may be counted from the last one, as -1, -2, …"""
    return [2 + axis % (images.ndim - 2) for axis in axes]


def crop_padded(images: Tensor, u: Tensor, size: Sequence[int], pad: int, padding: str) -> Tensor:
    """`size` cut out of padded images (B C *sides), at a place uniform among all that fit; u (B, axes)."""
    for axis, side in enumerate(size):
        n = images.shape[2 + axis]
        if n + 2 * pad < side or (padding == "reflect" and pad >= n):
            wanted = f"a crop to {side} with {padding} padding of {pad}"
            raise ValueError(f"{wanted} needs a longer side, got images {tuple(images.shape)}")
        start = (u[:, axis] * (n + 2 * pad - side + 1)).long() - pad
        source = start[:, None] + torch.arange(side, device=u.device)
        images = _padded_indices(images, 2 + axis, source, padding)
    return images


def _padded_indices(images: Tensor, dim: int, source: Tensor, padding: str) -> Tensor:
    """Places of an axis that may lie outside it."""
    last = images.shape[dim] - 1
    if padding == "reflect":
        return gather_along_axis(images, dim, last - (last - source.abs()).abs())
    inside = (source >= 0) & (source <= last)
    return gather_along_axis(images, dim, source.clamp(0, last)) * broadcast_along_axis(inside, images, dim)


# Resized crops: a box of random area and shape of each sample, resized to the size that all have.

# How many boxes are drawn before the largest that fits is used.
CROP_TRIES = 10


class BatchBox(NamedTuple):
    """A rectangle of every sample, each (B,), in whole pixels."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


def draw_crop_boxes(u: Tensor, sides: Sequence[int], scale: Sequence[float], ratio: Sequence[float]) -> BatchBox:
    """Boxes of an area uniform in `scale` of the image's and of a width over height log-uniform in `ratio`.

    u is (B, 2 · TRIES + 2). The first of TRIES boxes that fits is taken, at a place uniform among all; where none does,
    the largest box in the middle whose shape is allowed.
    """
    rows, columns = sides
    area = rows * columns * (scale[0] + u[:, :CROP_TRIES].double() * (scale[1] - scale[0]))
    shape = (math.log(ratio[0]) + u[:, CROP_TRIES:-2].double() * math.log(ratio[1] / ratio[0])).exp()
    height, width = (area / shape).sqrt().round(), (area * shape).sqrt().round()
    misfit = (height > rows) | (width > columns) | (height < 1) | (width < 1)
    tries = misfit.long().cumprod(1).sum(1, keepdim=True)  # that failed before the first that fits
    largest = _largest_crop(rows, columns, ratio)
    height, width = (
        torch.cat([drawn, drawn.new_full((len(u), 1), side)], 1).gather(1, tries)[:, 0].long()
        for drawn, side in zip((height, width), largest, strict=True)
    )
    none = tries[:, 0] == CROP_TRIES
    top = torch.where(none, (rows - height) // 2, (u[:, -2] * (rows - height + 1)).long())
    left = torch.where(none, (columns - width) // 2, (u[:, -1] * (columns - width + 1)).long())
    return BatchBox(top, left, height, width)


def _largest_crop(rows: int, columns: int, ratio: Sequence[float]) -> tuple[int, int]:
    """Height and width of the largest box in an image whose width over height is allowed."""
    if columns / rows < ratio[0]:
        return max(1, round(columns / ratio[0])), columns
    if columns / rows > ratio[1]:
        return rows, max(1, round(rows * ratio[1]))
    return rows, columns


def resize_boxes(images: Tensor, box: BatchBox, size: Sequence[int]) -> Tensor:
    """Each sample's box of float images (B C H W), resized."""
    images = _resize_axis(images, 2, box.top, box.height, size[0])
    return _resize_axis(images, 3, box.left, box.width, size[1])


def _resize_axis(images: Tensor, dim: int, start: Tensor, length: Tensor, n: int) -> Tensor:
    """One axis of boxes: n outputs, each the sum of as many pixels as the largest box needs."""
    # Output i looks at the box at c = (i + 1/2) s, where s is the side of the box over n, through a triangle that reaches
    # max(1, s) pixels either way and is normalized inside the box. This is bilinear interpolation where the box grows, and
    # an antialiased one where it shrinks: what torchvision calls `antialias=True`.
    step = (length.double() * (1 / n)).float()[:, None, None]
    reach = step.clamp(min=1)
    centre = (torch.arange(n, device=step.device) + 0.5)[:, None] * step
    taps = torch.arange(math.ceil(2 * max(1, images.shape[dim] / n)), device=step.device)
    place = (centre - reach + 0.5).floor().clamp(min=0) + taps  # (B, n, taps)
    weight = (1 - (place + 0.5 - centre).abs() / reach).clamp(min=0) * (place < length[:, None, None])
    weight = weight / weight.sum(2, keepdim=True)
    source = (place.long() + start[:, None, None]).clamp(max=images.shape[dim] - 1)
    parts = zip(source.unbind(2), weight.unbind(2), strict=True)
    # One tap after another, so that the order of the sum is always the same, bit for bit.
    terms = [gather_along_axis(images, dim, there) * broadcast_along_axis(share, images, dim) for there, share in parts]
    return sum(terms[1:], terms[0]).clamp(max=1)  # weights sum to 1 but for a bit

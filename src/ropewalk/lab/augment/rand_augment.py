"""RandAugment: for each sample some operations, drawn from fourteen with replacement, all of one magnitude.

The magnitude counts 30 levels, of which the last is an operation's strongest: shear 0.3, translation by 150/331 of a side,
cut to whole pixels, rotation by 30 degrees, blend factors 1 ± 0.9, 4 of 8 bits, and a threshold of 0. Signs are drawn. The
list and its scale are torchvision's.

All samples go through every operation on colours, and each keeps the one that it drew. What moves pixels is gathered
into one affine map a sample and done last, by one interpolation. So a sample that draws a rotation and then a colour has
its colour changed first, and no black corners enter into its histogram.
"""

from functools import reduce

import torch
from torch import Tensor

from ropewalk.lab.augment.color import (
    autocontrast_images,
    blend_images,
    convert_to_gray,
    equalize_images,
    mean_color,
    posterize_images,
    smooth_images,
    solarize_images,
)
from ropewalk.lab.augment.geometry import (
    AffineMoves,
    broadcast_per_sample,
    build_affine_maps,
    compose_affine_maps,
    warp_images,
)

RAND_AUGMENT_OPERATIONS = (
    "identity",
    "shear-x",
    "shear-y",
    "translate-x",
    "translate-y",
    "rotate",
    "brightness",
    "colour",
    "contrast",
    "sharpness",
    "posterise",
    "solarise",
    "autocontrast",
    "equalise",
)
_MOVE_SLICE, _BLEND_SLICE = slice(1, 6), slice(6, 10)
MAGNITUDE_LEVELS = 30


def apply_rand_augment(images: Tensor, u: Tensor, magnitude: float) -> Tensor:
    """Float images (B C H W) in [0, 1] after n operations; u (B, 2n), for each a number that chooses and one that signs."""
    level, sides = magnitude / MAGNITUDE_LEVELS, images.shape[-2:]
    maps, moving = [], []
    for number, coin in zip(u[:, ::2].unbind(1), u[:, 1::2].unbind(1), strict=True):
        chosen, sign = choose_operations(number), 1 - 2 * (coin < 0.5).float()
        images = apply_color_operations(images, chosen, sign, level)
        maps.append(build_affine_maps(draw_affine_moves(chosen, sign, level, *sides), 30 * level, *sides))
        moving.append(chosen[:, _MOVE_SLICE].any(1))
    return warp_images(images, reduce(compose_affine_maps, maps), torch.stack(moving).any(0)) if maps else images


def choose_operations(u: Tensor) -> Tensor:
    """Which of the choices each sample has, (B, 14), by numbers (B,)."""
    return (u * len(RAND_AUGMENT_OPERATIONS)).long()[:, None] == torch.arange(len(RAND_AUGMENT_OPERATIONS), device=u.device)


def apply_color_operations(images: Tensor, chosen: Tensor, sign: Tensor, level: float) -> Tensor:
    """The colours of each sample after what it chose (B, 14), at a level in [0, 1]."""
    has = dict(
        zip(RAND_AUGMENT_OPERATIONS, (broadcast_per_sample(column, images) for column in chosen.unbind(1)), strict=True)
    )
    plain = convert_to_gray(images)
    poorer = torch.where(has["colour"], plain, 0.0)
    poorer = torch.where(has["contrast"], mean_color(plain), poorer)
    poorer = torch.where(has["sharpness"], smooth_images(images), poorer)
    blended = broadcast_per_sample(chosen[:, _BLEND_SLICE].any(1), images)
    result = torch.where(blended, blend_images(images, poorer, 1 + sign * (0.9 * level)), images)
    result = torch.where(has["posterise"], posterize_images(images, 8 - round(4 * level)), result)
    result = torch.where(has["solarise"], solarize_images(images, 1 - level), result)
    result = torch.where(has["autocontrast"], autocontrast_images(images), result)
    return torch.where(has["equalise"], equalize_images(images), result)


def draw_affine_moves(chosen: Tensor, sign: Tensor, level: float, rows: int, columns: int) -> AffineMoves:
    """How far each sample moves by what it chose (B, 14), at a level in [0, 1]."""
    far = 150 / 331 * level
    shear_x, shear_y, right, down, turn = (chosen[:, _MOVE_SLICE] * sign[:, None]).unbind(1)
    shear = 0.3 * level
    return AffineMoves(shear_x * shear, shear_y * shear, right * int(far * columns), down * int(far * rows), turn)

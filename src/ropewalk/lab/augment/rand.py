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

from ropewalk.lab.augment.affine import Moves, affine, then, warp
from ropewalk.lab.augment.colour import autocontrast, blend, equalise, grey, mean, posterise, smooth, solarise
from ropewalk.lab.augment.samples import per_sample

CHOICES = (
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
MOVES, BLENDS = slice(1, 6), slice(6, 10)
LEVELS = 30


def rand_augment(images: Tensor, u: Tensor, magnitude: float) -> Tensor:
    """Float images (B C H W) in [0, 1] after n operations; u (B, 2n), for each a number that chooses and one that signs."""
    level, sides = magnitude / LEVELS, images.shape[-2:]
    maps, moving = [], []
    for number, coin in zip(u[:, ::2].unbind(1), u[:, 1::2].unbind(1), strict=True):
        chosen, sign = drawn(number), 1 - 2 * (coin < 0.5).float()
        images = recolour(images, chosen, sign, level)
        maps.append(affine(moved(chosen, sign, level, *sides), 30 * level, *sides))
        moving.append(chosen[:, MOVES].any(1))
    return warp(images, reduce(then, maps), torch.stack(moving).any(0)) if maps else images


def drawn(u: Tensor) -> Tensor:
    """Which of the choices each sample has, (B, 14), by numbers (B,)."""
    return (u * len(CHOICES)).long()[:, None] == torch.arange(len(CHOICES), device=u.device)


def recolour(images: Tensor, chosen: Tensor, sign: Tensor, level: float) -> Tensor:
    """The colours of each sample after what it chose (B, 14), at a level in [0, 1]."""
    has = dict(zip(CHOICES, (per_sample(column, images) for column in chosen.unbind(1)), strict=True))
    plain = grey(images)
    poorer = torch.where(has["colour"], plain, 0.0)
    poorer = torch.where(has["contrast"], mean(plain), poorer)
    poorer = torch.where(has["sharpness"], smooth(images), poorer)
    blended = per_sample(chosen[:, BLENDS].any(1), images)
    result = torch.where(blended, blend(images, poorer, 1 + sign * (0.9 * level)), images)
    result = torch.where(has["posterise"], posterise(images, 8 - round(4 * level)), result)
    result = torch.where(has["solarise"], solarise(images, 1 - level), result)
    result = torch.where(has["autocontrast"], autocontrast(images), result)
    return torch.where(has["equalise"], equalise(images), result)


def moved(chosen: Tensor, sign: Tensor, level: float, rows: int, columns: int) -> Moves:
    """How far each sample moves by what it chose (B, 14), at a level in [0, 1]."""
    far = 150 / 331 * level
    shear_x, shear_y, right, down, turn = (chosen[:, MOVES] * sign[:, None]).unbind(1)
    shear = 0.3 * level
    return Moves(shear_x * shear, shear_y * shear, right * int(far * columns), down * int(far * rows), turn)

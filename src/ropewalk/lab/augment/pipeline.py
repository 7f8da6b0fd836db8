"""Operations by name, applied to a batch in the order of `AUGMENT_OPERATIONS`, then mixup or CutMix.

RandAugment applies to each sample some operations of one magnitude, drawn from fourteen with replacement. The magnitude
counts 30 levels, of which the last is an operation's strongest: shear 0.3, translation by 150/331 of a side, cut to whole
pixels, rotation by 30 degrees, blend factors 1 ± 0.9, 4 of 8 bits, and a threshold of 0. Signs are drawn. The list and its
scale are torchvision's.

Mixup and CutMix mix neighbors: samples 2i and 2i + 1 of a batch, and their targets.

    x_a <- w x_a + (1 - w) x_b,   x_b <- w x_b + (1 - w) x_a,   targets alike with the mean of w

Mixup: w is one number, λ from Beta(α, α). CutMix: w is 0 in a box and 1 outside; the box has a share 1 - λ of the image
before it is cut off at the edges, and targets count its pixels after that. The random numbers are those of sample 2i.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce

import torch
from torch import Tensor

from ropewalk.arguments import not_negative, one_of, positives
from ropewalk.lab.augment.color import (
    apply_three_augment,
    autocontrast_images,
    blend_images,
    convert_to_gray,
    equalize_images,
    jitter_color,
    mean_color,
    posterize_images,
    smooth_images,
    solarize_images,
)
from ropewalk.lab.augment.geometry import (
    CROP_TRIES,
    AffineMoves,
    broadcast_along_axis,
    broadcast_per_sample,
    build_affine_maps,
    compose_affine_maps,
    crop_padded,
    draw_crop_boxes,
    flip_images,
    resize_boxes,
    rotate_quarter_turns,
    warp_images,
)
from ropewalk.lab.hash_random import draw_beta, draw_uniform
from ropewalk.positions import readable
from ropewalk.validation import check_choice

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
    # Every sample goes through every color operation and keeps the one it drew: a loop over samples would launch far more
    # kernels. Affine operations are composed into one map per sample and interpolated once, after all color operations, so
    # that black corners never enter a histogram.
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


# A coin, two numbers for λ, and the center of a box of up to three axes.
MIX_DRAWS = 6
# In the order in which they are applied.
AUGMENT_OPERATIONS = ("crop", "resized-crop", "flip", "turn", "rand-augment", "three-augment", "jitter")
VOLUME_OPERATIONS = ("crop", "flip", "turn")
COLOR_OPERATIONS = ("rand-augment", "three-augment", "jitter")


def resolve_operations(names: Sequence[str]) -> tuple[str, ...]:
    """The names as in `AUGMENT_OPERATIONS`; `-` and `_` are equivalent. Each may occur once, and only one crop."""
    if isinstance(names, str):
        raise ValueError(f"operations must be a sequence of names, such as ({names!r},), got the string {names!r}")
    plain = tuple(_resolve_operation(name) for name in names)
    if len(set(plain)) < len(plain):
        raise ValueError(f"each operation must be named once, got {plain}")
    if {"crop", "resized-crop"} <= set(plain):
        raise ValueError("only one of 'crop' and 'resized-crop' is possible, got both")
    return plain


def _resolve_operation(name: str) -> str:
    return check_choice("augmentation", name, AUGMENT_OPERATIONS, key=name.lower().replace("_", "-"))


def check_nonnegative_int(name: str, value: int) -> int:
    """`value` if it is a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a whole number not below zero, got {value!r}")
    return value


def check_positive_range(name: str, ends: Sequence[float], most: float) -> None:
    """Whether two ends are above zero, in order, and not above the most."""
    if not isinstance(ends, tuple) or len(ends) != 2 or not 0 < ends[0] <= ends[1] <= most:
        raise ValueError(f"{name} must be two numbers in order, above 0 and at most {most}, got {ends!r}")


def check_augment_batch(images: Tensor, labels: Tensor, numbers: Tensor, classes: int) -> None:
    """Types and shapes; values only where looking at them does not wait for a device."""
    if images.dtype != torch.uint8 or images.ndim not in (4, 5):
        raise ValueError(f"images must be uint8 (B C H W) or (B C D H W), got {images.dtype} {tuple(images.shape)}")
    if labels.dtype != torch.int64 or labels.shape != images.shape[:1] or len(numbers) != len(images):
        got = f"{labels.dtype} {tuple(labels.shape)} and {len(numbers)}"
        raise ValueError(f"labels must be int64 ({len(images)},) like the images, and indices as many, got {got}")
    if readable(labels) and len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"labels must be from 0 to {classes - 1}, got {int(labels.min())} to {int(labels.max())}")


def check_image_axes(name: str, given: Sequence[int], axes: int) -> None:
    """Whether axes of images that have so many are named once each, counted from the first or, below zero, from the last."""
    there = all(-axes <= axis < axes for axis in given)
    if not there or len({axis % axes for axis in given}) < len(given):
        raise ValueError(
            f"{name} must be of the {axes} axes of the images, from {-axes} to {axes - 1}, once each, got {given}"
        )


def check_operations_fit(operations: Sequence[str], shape: Sequence[int], size: Sequence[int] | None) -> None:
    """Whether the operations and the size suit images (B C …)."""
    if size is not None and len(size) != len(shape) - 2:
        raise ValueError(f"size must have one number for each of the {len(shape) - 2} axes of the images, got {size}")
    for name in operations:
        if len(shape) == 5 and name not in VOLUME_OPERATIONS:
            has = f"volumes have {', '.join(VOLUME_OPERATIONS)}, mixup and cutmix"
            raise ValueError(f"{name!r} is for images of two axes ({has}), got {tuple(shape)}")
        if name in COLOR_OPERATIONS and shape[1] not in (1, 3):
            raise ValueError(f"{name!r} is for images of 1 or 3 channels, got {tuple(shape)}")


# The random stream of augmentation, different from the streams of other draws for the same samples.
AUGMENT_STREAM = 0xA06
# Columns of draws, in this order. They may neither move nor change in number: the same settings would augment differently
# than in old runs. The draws of rand-augment, whose number is a setting, follow, and then one of turn.
DRAWS_PER_OPERATION = {
    "crop": 3,
    "resized-crop": 2 * CROP_TRIES + 2,
    "flip": 1,
    "three-augment": 2,
    "jitter": 3,
    "mix": MIX_DRAWS,
}


@dataclass(frozen=True)
class AugmentPipeline:
    """What is done to the images of a training set. `dataclasses.asdict` of it is JSON, from which it is made again.

    operations  Names, in any order.
    size        Of the images that come out, by default of those that go in. Only the crops change it.
    pad         Of crop: pixels on every side; `padding` is "zero" or "reflect".
    mirrored    Of flip: the axes that are mirrored, each for half of the samples; -1 is the last.
    upright     Of turn: the axis of volumes that turns leave alone; an image is turned whole.
    scale       Of resized-crop: the box's area over the image's; `ratio` is the box's width over its height.
    count       Of rand-augment: how many operations; `magnitude` is theirs, from 0 to 30.
    brightness  Of jitter: factors lie in 1 ± this number; `contrast` and `saturation` alike.
    mixup       The α of λ for mixup; `cutmix` is that for cutmix; 0 is without. With both, a coin decides for each pair.
    """

    operations: tuple[str, ...] = ()
    seed: int = 0
    size: tuple[int, ...] | None = None
    pad: int = 4
    padding: str = "zero"
    mirrored: tuple[int, ...] = (-1,)
    upright: int = -1
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    count: int = 2
    magnitude: float = 9.0
    brightness: float = 0.3
    contrast: float = 0.3
    saturation: float = 0.3
    mixup: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):  # JSON knows lists alone
            value = getattr(self, field.name)
            object.__setattr__(self, field.name, tuple(value) if isinstance(value, list) else value)
        object.__setattr__(self, "operations", resolve_operations(self.operations))
        if self.size is not None:
            positives("size", self.size)
        for axis in (*self.mirrored, self.upright):
            if isinstance(axis, bool) or not isinstance(axis, int):
                raise ValueError(f"mirrored and upright must be numbers of axes, got {self.mirrored} and {self.upright}")
        check_nonnegative_int("pad", self.pad)
        check_nonnegative_int("count", self.count)
        check_nonnegative_int("seed", self.seed)
        one_of("padding", self.padding, ("zero", "reflect"))
        check_positive_range("scale", self.scale, 1)
        check_positive_range("ratio", self.ratio, math.inf)
        for name in ("magnitude", "brightness", "contrast", "saturation", "mixup", "cutmix"):
            not_negative(name, getattr(self, name))
        if self.magnitude > MAGNITUDE_LEVELS:
            raise ValueError(f"magnitude must be from 0 to {MAGNITUDE_LEVELS}, got {self.magnitude}")

    def __call__(self, images: Tensor, labels: Tensor, index: Tensor, *, epoch: int, classes: int) -> tuple[Tensor, Tensor]:
        """Float images (B C *size) in [0, 1] and targets (B classes) of uint8 images, labels (B,) and indices (B,)."""
        return self.apply(images, labels, self.draw(index, epoch), classes=classes)

    def draw(self, index: Tensor, epoch: int) -> Tensor:
        """All numbers of the samples, (B, n): in each column those of one purpose, whatever the operations are."""
        return draw_uniform(self.seed, epoch, index, AUGMENT_STREAM, sum(self._columns.values()))

    @property
    def _columns(self) -> dict[str, int]:
        return DRAWS_PER_OPERATION | {"rand-augment": 2 * self.count, "turn": 1}

    def apply(self, images: Tensor, labels: Tensor, numbers: Tensor, *, classes: int) -> tuple[Tensor, Tensor]:
        """What a call does once its numbers are drawn: tensors to tensors, of which `torch.compile` makes one graph.

        Draw outside of it: a whole call may be compiled too, but falls into several graphs.
        """
        check_augment_batch(images, labels, numbers, classes)
        check_operations_fit(self.operations, images.shape, self.size)
        check_image_axes("mirrored", self.mirrored, images.ndim - 2)
        check_image_axes("upright", (self.upright,), images.ndim - 2)
        u = dict(zip(self._columns, torch.split(numbers, [*self._columns.values()], 1), strict=True))
        images = self._cut(images, u)
        if "rand-augment" in self.operations:
            images = apply_rand_augment(images, u["rand-augment"], self.magnitude)
        if "three-augment" in self.operations:
            images = apply_three_augment(images, u["three-augment"])
        if "jitter" in self.operations:
            images = jitter_color(images, u["jitter"], self.brightness, self.contrast, self.saturation)
        targets = (labels[:, None] == torch.arange(classes, device=labels.device)).float()
        if self.mixup or self.cutmix:
            return mix_pairs(images, targets, u["mix"], self.mixup, self.cutmix)
        return images, targets

    def _cut(self, images: Tensor, u: dict[str, Tensor]) -> Tensor:
        """The part of each image that is seen, as floats. Pixels that only move do so as bytes."""
        sides = tuple(images.shape[2:])
        size = self.size or sides
        if "crop" in self.operations:
            images = crop_padded(images, u["crop"], size, self.pad, self.padding)
        elif "resized-crop" in self.operations:
            images = resize_boxes(
                _bytes_to_unit(images), draw_crop_boxes(u["resized-crop"], sides, self.scale, self.ratio), size
            )
        elif size != sides:
            raise ValueError(f"images must have the size {size} if nothing crops them, got {sides}")
        if "flip" in self.operations:
            images = flip_images(images, u["flip"][:, 0], self.mirrored)
        return _bytes_to_unit(
            rotate_quarter_turns(images, u["turn"][:, 0], self.upright) if "turn" in self.operations else images
        )


def _bytes_to_unit(images: Tensor) -> Tensor:
    """Bytes as floats in [0, 1]. A product, because a quotient is not rounded alike on all devices."""
    return images if images.is_floating_point() else images.float() * (1 / 255)


def mix_pairs(images: Tensor, targets: Tensor, u: Tensor, mixup: float, cutmix: float) -> tuple[Tensor, Tensor]:
    """Float images (B C …) and targets (B classes), mixed; u (B, NUMBERS). An α of 0 leaves that way out."""
    if len(images) % 2:
        raise ValueError(f"mixup and cutmix mix neighbours: the batch must be even, got {len(images)} samples")
    u = _share_draws(u)
    cut = u[:, 0] < (0.5 if mixup and cutmix else float(cutmix > 0))
    kept = draw_beta(u[:, 1], u[:, 2], torch.where(cut, cutmix, mixup))
    pixels = broadcast_per_sample(kept, images)
    if cutmix:
        outside = _cutmix_mask(1 - kept, u[:, 3:], images)
        pixels = torch.where(broadcast_per_sample(cut, images), outside, pixels)
        kept = torch.where(cut, outside.flatten(1).mean(1), kept)
    return _mix_with_neighbor(images, pixels), _mix_with_neighbor(targets, kept[:, None])


def _cutmix_mask(share: Tensor, u: Tensor, images: Tensor) -> Tensor:
    """1 outside a box and 0 inside, (B 1 …). The box's sides are all the same part of the image's, its middle is uniform."""
    axes = images.ndim - 2
    part, inside = share.double() ** (1 / axes), torch.ones((), dtype=torch.bool, device=u.device)
    for axis, n in enumerate(images.shape[2:]):
        middle, half = (u[:, axis, None] * n).long(), (part[:, None] * (n / 2)).long()
        away = torch.arange(n, device=u.device) - middle
        inside = inside & broadcast_along_axis((away >= -half) & (away < half), images, 2 + axis)
    return (~inside).float()


def _mix_with_neighbor(x: Tensor, kept: Tensor) -> Tensor:
    """x (B …) of which each sample keeps a part, and has the rest from its neighbour."""
    other = _as_pairs(x).flip(1).flatten(0, 1)
    return kept * x + (1 - kept) * other


def _share_draws(u: Tensor) -> Tensor:
    """Numbers (B, n) of which both neighbours have those of the first."""
    return _as_pairs(u)[:, :1].expand(-1, 2, -1).flatten(0, 1)


def _as_pairs(x: Tensor) -> Tensor:
    """x (B …) as (B/2, 2, …)."""
    return x.reshape(len(x) // 2, 2, *x.shape[1:])

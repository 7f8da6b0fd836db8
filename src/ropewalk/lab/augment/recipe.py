"""A recipe: which operations, with which options. They act in the order of `OPERATIONS`, then mixup or cutmix."""

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ropewalk.encoding import not_negative, one_of, positives
from ropewalk.lab.augment.checks import check_axes, check_batch, check_meaning, interval, known, whole
from ropewalk.lab.augment.colour import jitter
from ropewalk.lab.augment.cut import cropped, flipped, turned
from ropewalk.lab.augment.mix import NUMBERS, mix
from ropewalk.lab.augment.rand import LEVELS, rand_augment
from ropewalk.lab.augment.resize import TRIES, boxes, resized
from ropewalk.lab.augment.three import three_augment
from ropewalk.lab.draws import uniform

STREAM = 0xA06
"""Keeps these numbers apart from those that others draw for the same samples."""
COLUMNS = {"crop": 3, "resized-crop": 2 * TRIES + 2, "flip": 1, "three-augment": 2, "jitter": 3, "mix": NUMBERS}
"""How many numbers each has, one after the other. Those of rand-augment, which vary in count, come after them, and then one
of turn."""


@dataclass(frozen=True)
class Augment:
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
        object.__setattr__(self, "operations", known(self.operations))
        if self.size is not None:
            positives("size", self.size)
        for axis in (*self.mirrored, self.upright):
            if isinstance(axis, bool) or not isinstance(axis, int):
                raise ValueError(f"mirrored and upright must be numbers of axes, got {self.mirrored} and {self.upright}")
        whole("pad", self.pad)
        whole("count", self.count)
        whole("seed", self.seed)
        one_of("padding", self.padding, ("zero", "reflect"))
        interval("scale", self.scale, 1)
        interval("ratio", self.ratio, math.inf)
        for name in ("magnitude", "brightness", "contrast", "saturation", "mixup", "cutmix"):
            not_negative(name, getattr(self, name))
        if self.magnitude > LEVELS:
            raise ValueError(f"magnitude must be from 0 to {LEVELS}, got {self.magnitude}")

    def __call__(self, images: Tensor, labels: Tensor, index: Tensor, *, epoch: int, classes: int) -> tuple[Tensor, Tensor]:
        """Float images (B C *size) in [0, 1] and targets (B classes) of uint8 images, labels (B,) and indices (B,)."""
        return self.apply(images, labels, self.draw(index, epoch), classes=classes)

    def draw(self, index: Tensor, epoch: int) -> Tensor:
        """All numbers of the samples, (B, n): in each column those of one purpose, whatever the operations are."""
        return uniform(self.seed, epoch, index, STREAM, sum(self._columns.values()))

    @property
    def _columns(self) -> dict[str, int]:
        return COLUMNS | {"rand-augment": 2 * self.count, "turn": 1}

    def apply(self, images: Tensor, labels: Tensor, numbers: Tensor, *, classes: int) -> tuple[Tensor, Tensor]:
        """What a call does once its numbers are drawn: tensors to tensors, of which `torch.compile` makes one graph.

        Draw outside of it: a whole call may be compiled too, but falls into several graphs.
        """
        check_batch(images, labels, numbers, classes)
        check_meaning(self.operations, images.shape, self.size)
        check_axes("mirrored", self.mirrored, images.ndim - 2)
        check_axes("upright", (self.upright,), images.ndim - 2)
        u = dict(zip(self._columns, torch.split(numbers, [*self._columns.values()], 1), strict=True))
        images = self._cut(images, u)
        if "rand-augment" in self.operations:
            images = rand_augment(images, u["rand-augment"], self.magnitude)
        if "three-augment" in self.operations:
            images = three_augment(images, u["three-augment"])
        if "jitter" in self.operations:
            images = jitter(images, u["jitter"], self.brightness, self.contrast, self.saturation)
        targets = (labels[:, None] == torch.arange(classes, device=labels.device)).float()
        if self.mixup or self.cutmix:
            return mix(images, targets, u["mix"], self.mixup, self.cutmix)
        return images, targets

    def _cut(self, images: Tensor, u: dict[str, Tensor]) -> Tensor:
        """The part of each image that is seen, as floats. Pixels that only move do so as bytes."""
        sides = tuple(images.shape[2:])
        size = self.size or sides
        if "crop" in self.operations:
            images = cropped(images, u["crop"], size, self.pad, self.padding)
        elif "resized-crop" in self.operations:
            images = resized(_unit(images), boxes(u["resized-crop"], sides, self.scale, self.ratio), size)
        elif size != sides:
            raise ValueError(f"images must have the size {size} if nothing crops them, got {sides}")
        if "flip" in self.operations:
            images = flipped(images, u["flip"][:, 0], self.mirrored)
        return _unit(turned(images, u["turn"][:, 0], self.upright) if "turn" in self.operations else images)


def _unit(images: Tensor) -> Tensor:
    """Bytes as floats in [0, 1]. A product, because a quotient is not rounded alike on all devices."""
    return images if images.is_floating_point() else images.float() * (1 / 255)

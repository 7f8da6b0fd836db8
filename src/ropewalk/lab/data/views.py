"""Views of images with things in them, as `sight` has them. Boxes and masks are cut along: things of which less than a tenth
is left, or less than 2 pixels along a side, are left out, and crowds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import InterpolationMode  # type: ignore[import-untyped]
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]

from ropewalk.lab.data.crops import Box
from ropewalk.lab.data.scenes import Scene, Scenes
from ropewalk.lab.data.sight import Drawn, View, draw, looked_at, part_of

LEAST, PIXELS = 0.1, 2.0
"""Of a thing that stays: the share of its box, and pixels along a side."""
MIDDLE = Drawn()

Things = dict[str, Tensor]
Key = tuple[int, list[int]]


@dataclass(frozen=True)
class Seen:
    """Views uint8 (B 3 rows columns); boxes, labels and perhaps masks of what is in them, one after another; and how many
    things each view has. Few tensors travel from a worker sooner than many."""

    images: Tensor
    things: Things
    counts: list[int]

    @property
    def targets(self) -> list[Things]:
        """The things of each view."""
        apart = {name: value.split(self.counts) for name, value in self.things.items()}
        return [{name: values[i] for name, values in apart.items()} for i in range(len(self.counts))]

    def to(self, device: torch.device | str) -> "Seen":
        """The same views on a device."""
        things = {name: value.to(device, non_blocking=True) for name, value in self.things.items()}
        return Seen(self.images.to(device, non_blocking=True), things, self.counts)

    def pin_memory(self) -> "Seen":
        """The same views in memory that a GPU can fetch by itself; loaders ask for it by this name."""
        things = {name: value.pin_memory() for name, value in self.things.items()}
        return Seen(self.images.pin_memory(), things, self.counts)


def together(views: Sequence[tuple[Tensor, Things]]) -> Seen:
    """Views and their things as one batch."""
    images, things = zip(*views, strict=True)
    joined = {name: torch.cat([each[name] for each in things]) for name in things[0]}
    return Seen(torch.stack(images), joined, [len(each["labels"]) for each in things])


class Views(Dataset[Seen | str]):
    """Views of images that are trained on; or words about a file that cannot be read. A key is an epoch and places."""

    def __init__(self, scenes: Scenes, size: tuple[int, int], *, seed: int, way: View) -> None:
        self.scenes, self.size, self.seed, self.way = scenes, size, seed, way

    def __getitem__(self, key: Key) -> Seen | str:
        epoch, places = key
        numbers = self.scenes.index["train"][places]
        draws = zip(numbers.tolist(), draw(self.way, self.seed, epoch, numbers), strict=True)
        try:
            return together([view(self.scenes.scene(number), self.size, own) for number, own in draws])
        except ValueError as error:
            return str(error)


class Judged(NamedTuple):
    """An image that is judged: with its things, as it is; whole, at the size at which it is looked at; and its middle, at
    that of training."""

    scene: Scene
    whole: Tensor
    middle: Seen


class Whole(Dataset[Judged | str]):
    """Images of a part; or words about a file that cannot be read. A key is a place."""

    def __init__(self, scenes: Scenes, part: str, size: tuple[int, int], patch: int) -> None:
        self.scenes, self.part, self.size, self.patch = scenes, part, size, patch

    def __getitem__(self, place: int) -> Judged | str:
        try:
            scene = self.scenes.read(self.part, place)
        except ValueError as error:
            return str(error)
        sides = looked_at(scene.sides, self.size, self.patch)
        return Judged(scene, F.resize(scene.image, list(sides), antialias=True), together([view(scene, self.size)]))


def view(scene: Scene, size: tuple[int, int], drawn: Drawn = MIDDLE) -> tuple[Tensor, Things]:
    """A view of an image and what is in it."""
    area = part_of(scene.sides, size, drawn)
    image, things = F.resized_crop(scene.image, *area, list(size), antialias=True), cut(scene, area, size)
    if not drawn.flip:
        return image, things
    things["boxes"] = torch.stack([size[1] - things["boxes"][:, 2], things["boxes"][:, 1],
                                   size[1] - things["boxes"][:, 0], things["boxes"][:, 3]], dim=1)  # fmt: skip
    return image.flip(-1), things | {name: value.flip(-1) for name, value in things.items() if name == "masks"}


def cut(scene: Scene, area: Box, size: tuple[int, int]) -> Things:
    """The things of a part of an image, in the pixels of its view."""
    top, left, rows, columns = area
    factor = torch.tensor([size[1] / columns, size[0] / rows] * 2)
    whole = (scene.boxes - torch.tensor([left, top] * 2)) * factor
    boxes = torch.minimum(whole.clamp(min=0), torch.tensor([size[1], size[0]] * 2))
    sides = boxes[:, 2:] - boxes[:, :2]
    share = sides.prod(1) / (whole[:, 2:] - whole[:, :2]).prod(1)
    stay = (share >= LEAST) & (sides >= PIXELS).all(1) & ~scene.crowd
    things = {"boxes": boxes[stay], "labels": scene.labels[stay]}
    if scene.masks is None:
        return things
    masks = _cut_masks(scene.masks[stay], area, size)
    there = masks.flatten(1).bool().any(1)
    return {name: value[there] for name, value in (things | {"masks": masks}).items()}


def _cut_masks(masks: Tensor, area: Box, size: tuple[int, int]) -> Tensor:
    """Masks uint8 (n, rows, columns) of a part, each pixel the one that its centre lies in."""
    if not len(masks):
        return torch.zeros(0, *size, dtype=torch.uint8)
    out: Tensor = F.resized_crop(masks.byte(), *area, list(size), InterpolationMode.NEAREST_EXACT, antialias=False)
    return out

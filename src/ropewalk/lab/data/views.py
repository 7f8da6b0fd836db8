"""Views of images for detection and segmentation: a part of an image in training, all of it in evaluation, never padded.

In training all views have one size. A view is a part of its image, of the shape of the view, resized to it: by default in
the center and as large as fits. With `crop` it lies anywhere, and is smaller along each side by a factor, its logarithm
uniform; factors below 1 would exceed the image and count as 1. With `flip` half of the views are mirrored. Draws follow from
the seed, the epoch and the index of the image. Boxes and masks are cut too: objects of which less than a tenth is left, or
less than 2 pixels along a side, are dropped, and so are crowds.

In evaluation each image is alone and keeps its shape: `evaluation_size` is its size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import InterpolationMode  # type: ignore[import-untyped]
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]

from ropewalk.lab.data.detection import DetectionData, ImageScene
from ropewalk.lab.data.image_folder import PixelBox
from ropewalk.lab.hash_random import draw_uniform

# Random stream.
VIEW_STREAM = 1010
# In evaluation the longer side of an image is at most so many shorter sides of the training images.
MAX_SIDE_RATIO = 2

ImageSides = Sequence[int]


class ViewOptions(NamedTuple):
    """How views are cut: whether at random, by which factors, and whether mirrored."""

    crop: bool = False
    flip: bool = False
    scale: tuple[float, float] = (0.5, 2.0)


class ViewDraw(NamedTuple):
    """Of one view: the factor, how far down and along it lies, from 0 up to 1, and whether it is mirrored."""

    closer: float = 1.0
    down: float = 0.5
    along: float = 0.5
    flip: bool = False


def draw_views(view: ViewOptions, seed: int, epoch: int, index: Tensor) -> list[ViewDraw]:
    """The draws of images of these numbers, int64 (B,)."""
    least, most = map(math.log, view.scale)
    out = []
    for closer, down, along, flip in draw_uniform(seed, epoch, index, VIEW_STREAM, 4).tolist():
        where = ViewDraw(math.exp(least + closer * (most - least)), down, along) if view.crop else ViewDraw()
        out.append(where._replace(flip=view.flip and flip < 0.5))
    return out


def crop_of_view(sides: ImageSides, size: ImageSides, drawn: ViewDraw) -> PixelBox:
    """The part of an image of these sides that a view of that size shows, in whole pixels."""
    factor = max(wanted / side for wanted, side in zip(size, sides, strict=True)) * max(drawn.closer, 1.0)
    rows, columns = (min(max(round(wanted / factor), 1), side) for wanted, side in zip(size, sides, strict=True))
    return int(drawn.down * (sides[0] - rows + 1)), int(drawn.along * (sides[1] - columns + 1)), rows, columns


def evaluation_size(sides: ImageSides, size: ImageSides, patch: int) -> tuple[int, int]:
    """Rows and columns of an image of these sides when it is judged, both multiples of the patch.

    Its shorter side is that of the images of training, unless the longer one would be over twice that; each is rounded.
    """
    short = min(size)
    factor = min(short / min(sides), MAX_SIDE_RATIO * short / max(sides))
    rows, columns = (max(round(side * factor / patch), 1) * patch for side in sides)
    return rows, columns


# Objects that remain in a view have at least this share of their box, and so many pixels along each side.
MIN_BOX_SHARE, MIN_BOX_PIXELS = 0.1, 2.0
CENTER_VIEW = ViewDraw()

InstanceTensors = dict[str, Tensor]
ViewKey = tuple[int, list[int]]


@dataclass(frozen=True)
class ViewBatch:
    """Views uint8 (B 3 rows columns); boxes, labels and masks (if any) of all their objects, concatenated; and the number of
    objects of each view."""

    images: Tensor
    things: InstanceTensors
    counts: list[int]

    @property
    def targets(self) -> list[InstanceTensors]:
        """The things of each view."""
        apart = {name: value.split(self.counts) for name, value in self.things.items()}
        return [{name: values[i] for name, values in apart.items()} for i in range(len(self.counts))]

    def to(self, device: torch.device | str) -> "ViewBatch":
        """The same views on a device."""
        things = {name: value.to(device, non_blocking=True) for name, value in self.things.items()}
        return ViewBatch(self.images.to(device, non_blocking=True), things, self.counts)

    def pin_memory(self) -> "ViewBatch":
        """The same views in memory that a GPU can fetch by itself; loaders ask for it by this name."""
        things = {name: value.pin_memory() for name, value in self.things.items()}
        return ViewBatch(self.images.pin_memory(), things, self.counts)


def collate_views(views: Sequence[tuple[Tensor, InstanceTensors]]) -> ViewBatch:
    """Views and their things as one batch."""
    images, things = zip(*views, strict=True)
    # Concatenated, since a worker hands over a few large tensors faster than many small ones.
    joined = {name: torch.cat([each[name] for each in things]) for name in things[0]}
    return ViewBatch(torch.stack(images), joined, [len(each["labels"]) for each in things])


class SceneViews(Dataset[ViewBatch | str]):
    """Views of training images, or the message of an error about a file. A key is an epoch and positions."""

    def __init__(self, scenes: DetectionData, size: tuple[int, int], *, seed: int, way: ViewOptions) -> None:
        self.scenes, self.size, self.seed, self.way = scenes, size, seed, way

    def __getitem__(self, key: ViewKey) -> ViewBatch | str:
        epoch, places = key
        numbers = self.scenes.index["train"][places]
        draws = zip(numbers.tolist(), draw_views(self.way, self.seed, epoch, numbers), strict=True)
        try:
            return collate_views([make_view(self.scenes.scene(number), self.size, own) for number, own in draws])
        except ValueError as error:
            return str(error)


class EvaluationScene(NamedTuple):
    """An image that is judged: with its things, as it is; whole, at the size at which it is looked at; and its middle, at
    that of training."""

    scene: ImageScene
    whole: Tensor
    middle: ViewBatch


class WholeScenes(Dataset[EvaluationScene | str]):
    """Images of a split, or the message of an error about a file. A key is a position."""

    def __init__(self, scenes: DetectionData, part: str, size: tuple[int, int], patch: int) -> None:
        self.scenes, self.part, self.size, self.patch = scenes, part, size, patch

    def __getitem__(self, place: int) -> EvaluationScene | str:
        try:
            scene = self.scenes.read(self.part, place)
        except ValueError as error:
            return str(error)
        sides = evaluation_size(scene.sides, self.size, self.patch)
        return EvaluationScene(
            scene, F.resize(scene.image, list(sides), antialias=True), collate_views([make_view(scene, self.size)])
        )


def make_view(scene: ImageScene, size: tuple[int, int], drawn: ViewDraw = CENTER_VIEW) -> tuple[Tensor, InstanceTensors]:
    """A view of an image and what is in it."""
    area = crop_of_view(scene.sides, size, drawn)
    image, things = F.resized_crop(scene.image, *area, list(size), antialias=True), crop_instances(scene, area, size)
    if not drawn.flip:
        return image, things
    things["boxes"] = torch.stack([size[1] - things["boxes"][:, 2], things["boxes"][:, 1],
                                   size[1] - things["boxes"][:, 0], things["boxes"][:, 3]], dim=1)  # fmt: skip
    return image.flip(-1), things | {name: value.flip(-1) for name, value in things.items() if name == "masks"}


def crop_instances(scene: ImageScene, area: PixelBox, size: tuple[int, int]) -> InstanceTensors:
    """The things of a part of an image, in the pixels of its view."""
    top, left, rows, columns = area
    factor = torch.tensor([size[1] / columns, size[0] / rows] * 2)
    whole = (scene.boxes - torch.tensor([left, top] * 2)) * factor
    boxes = torch.minimum(whole.clamp(min=0), torch.tensor([size[1], size[0]] * 2))
    sides = boxes[:, 2:] - boxes[:, :2]
    share = sides.prod(1) / (whole[:, 2:] - whole[:, :2]).prod(1)
    stay = (share >= MIN_BOX_SHARE) & (sides >= MIN_BOX_PIXELS).all(1) & ~scene.crowd
    things = {"boxes": boxes[stay], "labels": scene.labels[stay]}
    if scene.masks is None:
        return things
    masks = _crop_masks(scene.masks[stay], area, size)
    there = masks.flatten(1).bool().any(1)
    return {name: value[there] for name, value in (things | {"masks": masks}).items()}


def _crop_masks(masks: Tensor, area: PixelBox, size: tuple[int, int]) -> Tensor:
    """Masks uint8 (n, rows, columns) of a part, each pixel the one that its centre lies in."""
    if not len(masks):
        return torch.zeros(0, *size, dtype=torch.uint8)
    out: Tensor = F.resized_crop(masks.byte(), *area, list(size), InterpolationMode.NEAREST_EXACT, antialias=False)
    return out

"""Views of images for detection and segmentation: crops in training, whole images in evaluation, never padded.

All training views have one size. A view is a crop of its image with the aspect ratio of the view, resized to it: by default
the largest centered crop. With `crop` its position is random, and its sides are divided by a log-uniform factor; factors
below 1 would exceed the image and count as 1. With `flip` half of the views are mirrored. Draws depend on the seed, the
epoch and the index of the image alone. Boxes and masks are cropped too: objects with less than a tenth of their box, or less
than 2 pixels along a side, inside the view are dropped, and so are crowds.

In evaluation each image is processed alone and keeps its aspect ratio; `evaluation_size` computes its size.
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
# Limit on the longer side of an evaluated image, over the shorter side of training views.
MAX_SIDE_RATIO = 2

ImageSides = Sequence[int]


class ViewOptions(NamedTuple):
    """Augmentation of views: random crops, with the range of their factors in `scale`, and random mirroring."""

    crop: bool = False
    flip: bool = False
    scale: tuple[float, float] = (0.5, 2.0)


class ViewDraw(NamedTuple):
    """Random numbers of one view: crop factor, relative vertical and horizontal position in [0, 1), and mirroring."""

    closer: float = 1.0
    down: float = 0.5
    along: float = 0.5
    flip: bool = False


def draw_views(view: ViewOptions, seed: int, epoch: int, index: Tensor) -> list[ViewDraw]:
    """Draw the views of images with these indices, int64 (B,)."""
    least, most = map(math.log, view.scale)
    out = []
    for closer, down, along, flip in draw_uniform(seed, epoch, index, VIEW_STREAM, 4).tolist():
        where = ViewDraw(math.exp(least + closer * (most - least)), down, along) if view.crop else ViewDraw()
        out.append(where._replace(flip=view.flip and flip < 0.5))
    return out


def crop_of_view(sides: ImageSides, size: ImageSides, drawn: ViewDraw) -> PixelBox:
    """The box, in whole pixels, of an image with these sides that a view of this size shows."""
    factor = max(wanted / side for wanted, side in zip(size, sides, strict=True)) * max(drawn.closer, 1.0)
    rows, columns = (min(max(round(wanted / factor), 1), side) for wanted, side in zip(size, sides, strict=True))
    return int(drawn.down * (sides[0] - rows + 1)), int(drawn.along * (sides[1] - columns + 1)), rows, columns


def evaluation_size(sides: ImageSides, size: ImageSides, patch: int) -> tuple[int, int]:
    """Rows and columns at which an image with these sides is evaluated, rounded to multiples of the patch.

    Its shorter side is scaled to the shorter side of training views, unless the longer side would exceed twice that.
    """
    short = min(size)
    factor = min(short / min(sides), MAX_SIDE_RATIO * short / max(sides))
    rows, columns = (max(round(side * factor / patch), 1) * patch for side in sides)
    return rows, columns


# An object is kept in a view if the view has at least this share of its box, and this many pixels along each side.
MIN_BOX_SHARE, MIN_BOX_PIXELS = 0.1, 2.0
CENTER_VIEW = ViewDraw()

InstanceTensors = dict[str, Tensor]
ViewKey = tuple[int, list[int]]


@dataclass(frozen=True)
class ViewBatch:
    """Views uint8 (B 3 rows columns); boxes, labels and masks (if any) of all their objects, concatenated; and the number of
    objects in each view."""

    images: Tensor
    objects: InstanceTensors
    counts: list[int]

    @property
    def targets(self) -> list[InstanceTensors]:
        """The objects of each view."""
        apart = {name: value.split(self.counts) for name, value in self.objects.items()}
        return [{name: values[i] for name, values in apart.items()} for i in range(len(self.counts))]

    def to(self, device: torch.device | str) -> "ViewBatch":
        """The same views on a device."""
        objects = {name: value.to(device, non_blocking=True) for name, value in self.objects.items()}
        return ViewBatch(self.images.to(device, non_blocking=True), objects, self.counts)

    def pin_memory(self) -> "ViewBatch":
        """The same views in pinned memory; `DataLoader` calls this method."""
        objects = {name: value.pin_memory() for name, value in self.objects.items()}
        return ViewBatch(self.images.pin_memory(), objects, self.counts)


def collate_views(views: Sequence[tuple[Tensor, InstanceTensors]]) -> ViewBatch:
    """Join views and their objects into one batch."""
    images, objects = zip(*views, strict=True)
    # Concatenated, since a worker process transfers a few large tensors faster than many small ones.
    joined = {name: torch.cat([each[name] for each in objects]) for name in objects[0]}
    return ViewBatch(torch.stack(images), joined, [len(each["labels"]) for each in objects])


class SceneViews(Dataset[ViewBatch | str]):
    """Batches of training views. A file that cannot be read yields the message of its error in place of a batch.

    A key is an epoch and positions in the training set.
    """

    def __init__(self, scenes: DetectionData, size: tuple[int, int], *, seed: int, options: ViewOptions) -> None:
        self.scenes, self.size, self.seed, self.options = scenes, size, seed, options

    def __getitem__(self, key: ViewKey) -> ViewBatch | str:
        epoch, positions = key
        numbers = self.scenes.index["train"][positions]
        draws = zip(numbers.tolist(), draw_views(self.options, self.seed, epoch, numbers), strict=True)
        try:
            return collate_views([make_view(self.scenes.scene(number), self.size, own) for number, own in draws])
        except ValueError as error:
            return str(error)


class EvaluationScene(NamedTuple):
    """An image of the validation or test set.

    scene   The image and its objects, in pixels of its file.
    whole   The whole image at its evaluation size, uint8 (3 rows columns).
    center  A centered view of the size of training, for the loss.
    """

    scene: ImageScene
    whole: Tensor
    center: ViewBatch


class WholeScenes(Dataset[EvaluationScene | str]):
    """Images of a split by position. A file that cannot be read yields the message of its error in place of an image."""

    def __init__(self, scenes: DetectionData, part: str, size: tuple[int, int], patch: int) -> None:
        self.scenes, self.part, self.size, self.patch = scenes, part, size, patch

    def __getitem__(self, position: int) -> EvaluationScene | str:
        try:
            scene = self.scenes.read(self.part, position)
        except ValueError as error:
            return str(error)
        sides = evaluation_size(scene.sides, self.size, self.patch)
        return EvaluationScene(
            scene, F.resize(scene.image, list(sides), antialias=True), collate_views([make_view(scene, self.size)])
        )


def make_view(scene: ImageScene, size: tuple[int, int], drawn: ViewDraw = CENTER_VIEW) -> tuple[Tensor, InstanceTensors]:
    """Crop and resize an image, and the boxes, labels and masks of its objects."""
    area = crop_of_view(scene.sides, size, drawn)
    image, objects = F.resized_crop(scene.image, *area, list(size), antialias=True), crop_instances(scene, area, size)
    if not drawn.flip:
        return image, objects
    objects["boxes"] = torch.stack([size[1] - objects["boxes"][:, 2], objects["boxes"][:, 1],
                                   size[1] - objects["boxes"][:, 0], objects["boxes"][:, 3]], dim=1)  # fmt: skip
    return image.flip(-1), objects | {name: value.flip(-1) for name, value in objects.items() if name == "masks"}


def crop_instances(scene: ImageScene, area: PixelBox, size: tuple[int, int]) -> InstanceTensors:
    """Crop the objects of an image to a box, in pixels of the view."""
    top, left, rows, columns = area
    factor = torch.tensor([size[1] / columns, size[0] / rows] * 2)
    whole = (scene.boxes - torch.tensor([left, top] * 2)) * factor
    boxes = torch.minimum(whole.clamp(min=0), torch.tensor([size[1], size[0]] * 2))
    sides = boxes[:, 2:] - boxes[:, :2]
    share = sides.prod(1) / (whole[:, 2:] - whole[:, :2]).prod(1)
    stay = (share >= MIN_BOX_SHARE) & (sides >= MIN_BOX_PIXELS).all(1) & ~scene.crowd
    objects = {"boxes": boxes[stay], "labels": scene.labels[stay]}
    if scene.masks is None:
        return objects
    masks = _crop_masks(scene.masks[stay], area, size)
    there = masks.flatten(1).bool().any(1)
    return {name: value[there] for name, value in (objects | {"masks": masks}).items()}


def _crop_masks(masks: Tensor, area: PixelBox, size: tuple[int, int]) -> Tensor:
    """Crop and resize masks by nearest-neighbor interpolation, uint8 (n, rows, columns)."""
    if not len(masks):
        return torch.zeros(0, *size, dtype=torch.uint8)
    out: Tensor = F.resized_crop(masks.byte(), *area, list(size), InterpolationMode.NEAREST_EXACT, antialias=False)
    return out

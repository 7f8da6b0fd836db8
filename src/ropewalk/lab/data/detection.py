"""Base class of detection datasets (Penn-Fudan, COCO): images with objects, which have a box, a class and perhaps a mask.

    scenes = CocoData(Path("data/coco"), validation=0.1, fraction=1.0, masks=True)
    scenes.read("test", 3)   # an ImageScene

The test and validation images do not depend on the seed of a run.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]

from ropewalk.lab.data.base import HasMoments, channel_moments
from ropewalk.lab.data.image_files import read_rgb_image
from ropewalk.lab.data.sampling import split_train_validation, spread_evenly

# Mean and deviation are taken over at most so many images.
MAX_MOMENT_SCENES = 256
# Seed of the splits, the same for all runs.
SCENE_SPLIT_SEED = 0


@dataclass(frozen=True)
class ImageScene:
    """An image and the objects in it.

    image   uint8 (3 rows columns).
    boxes   float32 (n, 4): x, y, x, y in pixels, inside the image.
    labels  int64 (n,), from 1 on.
    crowd   bool (n,): many objects in one box: not trained on, and no false positive if detected.
    areas   float32 (n,): pixels of each object, which decide whether it counts as small or large.
    masks   bool (n, rows, columns), or None if not requested.
    """

    image: Tensor
    boxes: Tensor
    labels: Tensor
    crowd: Tensor
    areas: Tensor
    masks: Tensor | None = None

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.image.shape[-2:]
        return rows, columns


class DetectionData(HasMoments):
    """Images with objects, in three splits. `index` has the image numbers of each split."""

    name: str
    classes: list[str]
    index: Mapping[str, Tensor]

    def __repr__(self) -> str:
        return f"{self.name}: {', '.join(f'{n} {part}' for part, n in self.counts.items())}; {len(self.classes)} classes"

    @property
    def counts(self) -> dict[str, int]:
        """The number of images of each split."""
        return {part: len(index) for part, index in self.index.items()}

    def read(self, part: str, place: int) -> ImageScene:
        """An image of a split, with its objects."""
        return self.scene(int(self.index[part][place]))

    @abstractmethod
    def scene(self, number: int) -> ImageScene:
        """An image, with its objects, by its number."""

    def look(self) -> None:
        """Check every file: it must be an image, and have the size in its annotation. Reads only the headers of files."""
        for number in torch.cat([*self.index.values()]).tolist():
            self.look_at(number)

    @abstractmethod
    def look_at(self, number: int) -> None:
        """Check the header of one image file, by the image's number."""

    @abstractmethod
    def count_objects(self, part: str) -> int:
        """The number of objects in a split, without crowds."""

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel over at most 256 evenly spaced training images."""
        train = self.index["train"]
        some = train[spread_evenly(len(train), MAX_MOMENT_SCENES)].tolist()
        return channel_moments((self.scene(number).image.unsqueeze(0) for number in some), 3)

    def facts(self) -> dict[str, Any]:
        """What identifies these images."""
        facts = {"classes": len(self.classes), "channels": 3, "counts": self.counts}
        facts |= {"mean": list(self.mean), "std": list(self.std)}
        return {**facts, "things": {part: self.count_objects(part) for part in self.index}}


def read_image_tensor(path: Path) -> Tensor:
    """Read an image file as uint8 (3 rows columns); gray images get three equal channels."""
    try:
        image: Tensor = F.pil_to_tensor(read_rgb_image(path))
    except Exception as error:
        raise ValueError(f"{path} cannot be read as an image: {type(error).__name__}: {error}") from error
    return image


def choose_train_share(index: Tensor, fraction: float) -> Tensor:
    """Choose a share of the training images; smaller shares are subsets of larger ones."""
    chosen, _ = split_train_validation(torch.zeros_like(index), seed=SCENE_SPLIT_SEED, validation=0.0, fraction=fraction)
    return index[chosen]


def stack_boxes(boxes: Sequence[Sequence[float]]) -> Tensor:
    """Boxes as a tensor (n, 4), also for n = 0."""
    return torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)

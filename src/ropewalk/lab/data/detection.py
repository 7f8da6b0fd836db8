"""What Penn-Fudan and COCO have in common: images with objects, each with a box, a class and, if requested, a mask.

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
    areas   float32 (n,): pixels of the objects, by which they are small or large.
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
    """Images in three parts. `index` has the places of those of a part among all; `things` counts what is to be found."""

    name: str
    classes: list[str]
    index: Mapping[str, Tensor]

    def __repr__(self) -> str:
        return f"{self.name}: {', '.join(f'{n} {part}' for part, n in self.counts.items())}; {len(self.classes)} classes"

    @property
    def counts(self) -> dict[str, int]:
        """Images of each part."""
        return {part: len(index) for part, index in self.index.items()}

    def read(self, part: str, place: int) -> ImageScene:
        """An image of a part, and what is in it."""
        return self.scene(int(self.index[part][place]))

    @abstractmethod
    def scene(self, number: int) -> ImageScene:
        """An image, by its number among all."""

    def look(self) -> None:
        """Refuse files that are no images, or others than is said. It reads the beginning of every file, and no more."""
        for number in torch.cat([*self.index.values()]).tolist():
            self.look_at(number)

    @abstractmethod
    def look_at(self, number: int) -> None:
        """Refuse an image, by its number among all, for what its file says at its beginning."""

    @abstractmethod
    def things(self, part: str) -> int:
        """Things of a part that are no crowd."""

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of each channel of at most 256 images that are trained on, at even distances among them."""
        train = self.index["train"]
        some = train[spread_evenly(len(train), MAX_MOMENT_SCENES)].tolist()
        return channel_moments((self.scene(number).image.unsqueeze(0) for number in some), 3)

    def facts(self) -> dict[str, Any]:
        """What tells these images from others."""
        told = {"classes": len(self.classes), "channels": 3, "counts": self.counts}
        told |= {"mean": list(self.mean), "std": list(self.std)}
        return {**told, "things": {part: self.things(part) for part in self.index}}


def read_image_tensor(path: Path) -> Tensor:
    """The image of a file, uint8 (3 rows columns), gray ones too."""
    try:
        image: Tensor = F.pil_to_tensor(read_rgb_image(path))
    except Exception as error:
        raise ValueError(f"{path} cannot be read as an image: {type(error).__name__}: {error}") from error
    return image


def choose_train_share(index: Tensor, fraction: float) -> Tensor:
    """The images of a part that are trained on: a share of them, smaller ones inside larger ones."""
    chosen, _ = split_train_validation(torch.zeros_like(index), seed=SCENE_SPLIT_SEED, validation=0.0, fraction=fraction)
    return index[chosen]


def stack_boxes(boxes: Sequence[Sequence[float]]) -> Tensor:
    """Boxes (n, 4), also where there are none."""
    return torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)

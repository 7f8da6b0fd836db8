"""Data sets in a folder of videos, read as folders of images are.

A folder has train/ and test/ or val/, with a folder of videos for each class. A sample is a clip of `size`, (frames, rows,
columns): `frames` says which frames of the video it has, and each is cut to rows and columns as an image would be, all in
the same box. Draws follow from seed, epoch and the index of the sample.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from torchvision.datasets import DatasetFolder  # type: ignore[import-untyped]
from torchvision.datasets.folder import IMG_EXTENSIONS  # type: ignore[import-untyped]

from ropewalk.lab.data.crop import Crop
from ropewalk.lab.data.crops import Crops, Draws
from ropewalk.lab.data.folder import SIZE, Folder
from ropewalk.lab.data.frames import chosen, clip, reader
from ropewalk.lab.draws import uniform

VIDEOS = (".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".mpg", ".mpeg")
FRAMES = 16
"""Of a clip, if no size is asked for."""
FEW = 256
"""The most clips that mean and deviation are taken of."""
TIME = 1008
"""The stream of draws."""


def holds_videos(path: Path) -> bool:
    """Whether the first image or video in a folder's train/ is a video."""
    kinds = (file.suffix.lower() for file in (path / "train").rglob("*"))
    return next((kind for kind in kinds if kind in VIDEOS or kind in IMG_EXTENSIONS), None) in VIDEOS


class Clips(Crops):
    """Batches of clips (B 3 frames rows columns), from a random time if there is a seed; or words about a broken file."""

    what = "a video"

    def __init__(
        self, samples: Sequence[tuple[str, int]], size: tuple[int, ...], seed: int | None = None, crop: Crop | None = None
    ) -> None:
        super().__init__(samples, size, seed or 0, crop)
        self.moving = seed is not None

    @property
    def still(self) -> bool:
        return super().still and not self.moving

    def _draws(self, epoch: int, index: Tensor) -> list[Draws]:
        """The numbers of time, if any, and after them those of the box."""
        times = uniform(self.seed, epoch, index, TIME, 2).tolist() if self.moving else [[]] * len(index)
        return [[time, *box] for time, box in zip(times, super()._draws(epoch, index), strict=True)]

    def _open(self, path: str, draws: Draws) -> Tensor:
        return clip(path, partial(chosen, frames=self.size[0], draws=draws[0]))

    def _cut(self, image: Any, draws: Draws) -> Tensor:
        return super()._cut(image, draws[1:]).movedim(0, 1)


class Videos(Folder):
    """A folder of videos. Mean and deviation are those of at most 256 training clips."""

    things = "videos"
    usual = (FRAMES, SIZE, SIZE)
    few = FEW

    def __init__(self, path: Path, **options: Any) -> None:
        reader()  # or the first batch would say that it is not there
        super().__init__(path, **options)

    def _files(self, path: Path) -> DatasetFolder:
        return DatasetFolder(path, loader=str, extensions=VIDEOS)

    def _cuts(self, samples: Sequence[tuple[str, int]], seed: int | None = None, crop: Crop | None = None) -> Clips:
        return Clips(samples, self.size, seed, crop)

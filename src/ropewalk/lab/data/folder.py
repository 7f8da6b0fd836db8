"""Data sets in a folder of images, read by workers while the model is busy.

A folder has train/ and test/, with a folder of images for each class, and may have val/ for validation. If val/ is there
without test/, as in ImageNet, it is the test set. Images become RGB, of one size; `Crops` says how.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import torch
from torch import Tensor
from torchvision.datasets import DatasetFolder, ImageFolder  # type: ignore[import-untyped]

from ropewalk.lab.data.base import Batch
from ropewalk.lab.data.crop import Crop
from ropewalk.lab.data.crops import Crops
from ropewalk.lab.data.kept import Kept
from ropewalk.lab.data.loaded import Loaded
from ropewalk.lab.data.pixels import moments, sides_of
from ropewalk.lab.data.split import parts

SIZE = 224
"""Of images, if none is asked for."""
SAMPLE = 2048
"""The most images that mean and deviation are taken of."""


class Folder(Loaded):
    """A folder, its training set cut into training and validation set if it has no own validation set.

    Mean and deviation are those of at most 2,048 training images, at even distances among them, cut as at evaluation. Images
    that are cut so stay in memory, if a split has not too many of them, and their files are read once.

    workers  Processes that read, at most one a core; 0 reads where the batches are used. Batches do not depend on it.
    crop     How training images are cut at random; None cuts them as at evaluation.
    """

    things = "images"
    usual: tuple[int, ...] = (SIZE, SIZE)
    few = SAMPLE

    def __init__(
        self,
        path: Path,
        *,
        seed: int,
        validation: float,
        fraction: float,
        size: int | Sequence[int] | None,
        workers: int,
        crop: Crop | None = None,
    ) -> None:
        files = _listed(path, self._found)
        self.name, self.classes, self.channels = path.name, files["train"].classes, 3
        self.size = self.usual if size is None else sides_of(size, len(self.usual))
        labels = torch.tensor(files["train"].targets)
        own = "validation" in files
        train, held = parts(labels, seed=seed, validation=0.0 if own else validation, fraction=fraction)
        test = torch.arange(len(files["test"]))
        index = {"train": train, "validation": torch.arange(len(files["validation"])) if own else held, "test": test}
        self._crops = {
            "train": self._cuts(files["train"].samples, seed, crop),
            "validation": self._cuts(files["validation" if own else "train"].samples),
            "test": self._cuts(files["test"].samples),
        }
        self._kept: dict[str, Kept] = {}
        super().__init__(self._crops, index, workers)

    def to(self, device: torch.device | str) -> Self:
        """The same data; what was kept elsewhere is read again."""
        self._kept = {}
        return super().to(device)

    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[Batch]:
        count, shape, read = self.counts[split], (self.channels, *self.size), super()._batches
        if not self._crops[split].still or not Kept.fits(count, shape):
            return read(split, order, epoch)
        kept = self._kept[split] = self._kept.get(split) or Kept(count, shape, self.device)
        return kept.batches(order, lambda some: read(split, some, epoch))

    def _found(self, path: Path) -> DatasetFolder:
        """The files of each class in a folder, if each has some."""
        try:
            return self._files(path)
        except FileNotFoundError as error:
            raise ValueError(f"{path} must have a folder of {self.things} for each class: {error}") from error

    def _files(self, path: Path) -> DatasetFolder:
        return ImageFolder(path)

    def _cuts(self, samples: Sequence[tuple[str, int]], seed: int | None = None, crop: Crop | None = None) -> Crops:
        """What reads them: for training by a seed, as at evaluation without one."""
        return Crops(samples, self.size, seed or 0, crop)

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return moments((batch.images for batch in self._some(self.few)), self.channels)

    def _plain(self) -> Crops:
        return self._cuts(self._crops["train"].samples)


def _listed(path: Path, found: Callable[[Path], DatasetFolder]) -> dict[str, DatasetFolder]:
    """The files of each split, whose classes agree."""
    there = [part for part in ("train", "val", "test") if (path / part).is_dir()]
    if "train" not in there or len(there) < 2:
        raise ValueError(f"{path} must have train/ and test/ or val/, got {', '.join(there) or 'none of them'}")
    split = {"train": "train", "val": "validation" if "test" in there else "test", "test": "test"}
    files = {split[part]: found(path / part) for part in there}
    for part in there:
        extra = set(files["train"].classes) ^ set(files[split[part]].classes)
        if extra:
            raise ValueError(f"{path / part} must have the classes of train/, but only one has {', '.join(sorted(extra))}")
    return files

"""The data set of a folder of images and maps."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ropewalk.lab.data.base import Batch
from ropewalk.lab.data.loaded import Loaded
from ropewalk.lab.data.maps.forms import Found, found
from ropewalk.lab.data.maps.pairs import IGNORED, Pair, classified, look, numbers_of
from ropewalk.lab.data.maps.views import Views, Wholes
from ropewalk.lab.data.pixels import moments
from ropewalk.lab.data.sight import View
from ropewalk.lab.data.split import parts

PLAIN = View()
SAMPLE = 2048
"""The most images that mean and deviation are taken of."""


class Maps(Loaded):
    """Images and the classes of their pixels.

    Batches of "train" have views of one size; those of "validation" and "test" have one image, at its own size, and its map
    at that of the file. Mean and deviation are those of the middle of at most 2,048 training images.

    validation  The share of the training set that is kept for validation, where the folder has no part for it.
    fraction    The share of the rest that is trained on, drawn by the seed.
    """

    def __init__(
        self,
        path: Path,
        *,
        size: tuple[int, int],
        patch: int,
        seed: int,
        validation: float,
        fraction: float,
        workers: int,
        view: View = PLAIN,
    ) -> None:
        files = found(path, validation)
        self.name, self.channels, self.size = path.name, 3, size
        self.classes = _counted(files) if files.classes is None else files.classes
        own = files.parts
        train, _ = parts(torch.zeros(len(own["train"]), dtype=torch.int64), seed=seed, validation=0.0, fraction=fraction)
        about = (size, len(self.classes), files.binary)
        self._middle = Views(own["train"], *about, PLAIN)
        readers = {split: Wholes(own[split], *about, patch) for split in ("validation", "test")}
        index = {"train": train} | {split: torch.arange(len(own[split])) for split in readers}
        views = Views(own["train"], *about, view, seed)
        super().__init__({"train": views, **readers}, index, workers)
        self.pairs, self.binary = own, files.binary

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self._seen[0]

    @cached_property
    def _seen(self) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], list[int]]:
        """Mean and deviation of images, and how many pixels of their maps have each number, 255 last."""
        pixels = torch.zeros(IGNORED + 1, dtype=torch.int64)

        def images() -> Iterator[Tensor]:
            for batch in self._some(SAMPLE):
                pixels.add_(batch.labels.flatten().bincount(minlength=len(pixels)))
                yield batch.images

        found = moments(images(), self.channels)
        return found, [*pixels[: len(self.classes)].tolist(), int(pixels[IGNORED])]

    def facts(self) -> dict[str, Any]:
        """What tells these data from others: names of classes, and pixels of each, too."""
        return {**super().facts(), "names": list(self.classes), "pixels": self._seen[1]}

    def _plain(self) -> Views:
        return self._middle

    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[Batch]:
        if split != "train" and (counts := {len(positions) for positions in order} - {1}):
            raise ValueError(f"images of {split!r} differ in size and come one in a batch, got {sorted(counts)}")
        return super()._batches(split, order, epoch)

    def look(self) -> None:
        """Refuse files that are no pair of an image and its map, and test maps with numbers that are no class.

        It reads the beginning of every file, and the maps of the test, which are not read before training is done.
        """
        for pair in (pair for own in self.pairs.values() for pair in own):
            look(pair)
        for pair in self.pairs["test"]:
            classified(pair.map, len(self.classes), binary=self.binary)


def _counted(files: Found) -> list[str]:
    """Classes without names: numbers up to the largest in a map to train on or to validate by, all of which are read."""
    pairs = [*files.parts["train"], *files.parts["validation"]]
    return [str(number) for number in range(1 + max(map(_largest, pairs), default=0))]


def _largest(pair: Pair) -> int:
    numbers = numbers_of(pair.map)
    return int(np.max(numbers, initial=0, where=numbers != IGNORED))

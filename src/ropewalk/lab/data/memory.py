"""Data sets that fit in memory: all images lie on one device and batches are picked there, so that nothing is waited for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from ropewalk.lab.data.base import Batch, Data
from ropewalk.lab.data.kept import picked
from ropewalk.lab.data.pixels import CHUNK, moments, resized, sides_of
from ropewalk.lab.data.split import parts

Samples = tuple[Tensor, Tensor]
"""Images (N C *sides) and labels (N,)."""


@dataclass(frozen=True)
class Source:
    """A data set as its file has it.

    validation  None if the file has none of its own.
    test        Reads the test set, of `count` samples.
    """

    name: str
    classes: list[str]
    train: Samples
    validation: Samples | None
    test: Callable[[], Samples]
    count: int


class Memory(Data):
    """A source, cut into training and validation set; images are resized once, if a size is given."""

    def __init__(
        self, source: Source, *, seed: int, validation: float, fraction: float, size: int | Sequence[int] | None
    ) -> None:
        images, labels = source.train
        self.name, self.classes, self.channels = source.name, source.classes, images.shape[1]
        self.size = tuple(images.shape[2:]) if size is None else sides_of(size, images.ndim - 2)
        own = source.validation
        rows, held = parts(labels, seed=seed, validation=0.0 if own else validation, fraction=fraction)
        self._parts = {
            "train": self._sized(images[rows], labels[rows], rows),
            "validation": self._sized(*own) if own else self._sized(images[held], labels[held], held),
        }
        self._read_test = source.test
        self.counts = {split: len(part.labels) for split, part in self._parts.items()} | {"test": source.count}

    def _sized(self, images: Tensor, labels: Tensor, index: Tensor | None = None) -> Batch:
        """A whole split, on the device."""
        index = torch.arange(len(labels)) if index is None else index
        return Batch(resized(images, self.size), labels, index).to(self.device)

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return moments(torch.split(self._parts["train"].images, CHUNK), self.channels)

    def to(self, device: torch.device | str) -> Self:
        """The same data, moved to the device."""
        self._parts = {split: part.to(device) for split, part in self._parts.items()}
        return super().to(device)

    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[Batch]:
        if split not in self._parts:
            self._parts[split] = self._test()
        return picked(self._parts[split], order)

    def _test(self) -> Batch:
        images, labels = self._read_test()
        if len(labels) != self.counts["test"]:
            raise ValueError(f"the test set of {self.name} must have {self.counts['test']} samples, got {len(labels)}")
        return self._sized(images, labels)

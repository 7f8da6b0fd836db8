"""Data whose samples lie in files: batches are read by workers while the model is busy."""

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ropewalk.lab.data.base import Batch, Data

Key = tuple[int, list[int]]
"""An epoch, and the indices of a batch."""


class Loaded(Data):
    """Each split has a reader, which makes a batch of a key, or words about a file that is wrong.

    index    Of each split, the numbers of its samples for its reader.
    workers  Processes that read; 0 reads where the batches are used. Batches do not depend on it.
    """

    def __init__(self, readers: Mapping[str, Dataset[Batch | str]], index: dict[str, Tensor], workers: int) -> None:
        self._readers, self._index, self.workers = readers, index, workers
        self.counts = {split: len(own) for split, own in index.items()}
        self._loaders: dict[str, tuple[list[Key], DataLoader[Batch | str]]] = {}
        self._pass = dict.fromkeys(self.counts, 0)

    @abstractmethod
    def _plain(self) -> Dataset[Batch | str]:
        """What reads training samples with nothing random, all of one size."""

    def _some(self, most: int) -> Iterator[Batch]:
        """At most so many training samples, at even distances among them, as `_plain` reads them."""
        train = self._index["train"]
        some = train[torch.linspace(0, len(train) - 1, min(most, len(train)), dtype=torch.float64).round().long()]
        keys = [(0, rows.tolist()) for rows in torch.split(some, 32)]
        return _sound(self._loader(self._plain(), keys, lasting=False))

    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[Batch]:
        index = self._index[split]
        return self._read(split, [(epoch, index[positions].tolist()) for positions in order])

    def _read(self, split: str, keys: list[Key]) -> Iterator[Batch]:
        """Batches of a split. Its workers stay, so that two passes cannot go on side by side."""
        if split not in self._loaders:
            asked: list[Key] = []
            self._loaders[split] = asked, self._loader(self._readers[split], asked, lasting=split != "test")
        asked, loader = self._loaders[split]
        asked[:] = keys
        self._pass[split] += 1
        turn = self._pass[split]
        for batch in _sound(loader):
            yield batch.to(self.device)
            if self._pass[split] != turn:
                raise RuntimeError(f"batches of {split!r} were asked for anew, which ends an earlier pass through them")

    def _loader(self, reader: Dataset[Batch | str], keys: list[Key], *, lasting: bool) -> DataLoader[Batch | str]:
        """Reads what the list of keys asks for when a pass begins. With its own generator, it draws from no global one."""
        return DataLoader(
            reader,
            batch_size=None,
            sampler=keys,
            num_workers=self.workers,
            persistent_workers=lasting and self.workers > 0,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),
        )


def _sound(loader: DataLoader[Batch | str]) -> Iterator[Batch]:
    """Batches until a file cannot be read."""
    for batch in loader:
        if isinstance(batch, str):
            raise ValueError(batch)
        yield batch


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""Samples read by workers while the model is busy.

Data whose samples lie in files: batches are read by workers while the model is busy.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ropewalk.lab.data.base import ImageBatch, ImageData
from ropewalk.lab.data.sampling import spread_evenly
from ropewalk.lab.environment import count_cpu_cores

T = TypeVar("T")


class SampleReader(Generic[T]):
    """Reads what keys ask for, in their order, until something is words: those say what cannot be read.

    workers  Processes that read, at most one a core; 0 reads where samples are used. What is read does not depend on it.
    name     What is read, for those who ask wrongly.
    lasting  Whether workers stay after a pass.
    """

    def __init__(self, samples: Dataset[T | str], workers: int, name: str, *, lasting: bool = True) -> None:
        self.workers, self.name = min(workers, count_cpu_cores()), name
        self._asked, self._pass = list[Any](), 0
        self._loader = DataLoader(
            samples,
            batch_size=None,
            sampler=self._asked,
            num_workers=self.workers,
            persistent_workers=lasting and self.workers > 0,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # it draws from no global one
        )

    def read(self, keys: Sequence[Any]) -> Iterator[T]:
        """A sample for each key. Workers stay, so that two passes cannot go on side by side."""
        self._asked[:] = keys
        self._pass += 1
        turn = self._pass
        for sample in self._loader:
            if isinstance(sample, str):
                raise ValueError(sample)
            yield sample
            if self._pass != turn:
                raise RuntimeError(f"batches of {self.name!r} were asked for anew, which ends an earlier pass through them")


class WorkerData(ImageData):
    """Each split has a reader of samples, which make a batch of an epoch and indices, or words about a file that is wrong.

    index    Of each split, the numbers of its samples.
    workers  Processes that read, as `Reader` has them.
    """

    def __init__(self, samples: Mapping[str, Dataset[ImageBatch | str]], index: dict[str, Tensor], workers: int) -> None:
        self._index = index
        self.counts = {split: len(own) for split, own in index.items()}
        self._readers = {split: SampleReader(own, workers, split, lasting=split != "test") for split, own in samples.items()}
        self.workers = self._readers["train"].workers

    @abstractmethod
    def _plain(self) -> Dataset[ImageBatch | str]:
        """What reads training samples with nothing random, all of one size."""

    def _some(self, most: int) -> Iterator[ImageBatch]:
        """At most so many training samples, at even distances among them, as `_plain` reads them."""
        some = self._index["train"][spread_evenly(self.counts["train"], most)]
        keys = [(0, rows.tolist()) for rows in torch.split(some, 32)]
        return SampleReader(self._plain(), self.workers, "train", lasting=False).read(keys)

    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[ImageBatch]:
        index = self._index[split]
        keys = [(epoch, index[positions].tolist()) for positions in order]
        return (batch.to(self.device) for batch in self._readers[split].read(keys))

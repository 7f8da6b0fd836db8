"""Samples that are read from files by worker processes while the model computes."""

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
    """Reads the samples of keys in order, in worker processes. A sample that is a string is the message of an error.

    workers  Number of worker processes, at most one per core; 0 reads in the calling process. Samples do not depend on it.
    name     The name of the split, for error messages.
    lasting  Whether workers are kept after a pass.
    """

    def __init__(self, samples: Dataset[T | str], workers: int, name: str, *, lasting: bool = True) -> None:
        self.workers, self.name = min(workers, count_cpu_cores()), name
        self._asked, self._pass = list[Any](), 0
        self._loader = DataLoader(
            samples,
            # A key stands for a whole batch, which the dataset collates itself.
            batch_size=None,
            # A list that each pass fills anew: a DataLoader refuses another sampler, and new workers take seconds to start.
            sampler=self._asked,
            num_workers=self.workers,
            persistent_workers=lasting and self.workers > 0,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # it draws from no global one
        )

    def read(self, keys: Sequence[Any]) -> Iterator[T]:
        """A sample for each key. A new pass ends an earlier one, since both share the workers."""
        self._asked[:] = keys
        self._pass += 1
        turn = self._pass
        for sample in self._loader:
            # Workers return a message in place of an error: an exception from a worker keeps the loader alive in a cycle of
            # references, which then waits seconds for each worker to end.
            if isinstance(sample, str):
                raise ValueError(sample)
            yield sample
            if self._pass != turn:
                raise RuntimeError(f"a new pass through {self.name!r} was started, which ends the earlier one")


class WorkerData(ImageData):
    """Data read by workers, in batches by epoch and indices. A file that cannot be read yields the message of its error.

    index    Indices of the samples of each split.
    workers  Processes that read, as in `SampleReader`.
    """

    def __init__(self, samples: Mapping[str, Dataset[ImageBatch | str]], index: dict[str, Tensor], workers: int) -> None:
        self._index = index
        self.counts = {split: len(own) for split, own in index.items()}
        self._readers = {split: SampleReader(own, workers, split, lasting=split != "test") for split, own in samples.items()}
        self.workers = self._readers["train"].workers

    @abstractmethod
    def _plain(self) -> Dataset[ImageBatch | str]:
        """The dataset of training samples without randomness, all of one size."""

    def _some(self, most: int) -> Iterator[ImageBatch]:
        """At most so many evenly spaced training samples, as `_plain` reads them."""
        some = self._index["train"][spread_evenly(self.counts["train"], most)]
        keys = [(0, rows.tolist()) for rows in torch.split(some, 32)]
        return SampleReader(self._plain(), self.workers, "train", lasting=False).read(keys)

    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[ImageBatch]:
        index = self._index[split]
        keys = [(epoch, index[positions].tolist()) for positions in order]
        return (batch.to(self.device) for batch in self._readers[split].read(keys))

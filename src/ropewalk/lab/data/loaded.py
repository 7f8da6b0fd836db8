"""Data whose samples lie in files: batches are read by workers while the model is busy."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ropewalk.lab.data.base import Batch, Data
from ropewalk.lab.data.order import spread
from ropewalk.lab.data.reader import Reader


class Loaded(Data):
    """Each split has a reader of samples, which make a batch of an epoch and indices, or words about a file that is wrong.

    index    Of each split, the numbers of its samples.
    workers  Processes that read, as `Reader` has them.
    """

    def __init__(self, samples: Mapping[str, Dataset[Batch | str]], index: dict[str, Tensor], workers: int) -> None:
        self._index = index
        self.counts = {split: len(own) for split, own in index.items()}
        self._readers = {split: Reader(own, workers, split, lasting=split != "test") for split, own in samples.items()}
        self.workers = self._readers["train"].workers

    @abstractmethod
    def _plain(self) -> Dataset[Batch | str]:
        """What reads training samples with nothing random, all of one size."""

    def _some(self, most: int) -> Iterator[Batch]:
        """At most so many training samples, at even distances among them, as `_plain` reads them."""
        some = self._index["train"][spread(self.counts["train"], most)]
        keys = [(0, rows.tolist()) for rows in torch.split(some, 32)]
        return Reader(self._plain(), self.workers, "train", lasting=False).read(keys)

    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[Batch]:
        index = self._index[split]
        keys = [(epoch, index[positions].tolist()) for positions in order]
        return (batch.to(self.device) for batch in self._readers[split].read(keys))

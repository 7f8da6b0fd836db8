"""Samples read by workers while the model is busy."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

T = TypeVar("T")


class Reader(Generic[T]):
    """Reads what keys ask for, in their order, until something is words: those say what cannot be read.

    workers  Processes that read, at most one a core; 0 reads where samples are used. What is read does not depend on it.
    name     What is read, for those who ask wrongly.
    lasting  Whether workers stay after a pass.
    """

    def __init__(self, samples: Dataset[T | str], workers: int, name: str, *, lasting: bool = True) -> None:
        self.workers, self.name = min(workers, cores()), name
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


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

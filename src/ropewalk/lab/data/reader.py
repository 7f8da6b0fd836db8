"""Samples read by workers while the model is busy."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

T = TypeVar("T")


class Reader(Generic[T]):
    """Reads what keys ask for, in their order, until something is words: those say what cannot be read.

    workers  Processes that read, at most one a core, which stay; 0 reads where samples are used.
    """

    def __init__(self, samples: Dataset[T | str], workers: int) -> None:
        self._asked: list[Any] = []
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = min(workers, cores)
        self._loader = DataLoader(
            samples,
            batch_size=None,
            sampler=self._asked,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # it draws from no global one
        )

    def read(self, keys: Sequence[Any]) -> Iterator[T]:
        """A sample for each key; one pass at a time."""
        self._asked[:] = keys
        for sample in self._loader:
            if isinstance(sample, str):
                raise ValueError(sample)
            yield sample

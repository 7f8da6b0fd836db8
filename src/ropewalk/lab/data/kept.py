"""Samples that are the same in every epoch: read once from their files, they stay on the device."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ropewalk.lab.data.base import Batch

MOST = 2**30
"""Bytes of a split's images beyond which its files are read anew in every pass."""


class Kept:
    """What has been read of a split of so many samples, images uint8 of this shape (C *size)."""

    def __init__(self, count: int, shape: Sequence[int], device: torch.device) -> None:
        images = torch.empty(count, *shape, dtype=torch.uint8, device=device)
        labels, index = torch.zeros(2, count, dtype=torch.int64, device=device)
        self._whole, self._there = Batch(images, labels, index), torch.zeros(count, dtype=torch.bool)

    @staticmethod
    def fits(count: int, shape: Sequence[int]) -> bool:
        """Whether such a split may stay in memory."""
        return count * math.prod(shape) <= MOST

    def batches(self, order: Sequence[Tensor], read: Callable[[list[Tensor]], Iterator[Batch]]) -> Iterator[Batch]:
        """The batches of a pass, of which nothing is read that was read before."""
        lacking = [positions[~self._there[positions]] for positions in order]
        if not any(map(len, lacking)):
            return picked(self._whole, order)
        return self._passing(order, lacking, read([some for some in lacking if len(some)]))

    def _passing(self, order: Sequence[Tensor], lacking: Sequence[Tensor], found: Iterator[Batch]) -> Iterator[Batch]:
        device = self._whole.labels.device
        for positions, some in zip(order, lacking, strict=True):
            if len(some):
                for whole, part in zip(self._whole.tensors(), next(found).tensors(), strict=True):
                    whole[some.to(device)] = part
                self._there[some] = True
            yield self._whole[positions.to(device)]


def picked(whole: Batch, order: Sequence[Tensor]) -> Iterator[Batch]:
    """Batches of a split that is in memory. All positions go to its device in one go."""
    empty = torch.empty(0, dtype=torch.int64)
    rows = torch.cat([empty, *order]).to(whole.labels.device)
    for some in torch.split(rows, [len(positions) for positions in order]):
        yield whole[some]

"""Which samples of a training set are trained on and which are kept for validation, by seed and class by class.

Each sample draws a number from the seed and its index, and these order the samples of a class; the k-th of n, from 0 on,
has the place (k + 1/2) / n. The validation set has the places below `validation`. What is left is placed anew by other
draws, and the places below `fraction` are trained on. So classes keep their shares to within half a sample, the validation
set does not depend on `fraction`, and smaller fractions lie inside larger ones. Every class keeps one sample to train on.
"""

import torch
from torch import Tensor

from ropewalk.lab.data.order import by_draw

VALIDATION, FRACTION, TEST = 1002, 1003, 1004
"""Streams of draws."""


def parts(labels: Tensor, *, seed: int, validation: float, fraction: float) -> tuple[Tensor, Tensor]:
    """Indices of the samples to train on and of those for validation, each in ascending order."""
    if not 0 <= validation < 1:
        raise ValueError(f"validation must be from 0 up to 1, got {validation}")
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be above 0 and at most 1, got {fraction}")
    rest, held = held_out(labels, validation, seed=seed, stream=VALIDATION)
    rank, size = _ranks(labels[rest], rest, seed, FRACTION)
    return rest[((rank + 0.5) / size < fraction) | (rank == 0)], held


def held_out(labels: Tensor, share: float, *, seed: int, stream: int) -> tuple[Tensor, Tensor]:
    """Indices of the rest and of a share of each class."""
    index = torch.arange(len(labels))
    rank, size = _ranks(labels, index, seed, stream)
    held = ((rank + 0.5) / size < share) & (rank < size - 1)
    return index[~held], index[held]


def _ranks(labels: Tensor, index: Tensor, seed: int, stream: int) -> tuple[Tensor, Tensor]:
    """Where each sample stands in the drawn order of its class, and how many the class has, in float64."""
    order = by_draw(index, seed=seed, epoch=0, stream=stream)
    order = order[labels[order].argsort(stable=True)]
    sizes = labels.bincount()
    first = sizes.cumsum(0) - sizes
    rank = torch.empty_like(labels).scatter_(0, order, torch.arange(len(labels)) - first[labels[order]])
    return rank.double(), sizes[labels].double()

"""Which samples of a part come when, and in which process: positions from 0 on, one tensor a batch."""

import torch
from torch import Tensor

from ropewalk.encoding import positive
from ropewalk.lab.draws import words

SHUFFLE = 1001
"""The stream of draws that orders an epoch; those of augmentation are others."""


def epoch_order(
    count: int, batch: int, *, seed: int, epoch: int, rank: int = 0, world: int = 1, pairs: bool = True
) -> list[Tensor]:
    """The shuffled order of an epoch: of each batch of exactly `batch` samples, the share of one of `world` processes.

    What is left over at the end of an epoch is dropped. A share is a run of the batch of even length, so that neighbours
    (2i, 2i + 1), which mixup pairs, stay together: side by side, the shares of all processes are the batch of one. Without
    `pairs` a share may have any length.
    """
    batch, world = positive("batch", batch), positive("world", world)
    _check_rank(rank, world)
    if pairs and batch % (2 * world):
        raise ValueError(f"batch must be a multiple of 2 · world, so that shares are even, got {batch} and {world}")
    if batch % world:
        raise ValueError(f"batch must be a multiple of world, so that shares are equal, got {batch} and {world}")
    if count < batch:
        raise ValueError(f"batch must be at most the number of samples, got {batch} and {count}")
    order = by_draw(torch.arange(count), seed=seed, epoch=epoch, stream=SHUFFLE)
    whole = order[: count - count % batch].view(-1, world, batch // world)
    return list(whole[:, rank])


def in_order(count: int, batch: int, rank: int = 0, world: int = 1) -> list[Tensor]:
    """Every sample once, in order: the share of one process of each batch. Those of the last batch may be short or empty.

    All processes get as many tensors, so that they stay in step.
    """
    batch, world = positive("batch", batch), positive("world", world)
    _check_rank(rank, world)
    return [part.tensor_split(world)[rank] for part in torch.split(torch.arange(count), batch) if len(part)]


def spread(count: int, most: int) -> Tensor:
    """At most so many of the samples, at even distances among them, the first and the last included."""
    return torch.linspace(0, count - 1, min(most, count), dtype=torch.float64).round().long()


def by_draw(index: Tensor, *, seed: int, epoch: int, stream: int) -> Tensor:
    """The positions of samples, ordered by a number that each draws for itself; no two draw the same."""
    return words(seed, epoch, index, stream, 1)[:, 0].argsort()


def _check_rank(rank: int, world: int) -> None:
    if not 0 <= rank < world:
        raise ValueError(f"rank must be from 0 to world - 1, got {rank} of {world}")

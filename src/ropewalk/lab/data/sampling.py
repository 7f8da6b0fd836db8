"""The order of samples in an epoch, the share of each process, and the split into training and validation set."""

import torch
from torch import Tensor

from ropewalk.arguments import positive
from ropewalk.lab.hash_random import draw_words

# The random stream that orders an epoch, different from those of augmentation.
SHUFFLE_STREAM = 1001


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
        raise ValueError(f"batch must be a multiple of {_format_divisor(2 * world, world)}, got {batch}")
    if batch % world:
        raise ValueError(f"batch must be a multiple of {_format_divisor(world, world)}, got {batch}")
    if count < batch:
        raise ValueError(f"batch must be at most {count}, the number of training samples, got {batch}")
    order = order_by_draw(torch.arange(count), seed=seed, epoch=epoch, stream=SHUFFLE_STREAM)
    # Each row is a batch, cut into the runs of the processes.
    whole = order[: count - count % batch].view(-1, world, batch // world)
    return list(whole[:, rank])


def sequential_order(count: int, batch: int, rank: int = 0, world: int = 1) -> list[Tensor]:
    """Every sample once, in order: the share of one process of each batch. Those of the last batch may be short or empty.

    All processes get as many tensors, so that they stay in step.
    """
    batch, world = positive("batch", batch), positive("world", world)
    _check_rank(rank, world)
    return [part.tensor_split(world)[rank] for part in torch.split(torch.arange(count), batch) if len(part)]


def spread_evenly(count: int, most: int) -> Tensor:
    """Indices of at most so many evenly spaced samples, with the first and the last."""
    return torch.linspace(0, count - 1, min(most, count), dtype=torch.float64).round().long()


def order_by_draw(index: Tensor, *, seed: int, epoch: int, stream: int) -> Tensor:
    """The positions of samples, ordered by a number that each draws for itself; no two draw the same."""
    return draw_words(seed, epoch, index, stream, 1)[:, 0].argsort()


def _format_divisor(divisor: int, world: int) -> str:
    """What a batch must be a multiple of, with the reason."""
    reason = "pairs of samples are not split" if divisor == 2 * world else "samples are shared equally"
    return f"{divisor}, since {reason}{'' if world == 1 else f' among {world} processes'}"


def _check_rank(rank: int, world: int) -> None:
    if not 0 <= rank < world:
        raise ValueError(f"rank must be from 0 to {world - 1}, below the number of processes, got {rank}")


# The split. Each sample draws a number from the seed and its index, and these order the samples of a class; the k-th of n,
# from 0 on, has the quantile (k + 1/2) / n. The validation set has the quantiles below `validation`. The others are ordered
# anew by other draws, and the quantiles below `fraction` are trained on. So classes keep their shares to within half a
# sample, the validation set does not depend on `fraction`, and smaller fractions lie inside larger ones. Every class keeps
# one sample to train on.

# Random streams.
VALIDATION_STREAM, FRACTION_STREAM, TEST_STREAM = 1002, 1003, 1004


def split_train_validation(labels: Tensor, *, seed: int, validation: float, fraction: float) -> tuple[Tensor, Tensor]:
    """Indices of the samples to train on and of those for validation, each in ascending order."""
    if not 0 <= validation < 1:
        raise ValueError(f"validation must be from 0 up to 1, got {validation}")
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be above 0 and at most 1, got {fraction}")
    rest, held = hold_out_share(labels, validation, seed=seed, stream=VALIDATION_STREAM)
    rank, size = _class_ranks(labels[rest], rest, seed, FRACTION_STREAM)
    return rest[((rank + 0.5) / size < fraction) | (rank == 0)], held


def hold_out_share(labels: Tensor, share: float, *, seed: int, stream: int) -> tuple[Tensor, Tensor]:
    """Indices of the rest and of a share of each class."""
    index = torch.arange(len(labels))
    rank, size = _class_ranks(labels, index, seed, stream)
    held = ((rank + 0.5) / size < share) & (rank < size - 1)
    return index[~held], index[held]


def _class_ranks(labels: Tensor, index: Tensor, seed: int, stream: int) -> tuple[Tensor, Tensor]:
    """The rank of each sample in the random order of its class, and the size of the class, in float64."""
    order = order_by_draw(index, seed=seed, epoch=0, stream=stream)
    order = order[labels[order].argsort(stable=True)]
    sizes = labels.bincount()
    first = sizes.cumsum(0) - sizes
    rank = torch.empty_like(labels).scatter_(0, order, torch.arange(len(labels)) - first[labels[order]])
    return rank.double(), sizes[labels].double()

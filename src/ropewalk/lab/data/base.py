"""What every data set is, wherever its images lie."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from ropewalk.encoding import one_of


@dataclass(frozen=True)
class Batch:
    """Images uint8 (B C *size), labels int64 (B,), and each sample's index int64 (B,) in the set that its file came with.

    Samples of the training set and of a validation set that was cut from it count together, whatever was cut.
    """

    images: Tensor
    labels: Tensor
    index: Tensor

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """All three."""
        return self.images, self.labels, self.index

    def __getitem__(self, rows: Tensor) -> "Batch":
        return Batch(*(whole[rows] for whole in self.tensors()))

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on a device; from pinned memory it goes there while others work."""
        ahead = self.images.device.type == "cpu"  # the other way, nobody would wait until it has come
        return Batch(*(whole.to(device, non_blocking=ahead) for whole in self.tensors()))

    def pin_memory(self) -> "Batch":
        """The same batch in memory that a GPU can fetch by itself; loaders ask for it by this name."""
        return Batch(*(whole.pin_memory() for whole in self.tensors()))


class Measured(ABC):
    """Images with moments."""

    @property
    def mean(self) -> tuple[float, ...]:
        """Of each channel of the images that are trained on, which lie in [0, 1]."""
        return self._moments[0]

    @property
    def std(self) -> tuple[float, ...]:
        """The deviation of each channel of the images that are trained on."""
        return self._moments[1]

    @cached_property
    @abstractmethod
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation."""


class Data(Measured):
    """A training, a validation and a test set.

    classes   Their names; labels are places in this list.
    channels  Of the images, and `size` their sides: (rows, columns) or (slices, rows, columns).
    counts    Samples in "train", "validation" and "test".
    """

    name: str
    classes: list[str]
    channels: int
    size: tuple[int, ...]
    counts: dict[str, int]
    device = torch.device("cpu")

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {split}" for split, count in self.counts.items())
        return f"{self.name}: {counts}; {len(self.classes)} classes, {self.channels} × {' × '.join(map(str, self.size))}"

    def facts(self) -> dict[str, Any]:
        """What tells these data from others, as plain JSON values."""
        shape = {"classes": len(self.classes), "channels": self.channels, "size": list(self.size)}
        return {**shape, "counts": dict(self.counts), "mean": list(self.mean), "std": list(self.std)}

    def to(self, device: torch.device | str) -> Self:
        """The same data; batches come on this device from now on."""
        self.device = torch.device(device)
        return self

    def batches(self, split: str, order: Sequence[Tensor], epoch: int = 0) -> Iterator[Batch]:
        """A batch for each tensor of positions in the split, int64 (B,). `epoch` is what random crops depend on."""
        count = self.counts[one_of("split", split, self.counts)]
        return self._batches(split, [_checked(positions, split, count) for positions in order], epoch)

    @abstractmethod
    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[Batch]:
        """Batches of a split that there is; positions are right and on the CPU."""


def same(facts: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether facts are of the same data: moments may differ by rounding, which is not the same on all devices."""
    return facts.keys() == others.keys() and all(_close(facts[name], others[name]) for name in facts)


def _close(one: Any, other: Any) -> bool:
    """Whether values are the same: lists of numbers that are not whole, to rounding."""
    if isinstance(one, list) and any(isinstance(value, float) for value in one):
        return len(one) == len(other) and torch.allclose(torch.tensor(one), torch.tensor(other))
    return bool(one == other)


def _checked(positions: Tensor, split: str, count: int) -> Tensor:
    """Positions if they are in the split, on the CPU."""
    if positions.ndim != 1 or positions.dtype != torch.int64:
        raise ValueError(f"order must have tensors of int64 (B,), got {positions.dtype} {tuple(positions.shape)}")
    positions = positions.cpu()
    if len(positions) and not 0 <= positions.min() <= positions.max() < count:
        came = f"{positions.min()} to {positions.max()}"
        raise ValueError(f"order must have positions from 0 to {count - 1} in {split!r}, got {came}")
    return positions

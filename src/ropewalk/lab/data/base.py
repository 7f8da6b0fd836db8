"""What all datasets share: batches, splits, image sizes and moments.

`ImageData` is a dataset of images with labels, whether its images are in files or in memory; `MemoryData` holds all images
on one device and picks batches there. `SampleCache` keeps decoded images of a split on the device, if they are the same in
every epoch.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.arguments import one_of, positives
from ropewalk.lab.data.sampling import split_train_validation

# Images that are converted to float at once, which takes four times their memory.
RESIZE_CHUNK = 1024


def resolve_sides(size: int | Sequence[int], axes: int) -> tuple[int, ...]:
    """Sides as they were asked for, one number being all."""
    sides = positives("size", tuple(size) if isinstance(size, Sequence) else (size,) * axes)
    if len(sides) != axes:
        raise ValueError(f"size must be one number or {axes}, got {sides}")
    return sides


def resize_images(images: Tensor, size: tuple[int, ...]) -> Tensor:
    """Images of another size, bilinear and antialiased; volumes as in `resample_volumes`."""
    if images.shape[2:] == size:
        return images
    out = images.new_empty(*images.shape[:2], *size)
    for i in range(0, len(images), RESIZE_CHUNK):
        chunk = images[i : i + RESIZE_CHUNK].float()
        chunk = (
            F.interpolate(chunk, size, mode="bilinear", antialias=True) if len(size) == 2 else resample_volumes(chunk, size)
        )
        out[i : i + RESIZE_CHUNK] = chunk.round_().clamp_(0, 255)
    return out


def resample_volumes(volumes: Tensor, size: tuple[int, ...]) -> Tensor:
    """Float volumes (N C D H W) of another size: means of what cells cover along axes that shrink, trilinear along others.

    So an occupancy becomes the share of a cell that is filled. Where a side is no multiple of the new one, a cell counts all
    voxels that it touches.
    """
    fewer = tuple(min(old, new) for old, new in zip(volumes.shape[2:], size, strict=True))
    volumes = volumes if fewer == volumes.shape[2:] else F.interpolate(volumes, fewer, mode="area")
    return volumes if fewer == size else F.interpolate(volumes, size, mode="trilinear")


def channel_moments(some: Iterable[Tensor], channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel of images (N C *size), in [0, 1]. Sums are of integers, hence exact."""
    count, first, second = 0, [0] * channels, [0] * channels
    for images in some:
        rows = images.transpose(0, 1).flatten(1)
        count += rows.shape[1]
        first = [a + b for a, b in zip(first, rows.sum(1, dtype=torch.int64).tolist(), strict=True)]
        squares = rows.int().square().sum(1, dtype=torch.int64).tolist()
        second = [a + b for a, b in zip(second, squares, strict=True)]
    mean = tuple(a / count / 255 for a in first)
    return mean, tuple((count * b - a * a) ** 0.5 / count / 255 for a, b in zip(first, second, strict=True))


@dataclass(frozen=True)
class ImageBatch:
    """Images uint8 (B C *size), labels int64 (B,), and each sample's index int64 (B,) in the set that its file came with.

    Samples of the training set and of a validation set that was cut from it count together, whatever was cut.
    """

    images: Tensor
    labels: Tensor
    index: Tensor

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """All three."""
        return self.images, self.labels, self.index

    def __getitem__(self, rows: Tensor) -> "ImageBatch":
        return ImageBatch(*(whole[rows] for whole in self.tensors()))

    def to(self, device: torch.device | str) -> "ImageBatch":
        """The same batch on a device; from pinned memory it goes there while others work."""
        # Copies to the CPU must block: nothing synchronizes before their values are read there.
        ahead = self.images.device.type == "cpu"
        return ImageBatch(*(whole.to(device, non_blocking=ahead) for whole in self.tensors()))

    def pin_memory(self) -> "ImageBatch":
        """The same batch in memory that a GPU can fetch by itself; loaders ask for it by this name."""
        return ImageBatch(*(whole.pin_memory() for whole in self.tensors()))


class HasMoments(ABC):
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


class ImageData(HasMoments):
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

    def batches(self, split: str, order: Sequence[Tensor], epoch: int = 0) -> Iterator[ImageBatch]:
        """A batch for each tensor of positions in the split, int64 (B,). `epoch` is what random crops depend on."""
        count = self.counts[one_of("split", split, self.counts)]
        return self._batches(split, [_checked_positions(positions, split, count) for positions in order], epoch)

    @abstractmethod
    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[ImageBatch]:
        """Batches of a split that there is; positions are right and on the CPU."""


def same_data_facts(facts: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether facts are of the same data: moments may differ by rounding, which is not the same on all devices."""
    return facts.keys() == others.keys() and all(_nearly_equal(facts[name], others[name]) for name in facts)


def _nearly_equal(one: Any, other: Any) -> bool:
    """Whether values are the same: lists of numbers that are not whole, to rounding."""
    if isinstance(one, list) and any(isinstance(value, float) for value in one):
        return len(one) == len(other) and torch.allclose(torch.tensor(one), torch.tensor(other))
    return bool(one == other)


def _checked_positions(positions: Tensor, split: str, count: int) -> Tensor:
    """Positions if they are in the split, on the CPU."""
    if positions.ndim != 1 or positions.dtype != torch.int64:
        raise ValueError(f"order must have tensors of int64 (B,), got {positions.dtype} {tuple(positions.shape)}")
    positions = positions.cpu()
    if len(positions) and not 0 <= positions.min() <= positions.max() < count:
        came = f"{positions.min()} to {positions.max()}"
        raise ValueError(f"order must have positions from 0 to {count - 1} in {split!r}, got {came}")
    return positions


class CropRange(NamedTuple):
    """The range of a box's area over the image's, and of its width over its height."""

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)


# Splits whose images have more bytes are read from their files in every epoch.
MAX_CACHE_BYTES = 2**30


class SampleCache:
    """What has been read of a split of so many samples, images uint8 of this shape (C *size)."""

    def __init__(self, count: int, shape: Sequence[int], device: torch.device) -> None:
        images = torch.empty(count, *shape, dtype=torch.uint8, device=device)
        labels, index = torch.zeros(2, count, dtype=torch.int64, device=device)
        self._whole, self._there = ImageBatch(images, labels, index), torch.zeros(count, dtype=torch.bool)

    @staticmethod
    def fits(count: int, shape: Sequence[int]) -> bool:
        """Whether such a split may stay in memory."""
        return count * math.prod(shape) <= MAX_CACHE_BYTES

    def batches(self, order: Sequence[Tensor], read: Callable[[list[Tensor]], Iterator[ImageBatch]]) -> Iterator[ImageBatch]:
        """The batches of a pass, of which nothing is read that was read before."""
        lacking = [positions[~self._there[positions]] for positions in order]
        if not any(map(len, lacking)):
            return pick_batches(self._whole, order)
        return self._passing(order, lacking, read([some for some in lacking if len(some)]))

    def _passing(
        self, order: Sequence[Tensor], lacking: Sequence[Tensor], found: Iterator[ImageBatch]
    ) -> Iterator[ImageBatch]:
        device = self._whole.labels.device
        for positions, some in zip(order, lacking, strict=True):
            if len(some):
                for whole, part in zip(self._whole.tensors(), next(found).tensors(), strict=True):
                    whole[some.to(device)] = part
                self._there[some] = True
            yield self._whole[positions.to(device)]


def pick_batches(whole: ImageBatch, order: Sequence[Tensor]) -> Iterator[ImageBatch]:
    """Batches of a split that is in memory. All positions go to its device in one go."""
    empty = torch.empty(0, dtype=torch.int64)
    rows = torch.cat([empty, *order]).to(whole.labels.device)
    for some in torch.split(rows, [len(positions) for positions in order]):
        yield whole[some]


# Images (N C *sides) and labels (N,).
LabeledImages = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class ImageSource:
    """A data set as its file has it.

    validation  None if the file has none of its own.
    test        Reads the test set, of `count` samples.
    """

    name: str
    classes: list[str]
    train: LabeledImages
    validation: LabeledImages | None
    test: Callable[[], LabeledImages]
    count: int


class MemoryData(ImageData):
    """A source, cut into training and validation set; images are resized once, if a size is given."""

    def __init__(
        self, source: ImageSource, *, seed: int, validation: float, fraction: float, size: int | Sequence[int] | None
    ) -> None:
        images, labels = source.train
        self.name, self.classes, self.channels = source.name, source.classes, images.shape[1]
        self.size = tuple(images.shape[2:]) if size is None else resolve_sides(size, images.ndim - 2)
        own = source.validation
        rows, held = split_train_validation(labels, seed=seed, validation=0.0 if own else validation, fraction=fraction)
        # The index of a sample is its position in the file, so that its random draws do not depend on the split.
        self._parts = {
            "train": self._sized(images[rows], labels[rows], rows),
            "validation": self._sized(*own) if own else self._sized(images[held], labels[held], held),
        }
        self._read_test = source.test
        self.counts = {split: len(part.labels) for split, part in self._parts.items()} | {"test": source.count}

    def _sized(self, images: Tensor, labels: Tensor, index: Tensor | None = None) -> ImageBatch:
        """A whole split, on the device."""
        index = torch.arange(len(labels)) if index is None else index
        return ImageBatch(resize_images(images, self.size), labels, index).to(self.device)

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return channel_moments(torch.split(self._parts["train"].images, RESIZE_CHUNK), self.channels)

    def to(self, device: torch.device | str) -> Self:
        """The same data, moved to the device."""
        self._parts = {split: part.to(device) for split, part in self._parts.items()}
        return super().to(device)

    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[ImageBatch]:
        if split not in self._parts:
            self._parts[split] = self._test()
        return pick_batches(self._parts[split], order)

    def _test(self) -> ImageBatch:
        images, labels = self._read_test()
        if len(labels) != self.counts["test"]:
            raise ValueError(f"the test set of {self.name} must have {self.counts['test']} samples, got {len(labels)}")
        return self._sized(images, labels)

"""Datasets in a folder of images, read and cropped by workers while the model computes.

A folder has train/ and test/, with a folder of images for each class, and may have val/ for validation. If there is
val/ but no test/, as in ImageNet, val/ is the test set. `ImageCrops` converts images to RGB and crops them to one size.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.datasets import DatasetFolder, ImageFolder  # type: ignore[import-untyped]
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]

from ropewalk.lab.data.base import CropRange, ImageBatch, SampleCache, channel_moments, resolve_sides
from ropewalk.lab.data.image_files import read_rgb_image
from ropewalk.lab.data.loader import WorkerData
from ropewalk.lab.data.sampling import split_train_validation
from ropewalk.lab.hash_random import draw_uniform

# Random crops of training: by default an area of 8 % to 100 % of the image and a ratio of width to height of 3/4 to 4/3,
# log-uniform. The first of ten draws that fits into the image is used, else the largest centered box of an allowed ratio.
# Evaluation resizes the image until 7/8 of it cover the size, and crops the center. Both use antialiased bilinear
# interpolation. Draws depend on the seed, the epoch and the index of the sample alone.
FILE_CROP_TRIES = 10
# The part of the image that evaluation uses, along its shorter side: 224 of 256 pixels.
CENTER_SHARE = 7 / 8
# Random stream.
FILE_CROP_STREAM = 1005

# Top, left, height, width.
PixelBox = tuple[int, int, int, int]
# Four numbers in [0, 1) for each try.
CropDraws = list[list[float]]


class ImageCrops(Dataset[ImageBatch | str]):
    """Batches of cropped images. A file that cannot be read yields the message of its error in place of a batch.

    A key is an epoch and the indices of the batch's samples.

    samples  Paths of files and their labels.
    crop     Range of the random resized crop; None crops the center.
    """

    what = "an image"

    def __init__(
        self, samples: Sequence[tuple[str, int]], size: tuple[int, ...], seed: int = 0, crop: CropRange | None = None
    ) -> None:
        self.samples, self.size, self.seed, self.crop = samples, size, seed, crop

    @property
    def still(self) -> bool:
        """Whether a sample is the same in every epoch."""
        return self.crop is None

    def __getitem__(self, key: tuple[int, list[int]]) -> ImageBatch | str:
        epoch, rows = key
        index = torch.tensor(rows, dtype=torch.int64)
        images = torch.empty(len(rows), 3, *self.size, dtype=torch.uint8)
        for out, row, draws in zip(images, rows, self._draws(epoch, index), strict=True):
            try:
                found = self._open(self.samples[row][0], draws)
            except Exception as error:
                return f"{self.samples[row][0]} cannot be read as {self.what}: {type(error).__name__}: {error}"
            out.copy_(self._cut(found, draws))
        return ImageBatch(images, torch.tensor([self.samples[row][1] for row in rows], dtype=torch.int64), index)

    def _draws(self, epoch: int, index: Tensor) -> list[CropDraws]:
        """The random numbers of each sample; empty lists without a random crop."""
        if self.crop is None:
            return [[]] * len(index)
        return (
            draw_uniform(self.seed, epoch, index, FILE_CROP_STREAM, 4 * FILE_CROP_TRIES)
            .view(-1, FILE_CROP_TRIES, 4)
            .tolist()
        )

    def _open(self, path: str, draws: CropDraws) -> Any:
        """Read the file of a sample, before it is cropped."""
        return read_rgb_image(path)

    def _cut(self, image: Any, draws: CropDraws) -> Tensor:
        rows, columns = self.size[-2:]
        if self.crop is None:
            return center_crop(image, (rows, columns))
        return crop_and_resize(image, choose_crop_box(F.get_size(image), draws, self.crop), (rows, columns))


def crop_and_resize(image: Any, area: PixelBox, size: tuple[int, int]) -> Tensor:
    """Crop an image, or all frames (n 3 H W), to a box, and resize the result."""
    return _to_tensor(F.resized_crop(image, *area, size))


def center_crop(image: Any, size: tuple[int, int]) -> Tensor:
    """Resize an image, or all frames (n 3 H W), and crop its center."""
    height, width = F.get_size(image)
    factor = max(size[0] / height, size[1] / width) / CENTER_SHARE
    whole = F.resize(image, [max(round(height * factor), size[0]), max(round(width * factor), size[1])])
    return _to_tensor(F.center_crop(whole, size))


def _to_tensor(image: Any) -> Tensor:
    pixels: Tensor = image if isinstance(image, Tensor) else F.pil_to_tensor(image)
    return pixels


def choose_crop_box(size: Sequence[int], draws: CropDraws, crop: CropRange) -> PixelBox:
    """The box of a random resized crop: the first draw that fits, else the largest centered box of an allowed shape."""
    height, width = size
    least, most = crop.scale
    low, high = map(math.log, crop.ratio)
    for area, ratio, down, along in draws:
        pixels, slope = height * width * (least + area * (most - least)), math.exp(low + ratio * (high - low))
        rows, columns = round((pixels / slope) ** 0.5), round((pixels * slope) ** 0.5)
        if 0 < rows <= height and 0 < columns <= width:
            return int(down * (height - rows + 1)), int(along * (width - columns + 1)), rows, columns
    rows, columns = min(height, round(width / crop.ratio[0])), min(width, round(height * crop.ratio[1]))
    return (height - rows) // 2, (width - columns) // 2, rows, columns


# Height and width of images, if no size is given.
DEFAULT_IMAGE_SIZE = 224
# Mean and deviation are taken over at most so many images.
MAX_MOMENT_IMAGES = 2048


class FolderData(WorkerData):
    """A dataset in a folder. If the folder has no validation set, a share of the training set is held out.

    Mean and standard deviation are computed from at most 2,048 evenly spaced training images, with the crop of evaluation.
    Images with that crop are cached in memory if the split is small enough, so that their files are read once.

    workers  Number of worker processes, at most one per core; 0 reads in the calling process. Batches do not depend on it.
    crop     Range of the random crop of training images; None crops the center, as in evaluation.
    """

    things = "images"
    usual: tuple[int, ...] = (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)
    few = MAX_MOMENT_IMAGES

    def __init__(
        self,
        path: Path,
        *,
        seed: int,
        validation: float,
        fraction: float,
        size: int | Sequence[int] | None,
        workers: int,
        crop: CropRange | None = None,
    ) -> None:
        files = _list_splits(path, self._found)
        self.name, self.classes, self.channels = path.name, files["train"].classes, 3
        self.size = self.usual if size is None else resolve_sides(size, len(self.usual))
        labels = torch.tensor(files["train"].targets)
        own = "validation" in files
        train, held = split_train_validation(labels, seed=seed, validation=0.0 if own else validation, fraction=fraction)
        test = torch.arange(len(files["test"]))
        index = {"train": train, "validation": torch.arange(len(files["validation"])) if own else held, "test": test}
        self._crops = {
            "train": self._cuts(files["train"].samples, seed, crop),
            "validation": self._cuts(files["validation" if own else "train"].samples),
            "test": self._cuts(files["test"].samples),
        }
        self._kept: dict[str, SampleCache] = {}
        super().__init__(self._crops, index, workers)

    def to(self, device: torch.device | str) -> Self:
        """The same data on a device, with an empty cache."""
        self._kept = {}
        return super().to(device)

    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[ImageBatch]:
        count, shape, read = self.counts[split], (self.channels, *self.size), super()._batches
        # Random crops differ in every epoch, so that caching them is useless.
        if not self._crops[split].still or not SampleCache.fits(count, shape):
            return read(split, order, epoch)
        kept = self._kept[split] = self._kept.get(split) or SampleCache(count, shape, self.device)
        return kept.batches(order, lambda some: read(split, some, epoch))

    def _found(self, path: Path) -> DatasetFolder:
        """List the files of each class, each of which must have some."""
        try:
            return self._files(path)
        except FileNotFoundError as error:
            raise ValueError(f"{path} must have a folder of {self.things} for each class: {error}") from error

    def _files(self, path: Path) -> DatasetFolder:
        return ImageFolder(path)

    def _cuts(
        self, samples: Sequence[tuple[str, int]], seed: int | None = None, crop: CropRange | None = None
    ) -> ImageCrops:
        """The dataset of cropped images: random crops with a seed and a crop range, else the crop of evaluation."""
        return ImageCrops(samples, self.size, seed or 0, crop)

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return channel_moments((batch.images for batch in self._some(self.few)), self.channels)

    def _plain(self) -> ImageCrops:
        return self._cuts(self._crops["train"].samples)


def _list_splits(path: Path, found: Callable[[Path], DatasetFolder]) -> dict[str, DatasetFolder]:
    """List the files of each split, all of which must have the same classes."""
    there = [part for part in ("train", "val", "test") if (path / part).is_dir()]
    if "train" not in there or len(there) < 2:
        raise ValueError(f"{path} must have train/ and test/ or val/, got {', '.join(there) or 'none of them'}")
    split = {"train": "train", "val": "validation" if "test" in there else "test", "test": "test"}
    files = {split[part]: found(path / part) for part in there}
    for part in there:
        extra = set(files["train"].classes) ^ set(files[split[part]].classes)
        if extra:
            raise ValueError(f"{path / part} must have the classes of train/, but only one has {', '.join(sorted(extra))}")
    return files

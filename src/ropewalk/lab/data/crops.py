"""Images of files, cut to size: the part of a folder's work that is done in other processes.

In training, if a crop is asked for, a random resized one: an area of 8 % to 100 % of the image and a ratio of width to
height of 3/4 to 4/3, if nothing else is said, its logarithm uniform; up to ten are drawn until one fits into the image, and
if none does, it is the largest in the middle of such a ratio. At evaluation, the image is resized until 7/8 of it cover the
size, and the middle is cut out. Both resize by antialiased bilinear interpolation. Draws follow from seed, epoch and the
index of the sample.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]

from ropewalk.lab.data.base import Batch
from ropewalk.lab.data.crop import Crop
from ropewalk.lab.data.rgb import rgb
from ropewalk.lab.draws import uniform

TRIES = 10
MIDDLE = 7 / 8
"""The part of the image that evaluation looks at, along its shorter side: 224 of 256 pixels."""
CROP = 1005
"""The stream of draws."""

Box = tuple[int, int, int, int]
"""Top, left, height, width."""
Draws = list[list[float]]
"""Four numbers in [0, 1) for each try."""


class Crops(Dataset[Batch | str]):
    """Batches of images that are cut to size, at random if there is a crop; or words about a file that is no image.

    They are words and not an error, because an error from a worker comes in a cycle of references with its loader, which
    then waits seconds for each worker to end.

    samples  Files and labels. A key is an epoch and the indices of a batch among them.
    """

    what = "an image"

    def __init__(
        self, samples: Sequence[tuple[str, int]], size: tuple[int, ...], seed: int = 0, crop: Crop | None = None
    ) -> None:
        self.samples, self.size, self.seed, self.crop = samples, size, seed, crop

    @property
    def still(self) -> bool:
        """Whether a sample is the same in every epoch."""
        return self.crop is None

    def __getitem__(self, key: tuple[int, list[int]]) -> Batch | str:
        epoch, rows = key
        index = torch.tensor(rows, dtype=torch.int64)
        images = torch.empty(len(rows), 3, *self.size, dtype=torch.uint8)
        for out, row, draws in zip(images, rows, self._draws(epoch, index), strict=True):
            try:
                found = self._open(self.samples[row][0], draws)
            except Exception as error:
                return f"{self.samples[row][0]} cannot be read as {self.what}: {type(error).__name__}: {error}"
            out.copy_(self._cut(found, draws))
        return Batch(images, torch.tensor([self.samples[row][1] for row in rows], dtype=torch.int64), index)

    def _draws(self, epoch: int, index: Tensor) -> list[Draws]:
        """The numbers of each sample; none where nothing is random."""
        if self.crop is None:
            return [[]] * len(index)
        return uniform(self.seed, epoch, index, CROP, 4 * TRIES).view(-1, TRIES, 4).tolist()

    def _open(self, path: str, draws: Draws) -> Any:
        """What is cut."""
        return rgb(path)

    def _cut(self, image: Any, draws: Draws) -> Tensor:
        rows, columns = self.size[-2:]
        if self.crop is None:
            return middle(image, (rows, columns))
        return cropped(image, box(F.get_size(image), draws, self.crop), (rows, columns))


def cropped(image: Any, area: Box, size: tuple[int, int]) -> Tensor:
    """What lies in the box of an image, or of all frames (n 3 H W), at the size."""
    return _pixels(F.resized_crop(image, *area, size))


def middle(image: Any, size: tuple[int, int]) -> Tensor:
    """The middle of an image, or of all frames (n 3 H W), at the size."""
    height, width = F.get_size(image)
    factor = max(size[0] / height, size[1] / width) / MIDDLE
    whole = F.resize(image, [max(round(height * factor), size[0]), max(round(width * factor), size[1])])
    return _pixels(F.center_crop(whole, size))


def _pixels(image: Any) -> Tensor:
    pixels: Tensor = image if isinstance(image, Tensor) else F.pil_to_tensor(image)
    return pixels


def box(size: Sequence[int], draws: Draws, crop: Crop) -> Box:
    """A random box in an image of that size, by as many tries as it takes."""
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

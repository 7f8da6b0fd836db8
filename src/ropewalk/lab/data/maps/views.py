"""Images and maps cut to size: the part of the work that is done in other processes.

In training a view has exactly the size of training. The image is scaled until its shorter side is that of the size, then
by a factor of 1/2 to 2, if nothing else is said, its logarithm uniform; where that leaves a side too short, until the view
is filled. The view is cut at a random place, and every other one is flipped. At evaluation each image stays whole and goes
alone: its shorter side becomes that of the size, both sides multiples of the patch, the longer one at most twice the
shorter; its map stays as it is. So nothing is padded, at any time. Images are resized by antialiased bilinear
interpolation, maps by the nearest pixel. Draws follow from seed, epoch and the index of the sample.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms.v2 import InterpolationMode  # type: ignore[import-untyped]
from torchvision.transforms.v2 import functional as F

from ropewalk.lab.data.base import Batch
from ropewalk.lab.data.crops import Box, cropped
from ropewalk.lab.data.maps.pairs import Pair, read
from ropewalk.lab.draws import uniform

VIEW = 1010
"""The stream of draws."""
LONGEST = 2
"""How many times as long as the shorter side the longer one may be at evaluation."""


class View(NamedTuple):
    """How training views are cut: whether at random, scaled by these factors, and whether flipped.

    Without `crop` the view is the middle of the image, as large as it can be.
    """

    crop: bool = False
    flip: bool = False
    scale: tuple[float, float] = (0.5, 2.0)


class Views(Dataset[Batch | str]):
    """Batches of views of training, or words about a file that is wrong, as `Crops` has them."""

    def __init__(
        self, pairs: Sequence[Pair], size: tuple[int, int], classes: int, binary: bool, view: View, seed: int = 0
    ) -> None:
        self.pairs, self.size, self.classes, self.binary, self.view, self.seed = pairs, size, classes, binary, view, seed

    def __getitem__(self, key: tuple[int, list[int]]) -> Batch | str:
        epoch, rows = key
        index = torch.tensor(rows, dtype=torch.int64)
        draws = uniform(self.seed, epoch, index, VIEW, 4).tolist()
        try:
            made = [self._view(row, own) for row, own in zip(rows, draws, strict=True)]
        except ValueError as error:
            return str(error)
        return Batch(torch.stack([image for image, _ in made]), torch.stack([map for _, map in made]), index)

    def _view(self, row: int, draws: Sequence[float]) -> tuple[Tensor, Tensor]:
        image, map = read(self.pairs[row], self.classes, binary=self.binary)
        area = box(F.get_size(image), self.size, draws, self.view)
        cut = cropped(image, area, self.size), numbers(F.resized_crop(map, *area, self.size, InterpolationMode.NEAREST))
        return (cut[0].flip(-1), cut[1].flip(-1)) if self.view.flip and draws[3] < 0.5 else cut


class Wholes(Dataset[Batch | str]):
    """Batches of one image, whole, and its map as it is; or words about a file that is wrong."""

    def __init__(self, pairs: Sequence[Pair], size: tuple[int, int], classes: int, binary: bool, patch: int) -> None:
        self.pairs, self.size, self.classes, self.binary, self.patch = pairs, size, classes, binary, patch

    def __getitem__(self, key: tuple[int, list[int]]) -> Batch | str:
        (row,) = key[1]
        try:
            image, map = read(self.pairs[row], self.classes, binary=self.binary)
        except ValueError as error:
            return str(error)
        sides = whole(F.get_size(image), self.size, self.patch)
        resized = F.pil_to_tensor(F.resize(image, list(sides)))
        return Batch(resized[None], numbers(map)[None], torch.tensor([row]))


def box(sides: Sequence[int], size: tuple[int, int], draws: Sequence[float], view: View) -> Box:
    """The pixels of an image of these sides that a view of that size shows."""
    least, most = map(math.log, view.scale)
    drawn = math.exp(least + draws[0] * (most - least)) if view.crop else 0.0
    fills = max(wanted / side for wanted, side in zip(size, sides, strict=True))
    factor = max(fills, drawn * min(size) / min(sides))
    rows, columns = (max(1, min(n, round(wanted / factor))) for n, wanted in zip(sides, size, strict=True))
    down, along = draws[1:3] if view.crop else (0.5, 0.5)
    return int(down * (sides[0] - rows + 1)), int(along * (sides[1] - columns + 1)), rows, columns


def whole(sides: Sequence[int], size: tuple[int, int], patch: int) -> tuple[int, int]:
    """The sides at which an image of these sides is evaluated."""
    short = min(size)
    rows, columns = (round(n * short / min(sides) / patch) * patch for n in sides)
    return min(rows, LONGEST * short), min(columns, LONGEST * short)


def numbers(map: Any) -> Tensor:
    """The class numbers of a map, int64 (rows columns)."""
    return torch.from_numpy(np.array(map)).long()

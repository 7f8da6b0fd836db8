"""Images and maps cut to size, as `sight` has it: the part of the work that is done in other processes.

Images are resized by antialiased bilinear interpolation, maps by the nearest pixel. A map that is judged by stays as it is.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms.v2 import InterpolationMode  # type: ignore[import-untyped]
from torchvision.transforms.v2 import functional as F

from ropewalk.lab.data.base import Batch
from ropewalk.lab.data.crops import cropped
from ropewalk.lab.data.maps.pairs import Pair, read
from ropewalk.lab.data.sight import Drawn, View, draw, looked_at, part_of


class Views(Dataset[Batch | str]):
    """Batches of views of training, or words about a file that is wrong, as `Crops` has them."""

    def __init__(
        self, pairs: Sequence[Pair], size: tuple[int, int], classes: int, binary: bool, view: View, seed: int = 0
    ) -> None:
        self.pairs, self.size, self.classes, self.binary, self.view, self.seed = pairs, size, classes, binary, view, seed

    def __getitem__(self, key: tuple[int, list[int]]) -> Batch | str:
        epoch, rows = key
        index = torch.tensor(rows, dtype=torch.int64)
        draws = draw(self.view, self.seed, epoch, index)
        try:
            made = [self._view(row, own) for row, own in zip(rows, draws, strict=True)]
        except ValueError as error:
            return str(error)
        return Batch(torch.stack([image for image, _ in made]), torch.stack([map for _, map in made]), index)

    def _view(self, row: int, drawn: Drawn) -> tuple[Tensor, Tensor]:
        image, map = read(self.pairs[row], self.classes, binary=self.binary)
        area = part_of(F.get_size(image), self.size, drawn)
        cut = cropped(image, area, self.size), numbers(F.resized_crop(map, *area, self.size, InterpolationMode.NEAREST))
        return (cut[0].flip(-1), cut[1].flip(-1)) if drawn.flip else cut


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
        sides = looked_at(F.get_size(image), self.size, self.patch)
        resized = F.pil_to_tensor(F.resize(image, list(sides)))
        return Batch(resized[None], numbers(map)[None], torch.tensor([row]))


def numbers(map: Any) -> Tensor:
    """The class numbers of a map, int64 (rows columns)."""
    return torch.from_numpy(np.array(map)).long()

"""Penn-Fudan's images of streets, with a box and a mask for each pedestrian. A box is the least that holds a mask."""

from pathlib import Path

import torch
from torch import Tensor
from torchvision.ops import masks_to_boxes  # type: ignore[import-untyped]

from ropewalk.lab.data.maps.pairs import Pair, look, numbers_of
from ropewalk.lab.data.pennfudan import files, split
from ropewalk.lab.data.scenes import Scene, Scenes, opened, some_of


class Pedestrians(Scenes):
    """Images of streets, read when they are asked for."""

    def __init__(self, folder: Path, *, fraction: float, masks: bool) -> None:
        self.name, self.classes, self.masks = folder.name, ["pedestrian"], masks
        self.files = files(folder)
        index = split(len(self.files))
        self.index = {**index, "train": some_of(index["train"], fraction)}

    def scene(self, number: int) -> Scene:
        """An image with its pedestrians."""
        image, masks = opened(self.files[number][0]), self._masks(number)
        if image.shape[-2:] != masks.shape[-2:]:
            came = f"{tuple(image.shape[-2:])} and {tuple(masks.shape[-2:])}"
            raise ValueError(f"{' and '.join(map(str, self.files[number]))} must have one size, got {came}")
        count = len(masks)
        boxes = masks_to_boxes(masks) + torch.tensor([0.0, 0.0, 1.0, 1.0])  # the last pixel is inside
        labels, crowd = torch.ones(count, dtype=torch.int64), torch.zeros(count, dtype=torch.bool)
        return Scene(image, boxes, labels, crowd, masks.flatten(1).sum(1).float(), masks if self.masks else None)

    def look_at(self, number: int) -> None:
        """An image and a mask of one size."""
        look(Pair(*self.files[number]))

    def things(self, part: str) -> int:
        """Pedestrians of a part."""
        return sum(len(self._masks(number)) for number in self.index[part].tolist())

    def _masks(self, number: int) -> Tensor:
        """Of each pedestrian, bool (n, rows, columns)."""
        numbers = torch.from_numpy(numbers_of(self.files[number][1]))
        there = numbers.unique()
        return numbers == there[there > 0, None, None]

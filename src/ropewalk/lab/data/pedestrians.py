"""The Penn-Fudan database of pedestrians: a folder with PNGImages/ and PedMasks/.

The mask of an image NAME.png is NAME_mask.png: 0 is background, k the k-th pedestrian. A box is the least that holds a mask.
A fixed permutation of the names, in their order, says what is what: of 170 images 40 are tested on and 20 validated by.
"""

from pathlib import Path

import torch
from torch import Tensor
from torchvision.ops import masks_to_boxes  # type: ignore[import-untyped]
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]

from ropewalk.lab.data.scenes import SEED, Scene, Scenes, opened, some_of

ALL, TEST, VALIDATION = 170, 40, 20
"""Images of the database, and of two parts of it; other folders are cut in the same shares."""


class Pedestrians(Scenes):
    """Images of streets, read when they are asked for."""

    def __init__(self, folder: Path, *, fraction: float, masks: bool) -> None:
        self.name, self.classes, self.masks = folder.name, ["pedestrian"], masks
        self.files = sorted((folder / "PNGImages").glob("*.png"))
        self.outlines = [folder / "PedMasks" / f"{file.stem}_mask.png" for file in self.files]
        if missing := [file.name for file in self.outlines if not file.is_file()]:
            raise ValueError(f"{folder / 'PedMasks'} must have a mask of each image; {missing[0]} is not there")
        self.index = split(len(self.files), fraction)

    def scene(self, number: int) -> Scene:
        """An image with its pedestrians."""
        image, masks = opened(self.files[number]), self._masks(number)
        if image.shape[-2:] != masks.shape[-2:]:
            came = f"{tuple(image.shape[-2:])} and {tuple(masks.shape[-2:])}"
            raise ValueError(f"{self.files[number]} and {self.outlines[number]} must have one size, got {came}")
        count = len(masks)
        boxes = masks_to_boxes(masks) + torch.tensor([0.0, 0.0, 1.0, 1.0])  # the last pixel is inside
        labels, crowd = torch.ones(count, dtype=torch.int64), torch.zeros(count, dtype=torch.bool)
        return Scene(image, boxes, labels, crowd, masks.flatten(1).sum(1).float(), masks if self.masks else None)

    def things(self, part: str) -> int:
        """Pedestrians of a part."""
        return sum(len(self._masks(number)) for number in self.index[part].tolist())

    def _masks(self, number: int) -> Tensor:
        """Of each pedestrian, bool (n, rows, columns)."""
        from PIL import Image

        try:
            with Image.open(self.outlines[number]) as file:
                numbers = F.pil_to_tensor(file)[0]
        except Exception as error:
            raise ValueError(f"{self.outlines[number]} cannot be read: {type(error).__name__}: {error}") from error
        there = numbers.unique()
        return numbers == there[there > 0, None, None]


def split(count: int, fraction: float) -> dict[str, Tensor]:
    """Which images are trained on, validated by and tested on."""
    test, validation = round(count * TEST / ALL), round(count * VALIDATION / ALL)
    if not (test and validation):
        raise ValueError(f"PNGImages/ must have at least 5 images, so that each part has one, got {count}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SEED))
    train = some_of(order[test + validation :], fraction)
    return {"train": train, "validation": order[test : test + validation], "test": order[:test]}

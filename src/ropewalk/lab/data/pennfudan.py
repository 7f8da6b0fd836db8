"""The Penn-Fudan database of pedestrians: images of streets, with a box and a mask for each pedestrian.

A folder has PNGImages/ and PedMasks/. The mask of an image NAME.png is NAME_mask.png: 0 is background, k the k-th
pedestrian. A box is the smallest that holds a mask. The database has no splits: a fixed permutation of the names, in their
order, assigns 40 of 170 images to the test set and 20 to the validation set.
"""

from pathlib import Path

import torch
from torch import Tensor
from torchvision.ops import masks_to_boxes  # type: ignore[import-untyped]

from ropewalk.lab.data.detection import DetectionData, ImageScene, choose_train_share, read_image_tensor
from ropewalk.lab.data.image_files import MapPair, check_map_pair, read_label_map

# Images of the database, of its test set and of its validation set; other folders are split in the same ratios.
PENNFUDAN_IMAGES, PENNFUDAN_TESTS, PENNFUDAN_VALIDATION = 170, 40, 20
# Seed of the permutation, the same for all runs.
PENNFUDAN_SEED = 0


def is_pennfudan(folder: Path) -> bool:
    """Whether a folder has its form."""
    return (folder / "PNGImages").is_dir() and (folder / "PedMasks").is_dir()


def list_pennfudan_files(folder: Path) -> list[tuple[Path, Path]]:
    """Images and their masks, by name."""
    images = sorted((folder / "PNGImages").glob("*.png"))
    found = [(image, folder / "PedMasks" / f"{image.stem}_mask.png") for image in images]
    if missing := [mask.name for _, mask in found if not mask.is_file()]:
        raise ValueError(f"{folder / 'PedMasks'} must have a mask of each image; {missing[0]} is not there")
    return found


def split_pennfudan(count: int) -> dict[str, Tensor]:
    """Which of so many images are trained on, validated by and tested on."""
    test, validation = (
        round(count * PENNFUDAN_TESTS / PENNFUDAN_IMAGES),
        round(count * PENNFUDAN_VALIDATION / PENNFUDAN_IMAGES),
    )
    if not (test and validation):
        raise ValueError(f"PNGImages/ must have at least 5 images, so that each part has one, got {count}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(PENNFUDAN_SEED))
    return {"train": order[test + validation :], "validation": order[test : test + validation], "test": order[:test]}


class PennFudanData(DetectionData):
    """Images of streets, read when they are asked for."""

    def __init__(self, folder: Path, *, fraction: float, masks: bool) -> None:
        self.name, self.classes, self.masks = folder.name, ["pedestrian"], masks
        self.files = list_pennfudan_files(folder)
        index = split_pennfudan(len(self.files))
        self.index = {**index, "train": choose_train_share(index["train"], fraction)}

    def scene(self, number: int) -> ImageScene:
        """An image with its pedestrians."""
        image, masks = read_image_tensor(self.files[number][0]), self._masks(number)
        if image.shape[-2:] != masks.shape[-2:]:
            came = f"{tuple(image.shape[-2:])} and {tuple(masks.shape[-2:])}"
            raise ValueError(f"{' and '.join(map(str, self.files[number]))} must have one size, got {came}")
        count = len(masks)
        # masks_to_boxes ends at the last pixel, our boxes after it.
        boxes = masks_to_boxes(masks) + torch.tensor([0.0, 0.0, 1.0, 1.0])
        labels, crowd = torch.ones(count, dtype=torch.int64), torch.zeros(count, dtype=torch.bool)
        return ImageScene(image, boxes, labels, crowd, masks.flatten(1).sum(1).float(), masks if self.masks else None)

    def look_at(self, number: int) -> None:
        """An image and a mask of one size."""
        check_map_pair(MapPair(*self.files[number]))

    def count_objects(self, part: str) -> int:
        """The number of pedestrians in a split."""
        return sum(len(self._masks(number)) for number in self.index[part].tolist())

    def _masks(self, number: int) -> Tensor:
        """Of each pedestrian, bool (n, rows, columns)."""
        numbers = torch.from_numpy(read_label_map(self.files[number][1]))
        there = numbers.unique()
        return numbers == there[there > 0, None, None]

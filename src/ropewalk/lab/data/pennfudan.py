"""The Penn-Fudan database of pedestrians: which files it has, and what is what.

A folder has PNGImages/ and PedMasks/. The mask of an image NAME.png is NAME_mask.png: 0 is background, k the k-th
pedestrian. A fixed permutation of the names, in their order, says what is what: of 170 images 40 are tested on and 20
validated by.
"""

from pathlib import Path

import torch
from torch import Tensor

ALL, TEST, VALIDATION = 170, 40, 20
"""Images of the database, and of two parts of it; other folders are cut in the same shares."""
SEED = 0
"""Of the permutation, whatever that of a run is."""


def is_pennfudan(folder: Path) -> bool:
    """Whether a folder has its form."""
    return (folder / "PNGImages").is_dir() and (folder / "PedMasks").is_dir()


def files(folder: Path) -> list[tuple[Path, Path]]:
    """Images and their masks, by name."""
    images = sorted((folder / "PNGImages").glob("*.png"))
    found = [(image, folder / "PedMasks" / f"{image.stem}_mask.png") for image in images]
    if missing := [mask.name for _, mask in found if not mask.is_file()]:
        raise ValueError(f"{folder / 'PedMasks'} must have a mask of each image; {missing[0]} is not there")
    return found


def split(count: int) -> dict[str, Tensor]:
    """Which of so many images are trained on, validated by and tested on."""
    test, validation = round(count * TEST / ALL), round(count * VALIDATION / ALL)
    if not (test and validation):
        raise ValueError(f"PNGImages/ must have at least 5 images, so that each part has one, got {count}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SEED))
    return {"train": order[test + validation :], "validation": order[test : test + validation], "test": order[:test]}

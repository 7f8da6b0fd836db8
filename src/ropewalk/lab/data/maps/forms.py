"""Where images and maps lie. Three forms of folders are known, by what is in them:

images/, maps/              each with train/, and val/ or test/ or both; a map has the name of its image, as a PNG
JPEGImages/, SegmentationClass/, ImageSets/Segmentation/    Pascal VOC's, with train.txt and val.txt
PNGImages/, PedMasks/       Penn-Fudan's, in the parts that `pennfudan` has: whatever is not 0 is a pedestrian

Where there is val and no test, val is the test set. Where no validation set is left, a share of the training set is
kept for it, drawn by a fixed seed, so that all runs share it. classes.txt, a name a line, may name the classes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torchvision.datasets.folder import IMG_EXTENSIONS  # type: ignore[import-untyped]

from ropewalk.lab.data.maps.pairs import Pair
from ropewalk.lab.data.pennfudan import files, split
from ropewalk.lab.data.split import VALIDATION, held_out

VOC = [
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
]  # fmt: skip
PEDESTRIANS = ["background", "pedestrian"]


@dataclass(frozen=True)
class Found:
    """The pairs of "train", "validation" and "test".

    classes  Their names; None where nobody names them.
    binary   Whether any number but 0 is class 1.
    """

    parts: dict[str, list[Pair]]
    classes: list[str] | None
    binary: bool = False


def found(path: Path, validation: float) -> Found:
    """The files of a folder in one of the three forms; a share of what is trained on is for validation, if need be."""
    forms: dict[str, tuple[Callable[[Path, float], dict[str, list[Pair]]], list[str] | None]] = {
        "images": (_plain, None),
        "JPEGImages": (_voc, VOC),
        "PNGImages": (_pedestrians, PEDESTRIANS),
    }
    for folder, (listed, names) in forms.items():
        if (path / folder).is_dir():
            return Found(listed(path, validation), _named(path) or names, binary=names is PEDESTRIANS)
    raise ValueError(
        f"maps must lie in a folder with images/ and maps/, with JPEGImages/ and SegmentationClass/, or with PNGImages/ "
        f"and PedMasks/, but {path} has none of these"
    )


def _plain(path: Path, validation: float) -> dict[str, list[Pair]]:
    parts = [part for part in ("train", "val", "test") if (path / "images" / part).is_dir()]
    if "train" not in parts or len(parts) < 2:
        got = ", ".join(parts) or "none of them"
        raise ValueError(f"{path / 'images'} must have train/ and test/ or val/, got {got}")
    pairs = {
        part: [Pair(image, path / "maps" / part / f"{image.stem}.png") for image in _images(path / "images" / part)]
        for part in parts
    }
    return _held({part: _there(own) for part, own in pairs.items()}, validation)


def _voc(path: Path, validation: float) -> dict[str, list[Pair]]:
    lists = path / "ImageSets" / "Segmentation"
    pairs = {
        part: [Pair(path / "JPEGImages" / f"{name}.jpg", path / "SegmentationClass" / f"{name}.png") for name in names]
        for part, names in (("train", _lines(lists / "train.txt")), ("val", _lines(lists / "val.txt")))
    }
    return _held({part: _there(own) for part, own in pairs.items()}, validation)


def _pedestrians(path: Path, validation: float) -> dict[str, list[Pair]]:
    pairs = [Pair(*each) for each in files(path)]
    return {part: [pairs[place] for place in places] for part, places in split(len(pairs)).items()}


def _held(pairs: dict[str, list[Pair]], validation: float) -> dict[str, list[Pair]]:
    """The three splits of what has train, and val or test or both."""
    train, test = pairs["train"], pairs.get("test", pairs.get("val", []))
    if "val" in pairs and "test" in pairs:
        return {"train": train, "validation": pairs["val"], "test": test}
    kept, held = held_out(torch.zeros(len(train), dtype=torch.int64), validation, seed=0, stream=VALIDATION)
    return {"train": [train[i] for i in kept], "validation": [train[i] for i in held], "test": test}


def _images(folder: Path) -> Iterator[Path]:
    """Images of a folder, by name; there is one at least."""
    names = sorted(each for each in folder.iterdir() if each.suffix.lower() in IMG_EXTENSIONS)
    if not names:
        raise ValueError(f"{folder} must have images, but there are none")
    yield from names


def _there(pairs: list[Pair]) -> list[Pair]:
    """Pairs of which both files are there."""
    for path in (path for pair in pairs for path in pair):
        if not path.is_file():
            raise ValueError(f"every image must have a map and every map an image, but there is no {path}")
    return pairs


def _lines(path: Path) -> list[str]:
    """The words of a list, a name a line; there is one at least."""
    if not path.is_file():
        raise ValueError(f"Pascal VOC's form of folder must have {path}, but it is not there")
    names = path.read_text().split()
    if not names:
        raise ValueError(f"{path} must have the names of images, but it is empty")
    return names


def _named(path: Path) -> list[str] | None:
    """The names in classes.txt, if it is there."""
    names = path / "classes.txt"
    return [line.strip() for line in names.read_text().splitlines() if line.strip()] if names.is_file() else None

"""Images with boxes and outlines in the form of COCO: a folder with annotations/ and the images.

annotations/ has one instances_train*.json and one instances_val*.json; images lie in the folder of the same ending, as
train2017/. The second is the test set; for validation a share of the images of the first is kept. Outlines are polygons or
run lengths, which pycocotools reads. What lies outside of its image is cut off, and boxes of which nothing is left are left
out and counted. No image may be in both files.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import torch

from ropewalk.lab.data.entries import IMAGE, KIND, OUTLINED, THING, Entry, check
from ropewalk.lab.data.maps.pairs import begun
from ropewalk.lab.data.outlines import outlined
from ropewalk.lab.data.rgb import lazy
from ropewalk.lab.data.scenes import SEED, Scene, Scenes, opened, some_of, stacked
from ropewalk.lab.data.split import VALIDATION, held_out


class Coco(Scenes):
    """Images of both files, those of the first first; images are read when they are asked for."""

    def __init__(self, folder: Path, *, validation: float, fraction: float, masks: bool) -> None:
        self.name, self.masks, self.left_out = folder.name, masks, 0
        files = {part: _file(folder, part) for part in ("train", "val")}
        held = {part: _read(path, masks) for part, path in files.items()}
        kinds = _kinds(held, files)
        self.classes, self.labels = [*kinds.values()], {number: i for i, number in enumerate(kinds, start=1)}
        self.images: list[tuple[Path, Entry, list[Entry]]] = []
        for part, path in files.items():
            self._add(folder / path.stem.removeprefix("instances_"), held[part], path)
        _check_apart(self.images)
        if self.left_out:
            warnings.warn(f"{folder}: {self.left_out} boxes of which nothing lies in the image are left out", stacklevel=2)
        count = len(held["train"]["images"])
        rest, kept = held_out(torch.zeros(count, dtype=torch.int64), validation, seed=SEED, stream=VALIDATION)
        test = torch.arange(count, len(self.images))
        self.index = {"train": some_of(rest, fraction), "validation": kept, "test": test}

    def _add(self, folder: Path, held: Entry, path: Path) -> None:
        """The images of a file, each with the things in it."""
        by_image: dict[Any, list[Entry]] = {image["id"]: [] for image in held["images"]}
        for entry in held["annotations"]:
            if entry["image_id"] not in by_image:
                raise ValueError(f"{path} has something in image {entry['image_id']}, and no such image")
            if entry["category_id"] not in self.labels:
                raise ValueError(f"{path} has something of kind {entry['category_id']}, and no such kind")
            image = by_image[entry["image_id"]]
            image.append(entry)
        if len(by_image) < len(held["images"]):
            raise ValueError(f"{path} must have each image once, got {len(held['images'])} of {len(by_image)} ids")
        for image in held["images"]:
            there = [entry for entry in by_image[image["id"]] if _inside(entry["bbox"], image)]
            self.left_out += len(by_image[image["id"]]) - len(there)
            self.images.append((folder / image["file_name"], image, there))

    def scene(self, number: int) -> Scene:
        """An image with the things in it."""
        path, said, entries = self.images[number]
        image = opened(path)
        _check_sides(path, said, *image.shape[-2:])
        boxes = stacked([box for entry in entries if (box := _inside(entry["bbox"], said))])
        labels = torch.tensor([self.labels[entry["category_id"]] for entry in entries], dtype=torch.int64)
        crowd = torch.tensor([bool(entry.get("iscrowd", 0)) for entry in entries], dtype=torch.bool)
        sides = (boxes[:, 2:] - boxes[:, :2]).prod(1).tolist()
        areas = [float(entry.get("area", side)) for entry, side in zip(entries, sides, strict=True)]
        masks = outlined(path, said, entries) if self.masks else None
        return Scene(image, boxes, labels, crowd, torch.tensor(areas, dtype=torch.float32), masks)

    def look_at(self, number: int) -> None:
        """An image of the size that its entry says, and outlines of that size where they say one."""
        path, said, entries = self.images[number]
        with begun(path, lazy) as image:
            _check_sides(path, said, image.height, image.width)
        for entry in entries if self.masks else ():
            if isinstance(outline := entry["segmentation"], dict):
                _check_sides(f"the outline of annotation {entry.get('id')!r} in {path}", said, *outline["size"])

    def things(self, part: str) -> int:
        """Things of a part that are no crowd."""
        entries = (entry for number in self.index[part].tolist() for entry in self.images[number][2])
        return sum(not entry.get("iscrowd", 0) for entry in entries)


def _check_sides(what: Path | str, said: Entry, *sides: int) -> None:
    if sides != (said["height"], said["width"]):
        came = " × ".join(map(str, sides))
        raise ValueError(f"{what} must be of {said['height']} × {said['width']} pixels, as its entry says, got {came}")


def _check_apart(images: list[tuple[Path, Entry, list[Entry]]]) -> None:
    """No image is there twice: not in one file, nor under the same name, byte for byte, in both."""
    seen: dict[str, Path] = {}
    for path, _, _ in images:
        other = seen.setdefault(path.name, path)
        if other is not path and (other == path or _same(other, path)):
            raise ValueError(f"the same image may not be there twice, got {other} and {path}")


def _same(one: Path, other: Path) -> bool:
    """Whether two files that are there have the same bytes."""
    both = one.is_file() and other.is_file() and one.stat().st_size == other.stat().st_size
    return both and one.read_bytes() == other.read_bytes()


def _inside(box: list[float], image: Entry) -> list[float] | None:
    """A box of x, y, width, height as x, y, x, y in its image; None where nothing is left."""
    x, y, width, height = box
    left, right = (min(max(each, 0.0), image["width"]) for each in (x, x + width))
    top, bottom = (min(max(each, 0.0), image["height"]) for each in (y, y + height))
    return [left, top, right, bottom] if right > left and bottom > top else None


def _file(folder: Path, part: str) -> Path:
    found = sorted((folder / "annotations").glob(f"instances_{part}*.json"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ValueError(f"{folder / 'annotations'} must have one instances_{part}*.json, got {names}")
    return found[0]


def _read(path: Path, masks: bool) -> Entry:
    """What a file says, if it says what it must."""
    try:
        held = json.loads(path.read_text())
        missing = [name for name in ("images", "annotations", "categories") if not isinstance(held.get(name), list)]
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read as annotations of COCO: {error}") from error
    if missing:
        raise ValueError(f"{path} must have lists of images, annotations and categories, got no {', '.join(missing)}")
    check(path, "image", held["images"], IMAGE)
    check(path, "category", held["categories"], KIND)
    check(path, "annotation", held["annotations"], OUTLINED if masks else THING)
    return held


def _kinds(held: dict[str, Entry], files: dict[str, Path]) -> dict[int, str]:
    """Names of kinds by their numbers, in the order of these, which both files share."""
    train, test = ({each["id"]: each["name"] for each in held[part]["categories"]} for part in ("train", "val"))
    if train != test:
        raise ValueError(f"{files['train']} and {files['val']} must have the same categories, got {train} and {test}")
    if not train:
        raise ValueError(f"{files['train']} must have categories, got none")
    return dict(sorted(train.items()))

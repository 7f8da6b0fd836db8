"""Images with boxes and segmentation masks in COCO's format: a folder with annotations/ and the images.

annotations/ has one instances_train*.json and one instances_val*.json; images are in the folder of the same ending, such
as train2017/. The second is the test set; a share of the images of the first is held out for validation. Masks are
polygons or run-length encodings, which pycocotools reads and writes. Boxes are clipped to their image, and those outside
of it are dropped and counted. No image may be in both files. Errors name the file and the entry.
"""

import importlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ropewalk.lab.data.detection import (
    SCENE_SPLIT_SEED,
    DetectionData,
    ImageScene,
    choose_train_share,
    read_image_tensor,
    stack_boxes,
)
from ropewalk.lab.data.image_files import open_image_file, open_image_lazily
from ropewalk.lab.data.sampling import VALIDATION_STREAM, hold_out_share
from ropewalk.lab.file_gate import parse_json, read_file_bytes, resolve_inside
from ropewalk.validation import (
    INTEGER_RULE,
    NAME_RULE,
    FieldRule,
    find_violation,
    is_finite_number,
    is_integer,
    is_number_list,
)

CocoEntry = dict[str, Any]
MAX_RUN_BITS = 35
"""Most bits of a run length in the compressed form."""
MAX_COORDINATE = 10**5
"""Largest coordinate of a polygon, in pixels. pycocotools draws polygons as far as they go, and crashes on the largest."""


def check_coco_entries(path: Path, what: str, entries: Sequence[Any], rules: Mapping[str, FieldRule]) -> None:
    """Raise an error if an entry of a file breaks a rule; `what` names the kind of entry."""
    for place, entry in enumerate(entries):
        if fault := find_violation(entry, rules):
            known = isinstance(entry, dict) and "id" in entry
            raise ValueError(f"{path}: {what} {repr(entry['id']) if known else f'{place} of its list'} {fault}")


def _is_key(value: Any) -> bool:
    return is_integer(value) or isinstance(value, str)


def _is_pixel_count(value: Any) -> bool:
    return is_integer(value) and value > 0


def _is_box(value: Any) -> bool:
    return is_number_list(value) and len(value) == 4


def _is_outline(value: Any) -> bool:
    if isinstance(value, dict):
        sides = value.get("size")
        right = isinstance(sides, list) and len(sides) == 2 and all(map(_is_pixel_count, sides))
        return right and isinstance(value.get("counts"), list | str)
    return isinstance(value, list) and len(value) > 0 and all(map(_is_polygon, value))


def _is_polygon(value: Any) -> bool:
    return is_number_list(value) and len(value) >= 6 and len(value) % 2 == 0 and max(map(abs, value)) <= MAX_COORDINATE


_SIDE_RULE, _KEY_RULE = FieldRule("a whole number of pixels", _is_pixel_count), FieldRule("a number or a name", _is_key)
IMAGE_RULES = {"id": _KEY_RULE, "file_name": NAME_RULE, "height": _SIDE_RULE, "width": _SIDE_RULE}
CATEGORY_RULES = {"id": INTEGER_RULE, "name": NAME_RULE}
ANNOTATION_RULES = {
    "image_id": _KEY_RULE,
    "category_id": _KEY_RULE,
    "bbox": FieldRule("four numbers", _is_box),
    "area": FieldRule("a number", is_finite_number, 0),
    "iscrowd": FieldRule("0 or 1", lambda value: value in (0, 1), 0),
}
# Rules for annotations if masks are requested.
MASK_ANNOTATION_RULES = ANNOTATION_RULES | {
    "segmentation": FieldRule("polygons of three points or more, or run lengths", _is_outline)
}

_MaskEntry = dict[str, Any]


def import_pycocotools(module: str) -> Any:
    """A module of pycocotools, which is an optional dependency."""
    try:
        return importlib.import_module(f"pycocotools.{module}")
    except ImportError as error:
        raise ValueError(f"boxes and masks are evaluated by pycocotools: pip install 'ropewalk[dense]' ({error})") from error


def read_masks(path: Path, image: _MaskEntry, entries: list[_MaskEntry]) -> Tensor:
    """The masks of the objects of an image, bool (n, rows, columns)."""
    out = torch.zeros(len(entries), image["height"], image["width"], dtype=torch.bool)
    for mask, entry in zip(out, entries, strict=True):
        try:
            mask.copy_(torch.from_numpy(decode_mask(entry["segmentation"], *mask.shape)))
        except Exception as error:
            what = f"the mask of annotation {entry.get('id')!r} in {path}"
            raise ValueError(f"{what} cannot be read: {type(error).__name__}: {error}") from error
    return out


def decode_mask(outline: Any, rows: int, columns: int) -> np.ndarray:
    """Decode the mask of an image from polygons or from a run-length encoding, compressed or not."""
    if isinstance(outline, dict):
        _check_run_lengths(outline, rows, columns)
    coded = outline
    if isinstance(outline, list):
        coded = import_pycocotools("mask").merge(import_pycocotools("mask").frPyObjects(outline, rows, columns))
    elif isinstance(outline["counts"], list):
        coded = import_pycocotools("mask").frPyObjects(outline, rows, columns)
    with warnings.catch_warnings():
        # pycocotools does not know the argument `copy` that NumPy 2 passes.
        warnings.filterwarnings("ignore", message="__array__ implementation", category=DeprecationWarning)
        return import_pycocotools("mask").decode(coded)


def _check_run_lengths(outline: Mapping[str, Any], rows: int, columns: int) -> None:
    """Refuse run lengths that are not those of all pixels: pycocotools would reserve any memory, and return what it held."""
    counts = outline["counts"] if isinstance(outline["counts"], list) else _expand_run_lengths(outline["counts"])
    if outline["size"] != [rows, columns] or not all(map(is_integer, counts)) or min(counts, default=-1) < 0:
        raise ValueError(f"run lengths must be whole numbers for {rows} × {columns} pixels, got those for {outline['size']}")
    if sum(counts) != rows * columns:
        raise ValueError(f"run lengths must add up to {rows} × {columns} pixels, got {sum(counts):,}")


def _expand_run_lengths(text: str) -> list[int]:
    """Run lengths of their compressed form: groups of 5 bits from the lowest, and from the fourth run on differences."""
    counts, value, shift = list[int](), 0, 0
    for each in text.encode():
        bits = each - 48
        value, shift = value | (bits & 0x1F) << shift, shift + 5
        if shift > MAX_RUN_BITS:
            break
        if not bits & 0x20:
            value -= (1 << shift) if bits & 0x10 else 0
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value, shift = 0, 0
    if shift:
        raise ValueError("run lengths must be complete, but break off")
    return counts


def encode_masks(masks: Tensor) -> list[_MaskEntry]:
    """Encode masks (n, rows, columns) by run lengths."""
    return [import_pycocotools("mask").encode(np.asfortranarray(mask.numpy())) for mask in masks.cpu().byte()]


class CocoData(DetectionData):
    """Images of both annotation files, in order; each is read when it is requested."""

    def __init__(self, folder: Path, *, validation: float, fraction: float, masks: bool) -> None:
        self.name, self.masks, self.left_out = folder.name, masks, 0
        files = {part: _annotation_file(folder, part) for part in ("train", "val")}
        held = {part: _read_annotations(path, masks) for part, path in files.items()}
        kinds = _category_names(held, files)
        self.classes, self.labels = [*kinds.values()], {number: i for i, number in enumerate(kinds, start=1)}
        self.images: list[tuple[Path, CocoEntry, list[CocoEntry]]] = []
        for part, path in files.items():
            self._add(folder, held[part], path)
        _check_no_overlap(self.images)
        if self.left_out:
            warnings.warn(f"{folder}: {self.left_out} boxes outside of their image are left out", stacklevel=2)
        count = len(held["train"]["images"])
        rest, kept = hold_out_share(
            torch.zeros(count, dtype=torch.int64), validation, seed=SCENE_SPLIT_SEED, stream=VALIDATION_STREAM
        )
        test = torch.arange(count, len(self.images))
        self.index = {"train": choose_train_share(rest, fraction), "validation": kept, "test": test}

    def _add(self, folder: Path, held: CocoEntry, path: Path) -> None:
        """Add the images of a file, each with its annotations. Their names may not leave the folder."""
        images = folder / path.stem.removeprefix("instances_")
        by_image: dict[Any, list[CocoEntry]] = {image["id"]: [] for image in held["images"]}
        for entry in held["annotations"]:
            if entry["image_id"] not in by_image:
                raise ValueError(f"{path} has an annotation of image {entry['image_id']!r}, but no image with this id")
            if entry["category_id"] not in self.labels:
                raise ValueError(
                    f"{path} has an annotation of category {entry['category_id']!r}, but no category with this id"
                )
            image = by_image[entry["image_id"]]
            image.append(entry)
        if len(by_image) < len(held["images"]):
            raise ValueError(f"{path} must have each image once, got {len(held['images'])} of {len(by_image)} ids")
        for image in held["images"]:
            there = [entry for entry in by_image[image["id"]] if _clip_box(entry["bbox"], image)]
            self.left_out += len(by_image[image["id"]]) - len(there)
            self.images.append((resolve_inside(images, image["file_name"]), image, there))

    def scene(self, number: int) -> ImageScene:
        """Read an image with its objects."""
        path, said, entries = self.images[number]
        image = read_image_tensor(path)
        _check_image_size(path, said, *image.shape[-2:])
        boxes = stack_boxes([box for entry in entries if (box := _clip_box(entry["bbox"], said))])
        labels = torch.tensor([self.labels[entry["category_id"]] for entry in entries], dtype=torch.int64)
        crowd = torch.tensor([bool(entry.get("iscrowd", 0)) for entry in entries], dtype=torch.bool)
        sides = (boxes[:, 2:] - boxes[:, :2]).prod(1).tolist()
        areas = [float(entry.get("area", side)) for entry, side in zip(entries, sides, strict=True)]
        masks = read_masks(path, said, entries) if self.masks else None
        return ImageScene(image, boxes, labels, crowd, torch.tensor(areas, dtype=torch.float32), masks)

    def look_at(self, number: int) -> None:
        """Check that the image and its run-length masks have the size of the image's entry."""
        path, said, entries = self.images[number]
        with open_image_file(path, open_image_lazily) as image:
            _check_image_size(path, said, image.height, image.width)
        for entry in entries if self.masks else ():
            if isinstance(outline := entry["segmentation"], dict):
                _check_image_size(f"the mask of annotation {entry.get('id')!r} in {path}", said, *outline["size"])

    def count_objects(self, part: str) -> int:
        """The number of objects in a split, without crowds."""
        entries = (entry for number in self.index[part].tolist() for entry in self.images[number][2])
        return sum(not entry.get("iscrowd", 0) for entry in entries)


def _check_image_size(what: Path | str, said: CocoEntry, *sides: int) -> None:
    if sides != (said["height"], said["width"]):
        came = " × ".join(map(str, sides))
        raise ValueError(f"{what} must be of {said['height']} × {said['width']} pixels as in its entry, got {came}")


def _check_no_overlap(images: list[tuple[Path, CocoEntry, list[CocoEntry]]]) -> None:
    """Raise an error for an image that is listed twice in a file, or is in both sets under one name, byte for byte."""
    seen: dict[str, Path] = {}
    for path, _, _ in images:
        other = seen.setdefault(path.name, path)
        if other is not path and (other == path or _same_bytes(other, path)):
            raise ValueError(f"an image must not be listed twice, got {other} and {path}")


def _same_bytes(one: Path, other: Path) -> bool:
    """Whether two files exist and have the same bytes."""
    both = one.is_file() and other.is_file() and one.stat().st_size == other.stat().st_size
    return both and one.read_bytes() == other.read_bytes()


def _clip_box(box: list[float], image: CocoEntry) -> list[float] | None:
    """Convert a box from x, y, width, height to x, y, x, y, clipped to its image; None if nothing is left."""
    x, y, width, height = box
    left, right = (min(max(each, 0.0), image["width"]) for each in (x, x + width))
    top, bottom = (min(max(each, 0.0), image["height"]) for each in (y, y + height))
    return [left, top, right, bottom] if right > left and bottom > top else None


def _annotation_file(folder: Path, part: str) -> Path:
    found = sorted((folder / "annotations").glob(f"instances_{part}*.json"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ValueError(f"{folder / 'annotations'} must have one instances_{part}*.json, got {names}")
    return found[0]


def _read_annotations(path: Path, masks: bool) -> CocoEntry:
    """Read an annotation file and check its entries."""
    try:
        held = parse_json(read_file_bytes(path))
        missing = [name for name in ("images", "annotations", "categories") if not isinstance(held.get(name), list)]
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read as annotations of COCO: {error}") from error
    if missing:
        raise ValueError(f"{path} must have lists of images, annotations and categories, got no {', '.join(missing)}")
    check_coco_entries(path, "image", held["images"], IMAGE_RULES)
    check_coco_entries(path, "category", held["categories"], CATEGORY_RULES)
    check_coco_entries(path, "annotation", held["annotations"], MASK_ANNOTATION_RULES if masks else ANNOTATION_RULES)
    return held


def _category_names(held: dict[str, CocoEntry], files: dict[str, Path]) -> dict[int, str]:
    """Names of categories by id, in ascending order; both files must have the same."""
    train, test = ({each["id"]: each["name"] for each in held[part]["categories"]} for part in ("train", "val"))
    if train != test:
        raise ValueError(f"{files['train']} and {files['val']} must have the same categories, got {train} and {test}")
    if not train:
        raise ValueError(f"{files['train']} must have categories, got none")
    return dict(sorted(train.items()))

"""Images with a class for each pixel, in a folder.

    data = SegmentationData(Path("voc"), size=(320, 320), patch=16, seed=0, validation=0.1, fraction=1.0, workers=4)
    for batch in data.batches("train", order, epoch=3):
        batch.images, batch.labels   # uint8 (B 3 320 320), int64 (B 320 320), 255 where the class is unknown

Folders have one of three layouts, recognized by what is in them:

images/, maps/              each with train/, and val/ or test/ or both; a map has the name of its image, as a PNG
JPEGImages/, SegmentationClass/, ImageSets/Segmentation/    Pascal VOC's, with train.txt and val.txt
PNGImages/, PedMasks/       Penn-Fudan's, split as in `pennfudan`: every label but 0 is a pedestrian

If there is val and no test, val is the test set. If no validation set is left, a share of the training set becomes one,
drawn by a fixed seed, so that all runs share it. classes.txt, a name a line, may name the classes. Images and maps are cut
to size as in `views`: images by antialiased bilinear interpolation, maps by the nearest pixel. Maps of evaluation keep their
size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.datasets.folder import IMG_EXTENSIONS  # type: ignore[import-untyped]
from torchvision.transforms.v2 import InterpolationMode  # type: ignore[import-untyped]
from torchvision.transforms.v2 import functional as F

from ropewalk.lab.data.base import ImageBatch, channel_moments
from ropewalk.lab.data.image_files import (
    IGNORED_LABEL,
    MapPair,
    check_map_pair,
    read_class_map,
    read_label_map,
    read_map_pair,
)
from ropewalk.lab.data.image_folder import crop_and_resize
from ropewalk.lab.data.loader import WorkerData
from ropewalk.lab.data.pennfudan import list_pennfudan_files, split_pennfudan
from ropewalk.lab.data.sampling import VALIDATION_STREAM, hold_out_share, split_train_validation
from ropewalk.lab.data.views import ViewDraw, ViewOptions, crop_of_view, draw_views, evaluation_size
from ropewalk.lab.file_gate import read_file_text, resolve_inside

VOC_CLASSES = [
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
]  # fmt: skip
PEDESTRIAN_CLASSES = ["background", "pedestrian"]


@dataclass(frozen=True)
class MapFiles:
    """The pairs of "train", "validation" and "test".

    classes  Their names; None where nobody names them.
    binary   Whether any number but 0 is class 1.
    """

    parts: dict[str, list[MapPair]]
    classes: list[str] | None
    binary: bool = False


def find_map_files(path: Path, validation: float) -> MapFiles:
    """The files of a folder in one of the three forms; a share of what is trained on is for validation, if need be."""
    forms: dict[str, tuple[Callable[[Path, float], dict[str, list[MapPair]]], list[str] | None]] = {
        "images": (_find_plain, None),
        "JPEGImages": (_find_voc, VOC_CLASSES),
        "PNGImages": (_find_pennfudan, PEDESTRIAN_CLASSES),
    }
    for folder, (listed, names) in forms.items():
        if (path / folder).is_dir():
            return MapFiles(listed(path, validation), _read_class_names(path) or names, binary=names is PEDESTRIAN_CLASSES)
    raise ValueError(
        f"maps must lie in a folder with images/ and maps/, with JPEGImages/ and SegmentationClass/, or with PNGImages/ "
        f"and PedMasks/, but {path} has none of these"
    )


def _find_plain(path: Path, validation: float) -> dict[str, list[MapPair]]:
    parts = [part for part in ("train", "val", "test") if (path / "images" / part).is_dir()]
    if "train" not in parts or len(parts) < 2:
        got = ", ".join(parts) or "none of them"
        raise ValueError(f"{path / 'images'} must have train/ and test/ or val/, got {got}")
    pairs = {
        part: [MapPair(image, path / "maps" / part / f"{image.stem}.png") for image in _list_images(path / "images" / part)]
        for part in parts
    }
    return _split_pairs({part: _existing_pairs(own) for part, own in pairs.items()}, validation)


def _find_voc(path: Path, validation: float) -> dict[str, list[MapPair]]:
    lists = path / "ImageSets" / "Segmentation"
    pairs = {
        part: [_find_voc_pair(path, name) for name in names]
        for part, names in (("train", _read_lines(lists / "train.txt")), ("val", _read_lines(lists / "val.txt")))
    }
    return _split_pairs({part: _existing_pairs(own) for part, own in pairs.items()}, validation)


def _find_voc_pair(path: Path, name: str) -> MapPair:
    """The image and the map of a name in a list, which may not leave the folder."""
    image = resolve_inside(path / "JPEGImages", f"{name}.jpg")
    return MapPair(image, resolve_inside(path / "SegmentationClass", f"{name}.png"))


def _find_pennfudan(path: Path, validation: float) -> dict[str, list[MapPair]]:
    pairs = [MapPair(*each) for each in list_pennfudan_files(path)]
    return {part: [pairs[place] for place in places] for part, places in split_pennfudan(len(pairs)).items()}


def _split_pairs(pairs: dict[str, list[MapPair]], validation: float) -> dict[str, list[MapPair]]:
    """The three splits of what has train, and val or test or both."""
    train, test = pairs["train"], pairs.get("test", pairs.get("val", []))
    if "val" in pairs and "test" in pairs:
        return {"train": train, "validation": pairs["val"], "test": test}
    kept, held = hold_out_share(torch.zeros(len(train), dtype=torch.int64), validation, seed=0, stream=VALIDATION_STREAM)
    return {"train": [train[i] for i in kept], "validation": [train[i] for i in held], "test": test}


def _list_images(folder: Path) -> Iterator[Path]:
    """Images of a folder, by name; there is one at least."""
    names = sorted(each for each in folder.iterdir() if each.suffix.lower() in IMG_EXTENSIONS)
    if not names:
        raise ValueError(f"{folder} must have images, but there are none")
    yield from names


def _existing_pairs(pairs: list[MapPair]) -> list[MapPair]:
    """Pairs of which both files are there."""
    for path in (path for pair in pairs for path in pair):
        if not path.is_file():
            raise ValueError(f"every image must have a map and every map an image, but there is no {path}")
    return pairs


def _read_lines(path: Path) -> list[str]:
    """The words of a list, a name a line; there is one at least."""
    if not path.is_file():
        raise ValueError(f"Pascal VOC's form of folder must have {path}, but it is not there")
    names = read_file_text(path).split()
    if not names:
        raise ValueError(f"{path} must have the names of images, but it is empty")
    return names


def _read_class_names(path: Path) -> list[str] | None:
    """The names in classes.txt, if it is there."""
    names = path / "classes.txt"
    return [line.strip() for line in read_file_text(names).splitlines() if line.strip()] if names.is_file() else None


class MapViews(Dataset[ImageBatch | str]):
    """Batches of views of training, or the message of an error about a file."""

    def __init__(
        self, pairs: Sequence[MapPair], size: tuple[int, int], classes: int, binary: bool, view: ViewOptions, seed: int = 0
    ) -> None:
        self.pairs, self.size, self.classes, self.binary, self.view, self.seed = pairs, size, classes, binary, view, seed

    def __getitem__(self, key: tuple[int, list[int]]) -> ImageBatch | str:
        epoch, rows = key
        index = torch.tensor(rows, dtype=torch.int64)
        draws = draw_views(self.view, self.seed, epoch, index)
        try:
            made = [self._view(row, own) for row, own in zip(rows, draws, strict=True)]
        except ValueError as error:
            return str(error)
        return ImageBatch(torch.stack([image for image, _ in made]), torch.stack([map for _, map in made]), index)

    def _view(self, row: int, drawn: ViewDraw) -> tuple[Tensor, Tensor]:
        image, map = read_map_pair(self.pairs[row], self.classes, binary=self.binary)
        area = crop_of_view(F.get_size(image), self.size, drawn)
        cut = (
            crop_and_resize(image, area, self.size),
            map_to_tensor(F.resized_crop(map, *area, self.size, InterpolationMode.NEAREST)),
        )
        return (cut[0].flip(-1), cut[1].flip(-1)) if drawn.flip else cut


class WholeMaps(Dataset[ImageBatch | str]):
    """Batches of one image, whole, and its map as it is; or the message of an error about a file."""

    def __init__(self, pairs: Sequence[MapPair], size: tuple[int, int], classes: int, binary: bool, patch: int) -> None:
        self.pairs, self.size, self.classes, self.binary, self.patch = pairs, size, classes, binary, patch

    def __getitem__(self, key: tuple[int, list[int]]) -> ImageBatch | str:
        (row,) = key[1]
        try:
            image, map = read_map_pair(self.pairs[row], self.classes, binary=self.binary)
        except ValueError as error:
            return str(error)
        sides = evaluation_size(F.get_size(image), self.size, self.patch)
        resized = F.pil_to_tensor(F.resize(image, list(sides)))
        return ImageBatch(resized[None], map_to_tensor(map)[None], torch.tensor([row]))


def map_to_tensor(map: Any) -> Tensor:
    """The class numbers of a map, int64 (rows columns)."""
    return torch.from_numpy(np.array(map)).long()


DEFAULT_VIEW = ViewOptions()
# Mean and deviation are taken over at most so many images.
MAX_MOMENT_MAPS = 2048


class SegmentationData(WorkerData):
    """Images and the classes of their pixels.

    Batches of "train" have views of one size; those of "validation" and "test" have one image, at its own size, and its map
    at that of the file. Mean and deviation are those of the middle of at most 2,048 training images.

    validation  The share of the training set that is kept for validation, where the folder has no part for it.
    fraction    The share of the rest that is trained on, drawn by the seed.
    """

    def __init__(
        self,
        path: Path,
        *,
        size: tuple[int, int],
        patch: int,
        seed: int,
        validation: float,
        fraction: float,
        workers: int,
        view: ViewOptions = DEFAULT_VIEW,
    ) -> None:
        files = find_map_files(path, validation)
        self.name, self.channels, self.size = path.name, 3, size
        self.classes = _count_classes(files) if files.classes is None else files.classes
        own = files.parts
        train, _ = split_train_validation(
            torch.zeros(len(own["train"]), dtype=torch.int64), seed=seed, validation=0.0, fraction=fraction
        )
        about = (size, len(self.classes), files.binary)
        self._middle = MapViews(own["train"], *about, DEFAULT_VIEW)
        readers = {split: WholeMaps(own[split], *about, patch) for split in ("validation", "test")}
        index = {"train": train} | {split: torch.arange(len(own[split])) for split in readers}
        views = MapViews(own["train"], *about, view, seed)
        super().__init__({"train": views, **readers}, index, workers)
        self.pairs, self.binary = own, files.binary

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self._seen[0]

    @cached_property
    def _seen(self) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], list[int]]:
        """Mean and deviation of images, and how many pixels of their maps have each number, 255 last."""
        pixels = torch.zeros(IGNORED_LABEL + 1, dtype=torch.int64)

        def images() -> Iterator[Tensor]:
            for batch in self._some(MAX_MOMENT_MAPS):
                pixels.add_(batch.labels.flatten().bincount(minlength=len(pixels)))
                yield batch.images

        found = channel_moments(images(), self.channels)
        return found, [*pixels[: len(self.classes)].tolist(), int(pixels[IGNORED_LABEL])]

    def facts(self) -> dict[str, Any]:
        """What tells these data from others: names of classes, and pixels of each, too."""
        return {**super().facts(), "names": list(self.classes), "pixels": self._seen[1]}

    def _plain(self) -> MapViews:
        return self._middle

    def _batches(self, split: str, order: list[Tensor], epoch: int) -> Iterator[ImageBatch]:
        if split != "train" and (counts := {len(positions) for positions in order} - {1}):
            raise ValueError(f"images of {split!r} differ in size and come one in a batch, got {sorted(counts)}")
        return super()._batches(split, order, epoch)

    def look(self) -> None:
        """Refuse files that are no pair of an image and its map, and test maps with numbers that are no class.

        It reads the beginning of every file, and the maps of the test, which are not read before training is done.
        """
        for pair in (pair for own in self.pairs.values() for pair in own):
            check_map_pair(pair)
        for pair in self.pairs["test"]:
            read_class_map(pair.map, len(self.classes), binary=self.binary)


def _count_classes(files: MapFiles) -> list[str]:
    """Classes without names: numbers up to the largest in a map to train on or to validate by, all of which are read."""
    pairs = [*files.parts["train"], *files.parts["validation"]]
    return [str(number) for number in range(1 + max(map(_largest_label, pairs), default=0))]


def _largest_label(pair: MapPair) -> int:
    numbers = read_label_map(pair.map)
    return int(np.max(numbers, initial=0, where=numbers != IGNORED_LABEL))

"""Datasets by name, or by the path of a file or a folder: what there is, how it is opened, and its hash.

`digits` comes with scikit-learn; its test set, a fifth of each class, is cut by a fixed seed. `cifar10`, `cifar100`, `mnist`
and `fashion-mnist` are torchvision's and must have been downloaded. CIFAR's files are pickles, which torchvision opens when
their checksums are right; nothing else is unpickled.

The record of a run has a hash of its data, so that two runs can be known to have used the same data. Files are hashed by
their contents, folders by the names and sizes of their files: a folder may hold millions of images. `sha256_of` says which.
Hashes do not depend on seeds, splits or the size at which images are used.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torchvision  # type: ignore[import-untyped]

from ropewalk.lab.config import Config
from ropewalk.lab.data.base import CropRange, ImageData, ImageSource, LabeledImages, MemoryData
from ropewalk.lab.data.image_folder import FolderData
from ropewalk.lab.data.npz import move_channels_first, open_npz
from ropewalk.lab.data.sampling import TEST_STREAM, hold_out_share
from ropewalk.lab.data.video_folder import VideoData, holds_videos
from ropewalk.lab.file_gate import open_regular_file
from ropewalk.validation import describe_unknown

# torchvision's class of each, and the folder of its files.
TORCHVISION_SETS = {
    "cifar10": ("CIFAR10", "cifar-10-batches-py"),
    "cifar100": ("CIFAR100", "cifar-100-python"),
    "mnist": ("MNIST", "MNIST/raw"),
    "fashion-mnist": ("FashionMNIST", "FashionMNIST/raw"),
}
# Images in the test set of each of them. Known beforehand, since a test set is not read before it is used.
TORCHVISION_TESTS = 10_000


def list_datasets() -> list[str]:
    """Names of datasets."""
    return ["digits", *TORCHVISION_SETS]


def open_dataset(
    name: str | Path = "digits",
    root: str | Path = "data",
    *,
    seed: int = 0,
    validation: float = 0.1,
    fraction: float = 1.0,
    size: int | Sequence[int] | None = None,
    workers: int = 4,
    crop: CropRange | None = None,
) -> ImageData:
    """A dataset by name, or by the path of a `.npz` file or of a folder of images or videos.

    root        Folder of torchvision's datasets.
    validation  Share of the training set that is held out for validation, by seed; unused if the file has a validation set.
    fraction    Share of the rest that is trained on.
    size        Sides of the images; None: those of the file, or 224 for a folder, of videos 16 frames of that.
    workers     Processes that read a folder.
    crop        Random resized crops of a folder's training images or videos; None: their center, as in evaluation.
    """
    if workers < 0:
        raise ValueError(f"workers must be 0 or more, got {workers}")
    path, plain = Path(name).expanduser(), str(name).lower().replace("_", "-")
    if plain not in list_datasets() and path.is_dir():
        kind = VideoData if holds_videos(path) else FolderData
        return kind(path, seed=seed, validation=validation, fraction=fraction, size=size, workers=workers, crop=crop)
    if plain == "digits":
        source = load_digits_source()
    elif plain in TORCHVISION_SETS:
        source = load_torchvision_source(plain, Path(root).expanduser())
    else:
        source = open_npz(_existing_file(path, plain))
    return MemoryData(source, seed=seed, validation=validation, fraction=fraction, size=size)


def _existing_file(path: Path, plain: str) -> Path:
    """The path of an existing file."""
    if path.is_file():
        return path
    if path.suffix == ".npz" or len(path.parts) > 1:
        raise ValueError(f"data must be a .npz file or a folder of images, but {path} does not exist")
    raise ValueError(describe_unknown("dataset", [plain], [*list_datasets(), "a .npz file", "a folder"]))


def load_digits_source() -> ImageSource:
    """1,797 handwritten digits of 8 × 8 pixels, from scikit-learn."""
    # scikit-learn takes a second to import, and no other dataset needs it.
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    found = load_digits()
    images = move_channels_first((found.images * (255 / 16)).round().astype(np.uint8), "digits")
    labels = torch.from_numpy(found.target.astype(np.int64))
    train, test = hold_out_share(labels, 0.2, seed=0, stream=TEST_STREAM)
    names = [str(digit) for digit in found.target_names]
    return ImageSource(
        "digits", names, (images[train], labels[train]), None, lambda: (images[test], labels[test]), len(test)
    )


def load_torchvision_source(name: str, root: Path) -> ImageSource:
    """A dataset of torchvision."""
    train = _open_torchvision(name, root, train=True)
    return ImageSource(
        name,
        list(train.classes),
        _stack_samples(train),
        None,
        lambda: _stack_samples(_open_torchvision(name, root, train=False)),
        TORCHVISION_TESTS,
    )


def _open_torchvision(name: str, root: Path, *, train: bool) -> Any:
    """Open a dataset; if its files are missing, the error has the command that downloads them."""
    kind, folder = TORCHVISION_SETS[name]
    try:
        return getattr(torchvision.datasets, kind)(root, train=train, download=False)
    except Exception as error:
        there = (root / folder).exists()
        state = f"in {root / folder} cannot be read ({error})" if there else f"was not found in {root / folder}"
        get = f'python -c "import torchvision; torchvision.datasets.{kind}({str(root)!r}, download=True)"'
        hint = f"To download it, run {get}; or set `root` to the folder that has {Path(folder).parts[0]}/"
        raise ValueError(f"the dataset {name} {state}. {hint}") from error


def _stack_samples(found: Any) -> LabeledImages:
    pixels = np.asarray(found.data)
    return move_channels_first(pixels, "images"), torch.as_tensor(found.targets, dtype=torch.int64)


LISTING_HASH = "file names and sizes"
"""What the hash of a folder was computed from."""


class DataHash(NamedTuple):
    """A SHA-256 in hexadecimal digits, and what it was computed from."""

    sha256: str | None
    sha256_of: str | None


def describe_data(config: Config, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Name, hash and split counts of the data of a run, from its task's facts; a text counts bytes."""
    splits = {name: value for name, value in facts.items() if isinstance(value, Mapping) and "sha256" in value}
    if splits:
        sums = {name: value["sha256"] for name, value in splits.items()}
        found = DataHash(hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest(), "hashes of the splits")
        counts: Any = {name: value["bytes"] for name, value in splits.items()}
    else:
        found, counts = hash_data(config.data, config.root), facts.get("counts")
    return {"name": Path(config.data).absolute().name, **found._asdict(), "counts": counts}


def hash_data(name: str, root: str) -> DataHash:
    """Hash a data set by its name or path; None where its files cannot be read."""
    path, plain = Path(name).expanduser(), name.lower().replace("_", "-")
    try:
        if plain == "digits":
            return DataHash(_hash_digits(), "arrays")
        if plain in TORCHVISION_SETS:
            folder = Path(root).expanduser() / TORCHVISION_SETS[plain][1]
            files = [file for file in _list_files(folder) if file.suffix != ".gz"]  # beside what was unpacked from them
            return DataHash(_hash_contents(folder, files), "file contents")
        if path.is_dir():
            return DataHash(_hash_listing(path, _list_files(path)), LISTING_HASH)
        return DataHash(_hash_contents(path.parent, [path]), "file contents")
    except OSError:
        return DataHash(None, None)


def _hash_digits() -> str:
    source, digest = load_digits_source(), hashlib.sha256()
    for tensor in (*source.train, *source.test()):
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


def _hash_contents(folder: Path, files: Iterable[Path]) -> str:
    """Hash the contents of files; names count only where there are several, so that a file can be renamed."""
    sums: dict[str, str] = {}
    for path in files:
        with open_regular_file(path) as file:
            sums[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    if len(sums) == 1:
        return next(iter(sums.values()))
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()


def _hash_listing(folder: Path, files: Iterable[Path]) -> str:
    lines = sorted(f"{path.relative_to(folder).as_posix()}\t{path.stat().st_size}\n" for path in files)
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def _list_files(folder: Path) -> Iterator[Path]:
    """Files below a folder, without hidden ones; links are followed, as image folders do, and no folder is entered twice."""
    seen: set[str] = set()
    for where, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        if (real := os.path.realpath(where)) in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(where) / each for each in sorted(names) if not each.startswith("."))

"""Datasets in a `.npz` file, as in MedMNIST: train_images, train_labels, test_images, test_labels, and optionally val_images
and val_labels.

Images are uint8, in the shapes of `infer_layout`; or 0 and 1 of any type: occupancy grids, which become 0 and 255. The
training images decide this for all. Labels are whole numbers, (N,) or (N, 1). Names of classes may be stored as `classes`;
without them, classes are called "0", "1", … up to the largest label in training. Nothing is unpickled. Test images that are
also training images, byte for byte, are kept; a warning reports how many there are.
"""

import hashlib
import math
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from ropewalk.lab.data.base import ImageSource, LabeledImages
from ropewalk.lab.file_gate import check_memory_budget, open_regular_file


def infer_layout(shape: Sequence[int], what: str) -> tuple[int, tuple[int, ...]]:
    """Channels and sides of images in an array of this shape, the last axis being channels if it is 1 or 3.

    (N H W) has one channel; (N H W 1) and (N H W 3) are images; any other (N D H W) is volumes of one channel, and
    (N D H W 1) and (N D H W 3) are volumes. So volumes of width 1 or 3 need an axis of channels.
    """
    axes, trailing = len(shape) - 1, shape[-1] in (1, 3) if shape else False
    plain, with_channels = axes == 2 or (axes == 3 and not trailing), axes in (3, 4) and trailing
    if not (plain or with_channels) or 0 in shape:
        wanted = "(N, H, W), (N, H, W, 3), (N, D, H, W) or (N, D, H, W, 1), with no side 0"
        raise ValueError(f"{what} must be {wanted}, got {tuple(shape)}")
    return (1, tuple(shape[1:])) if plain else (shape[-1], tuple(shape[1:-1]))


def move_channels_first(array: np.ndarray, what: str) -> Tensor:
    """The images of an array, (N C *sides)."""
    channels, sides = infer_layout(array.shape, what)
    return torch.from_numpy(array.reshape(-1, *sides, channels)).movedim(-1, 1).contiguous()


def hash_images(images: Tensor) -> list[bytes]:
    """A hash of each image."""
    return [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in images.numpy()]


def warn_repeated_images(test: Tensor, train: Collection[bytes], path: Path) -> None:
    """Warn if some images of a test set have hashes of training images."""
    if seen := sum(each in train for each in hash_images(test)):
        told = f"{seen} of {len(test)} test images are in the training set, byte for byte"
        warnings.warn(f"{path}: {told}: results count what was seen", stacklevel=2)


# RuntimeError: an encrypted archive, or (NotImplementedError) an unknown method of compression
NPZ_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError)
NPZ_KEYS = ("train_images", "train_labels", "test_images", "test_labels")


def open_npz(path: Path) -> ImageSource:
    """The data set in a file. Of test images and labels, it reads the shapes."""
    with _open_archive(path) as file:
        own = [key for key in ("val_images", "val_labels") if key in file]
        missing = [key for key in (*NPZ_KEYS, *(("val_images", "val_labels") if own else ())) if key not in file]
        if missing:
            raise ValueError(f"{path} must have {', '.join(missing)}, got {', '.join(file.files) or 'nothing'}")
        count = _check_shapes(file, path, ("train", "val", "test") if own else ("train", "test"))
        pixels, labels = _read_array(file, "train_images", path), _read_array(file, "train_labels", path)
        binary, names = _is_binary(pixels), _class_names(file, labels, path)
        train = _make_samples(pixels, labels, "train", path, binary, names)
        held = _read_part(file, "val", path, binary, names) if own else None
    seen = {*hash_images(train[0])}
    return ImageSource(path.stem, names, train, held, lambda: _lazy_test(path, binary, names, seen), count)


def _lazy_test(path: Path, binary: bool, names: list[str], seen: Collection[bytes]) -> LabeledImages:
    with _open_archive(path) as file:
        images, labels = _read_part(file, "test", path, binary, names)
    warn_repeated_images(images, seen, path)
    return images, labels


def _read_part(file: np.lib.npyio.NpzFile, part: str, path: Path, binary: bool, names: list[str]) -> LabeledImages:
    pixels, labels = _read_array(file, f"{part}_images", path), _read_array(file, f"{part}_labels", path)
    return _make_samples(pixels, labels, part, path, binary, names)


def _make_samples(
    pixels: np.ndarray, labels: np.ndarray, part: str, path: Path, binary: bool, names: list[str]
) -> LabeledImages:
    images = move_channels_first(_image_bytes(pixels, binary, f"{part}_images of {path}"), f"{part}_images of {path}")
    return images, _label_numbers(labels, len(names), f"{part}_labels of {path}")


@contextmanager
def _open_archive(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """The file, if it is an archive."""
    with open_regular_file(path) as raw:
        # NumPy takes any other file for a pickle, and its error advises to allow that.
        magic = raw.read(len(np.lib.format.MAGIC_PREFIX))
        raw.seek(0)
        if not magic.startswith((b"PK", np.lib.format.MAGIC_PREFIX)):
            raise ValueError(f"{path} cannot be read: it is no .npz file, as numpy.savez writes them")
        try:
            _check_archive_size(raw, path)
            # Pickled objects run code when they are loaded.
            file: np.lib.npyio.NpzFile = np.load(raw, allow_pickle=False)
        except NPZ_ERRORS as error:
            raise ValueError(f"{path} must be a .npz file, but cannot be read: {error}") from error
        with file:
            yield file


def _check_archive_size(raw: IO[bytes], path: Path) -> None:
    """Refuse an archive whose arrays take too much memory, by the sizes that it declares, before one is read."""
    if not zipfile.is_zipfile(raw):
        raw.seek(0)
        one = raw.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX
        raise ValueError("it must be a zip archive of several arrays, got " + ("one array" if one else "something else"))
    with zipfile.ZipFile(raw) as archive:
        check_memory_budget(sum(entry.file_size for entry in archive.infolist()), f"the arrays of {path}")
        for entry in archive.infolist():
            if entry.filename.endswith(".npy"):
                _read_shape(archive, entry)
    raw.seek(0)


def _read_shape(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[int, ...]:
    """The shape of an array, by its header alone. NumPy would reserve memory for all that the header says."""
    with archive.open(entry) as member:
        old = np.lib.format.read_magic(member) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
        try:
            shape, _, dtype = read(member)
        except (RecursionError, MemoryError, TypeError) as error:  # the header is parsed as Python's literals
            raise ValueError(f"the header of {entry.filename} cannot be read: {type(error).__name__}") from error
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > entry.file_size:
        raise ValueError(f"{entry.filename} has {entry.file_size:,} bytes, fewer than its shape {shape} needs")
    return shape


def _read_array(file: np.lib.npyio.NpzFile, key: str, path: Path) -> np.ndarray:
    try:
        return np.asarray(file[key])
    except NPZ_ERRORS as error:
        if "pickle" in str(error):
            raise ValueError(
                f"{key} of {path} cannot be read: it holds Python objects, which are never unpickled; "
                "save an array of numbers or strings"
            ) from error
        raise ValueError(f"{key} of {path} cannot be read: {error}") from error


def _check_shapes(file: np.lib.npyio.NpzFile, path: Path, parts: tuple[str, ...]) -> int:
    """Parts have as many labels as images, and images of one form. Returns the number of tests."""
    forms, count, archive = {}, 0, file.zip
    assert archive is not None
    for part in parts:
        names = [f"{part}_{kind}.npy" for kind in ("images", "labels")]
        if missing := [name for name in names if name not in archive.namelist()]:
            raise ValueError(f"{path} must have {', '.join(names)}, got no {', '.join(missing)}")
        entries = [archive.getinfo(name) for name in names]
        images, labels = (_read_shape(archive, entry) for entry in entries)
        forms[part], count = infer_layout(images, f"{part}_images of {path}"), images[0]
        if labels not in ((count,), (count, 1)):
            wanted = f"({count},) or ({count}, 1), as there are {count} images"
            raise ValueError(f"{part}_labels of {path} must be {wanted}, got {labels}")
        if forms[part] != forms["train"]:
            came = " and ".join(str((*sides, channels)) for channels, sides in (forms["train"], forms[part]))
            raise ValueError(f"images of {path} must have one size and number of channels, got {came} in train and {part}")
    return count


def _is_binary(pixels: np.ndarray) -> bool:
    """Whether there are only 0 and 1."""
    if pixels.dtype == np.uint8:
        return bool(pixels.max() <= 1)
    return pixels.dtype.kind in "buif" and bool(((pixels == 0) | (pixels == 1)).all())


def _image_bytes(pixels: np.ndarray, binary: bool, what: str) -> np.ndarray:
    if binary and not _is_binary(pixels):
        raise ValueError(f"{what} must be 0 and 1 like the training images, got {_describe_array(pixels)}")
    if not binary and pixels.dtype != np.uint8:
        raise ValueError(f"{what} must be uint8, or 0 and 1 of any type, got {_describe_array(pixels)}")
    return pixels.astype(np.uint8) * np.uint8(255) if binary else pixels


def _describe_array(array: np.ndarray) -> str:
    """The type of an array and where its values lie."""
    if array.dtype.kind not in "buif" or not array.size:
        return str(array.dtype)
    if array.dtype.kind == "f" and np.isnan(array).any():
        return f"{array.dtype} with NaN"
    return f"{array.dtype} from {array.min()} to {array.max()}"


def _class_names(file: np.lib.npyio.NpzFile, labels: np.ndarray, path: Path) -> list[str]:
    """Names of classes: those of the file, or numbers."""
    if "classes" in file:
        return [str(name) for name in _read_array(file, "classes", path).reshape(-1)]
    found = np.unique(labels)
    if labels.dtype.kind in "biu" and not np.array_equal(found, np.arange(len(found))):
        came = ", ".join(map(str, found[:8])) + (", …" if len(found) > 8 else "")
        raise ValueError(f"train_labels of {path} must be 0, 1, … without a gap if there are no `classes`, got {came}")
    return [str(number) for number in range(len(found))]


def _label_numbers(labels: np.ndarray, classes: int, what: str) -> Tensor:
    """Labels as int64 (N,)."""
    if labels.dtype.kind not in "biu" or not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"{what} must be integers from 0 to {classes - 1}, got {_describe_array(labels)}")
    return torch.from_numpy(labels.reshape(-1).astype(np.int64))

"""Datasets by name, or by the path of a file or a folder.

`digits` comes with scikit-learn; its test set, a fifth of each class, is cut by a fixed seed. `cifar10`, `cifar100`, `mnist`
and `fashion-mnist` are torchvision's and must have been downloaded. CIFAR's files are pickles, which torchvision opens when
their checksums are right; nothing else is unpickled.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision  # type: ignore[import-untyped]

from ropewalk.lab.data.base import CropRange, ImageData, ImageSource, LabeledImages, MemoryData
from ropewalk.lab.data.image_arrays import move_channels_first
from ropewalk.lab.data.image_folder import FolderData
from ropewalk.lab.data.npz import open_npz
from ropewalk.lab.data.sampling import TEST_STREAM, hold_out_share
from ropewalk.lab.data.video_folder import VideoData, holds_videos
from ropewalk.validation import describe_unknown

TORCHVISION_SETS = {
    "cifar10": ("CIFAR10", "cifar-10-batches-py"),
    "cifar100": ("CIFAR100", "cifar-100-python"),
    "mnist": ("MNIST", "MNIST/raw"),
    "fashion-mnist": ("FashionMNIST", "FashionMNIST/raw"),
}
"""torchvision's class of each, and the folder of its files."""
TORCHVISION_TESTS = 10_000
"""Images in the test set of each of them."""


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
        raise ValueError(f"data must be a .npz file or a folder of images, but there is none at {path}")
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
    """The dataset's object; if its files are missing, the error says how to get them."""
    kind, folder = TORCHVISION_SETS[name]
    try:
        return getattr(torchvision.datasets, kind)(root, train=train, download=False)
    except Exception as error:
        state = "but cannot be read" if (root / folder).exists() else "but is not there"
        get = f'python -c "import torchvision; torchvision.datasets.{kind}({str(root)!r}, download=True)"'
        raise ValueError(f"{name} must lie in {root / folder}, {state} ({error}); this gets it: {get}") from error


def _stack_samples(found: Any) -> LabeledImages:
    pixels = np.asarray(found.data)
    return move_channels_first(pixels, "images"), torch.as_tensor(found.targets, dtype=torch.int64)

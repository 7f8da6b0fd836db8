"""Images that are tested on and were trained on too, byte for byte: they are counted and told, and stay."""

import hashlib
import warnings
from collections.abc import Collection
from pathlib import Path

from torch import Tensor


def hashes(images: Tensor) -> list[bytes]:
    """A hash of each image."""
    return [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in images.numpy()]


def tell_repeated(test: Tensor, train: Collection[bytes], path: Path) -> None:
    """Warn if some images of a test set have hashes of training images."""
    if seen := sum(each in train for each in hashes(test)):
        told = f"{seen} of {len(test)} test images are in the training set, byte for byte"
        warnings.warn(f"{path}: {told}: results count what was seen", stacklevel=2)

"""The operations by name, and what is asked of a recipe and of a batch before anything is done with them."""

import difflib
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.positions import readable

OPERATIONS = ("crop", "resized-crop", "flip", "turn", "rand-augment", "three-augment", "jitter")
"""In the order in which they act."""
OF_VOLUMES = ("crop", "flip", "turn")
OF_COLOURS = ("rand-augment", "three-augment", "jitter")


def known(names: Sequence[str]) -> tuple[str, ...]:
    """The names as `OPERATIONS` has them, `-` and `_` alike; each once, and one crop at most."""
    if isinstance(names, str):
        raise ValueError(f"operations must be a sequence of names, such as ({names!r},), got the string {names!r}")
    plain = tuple(_known(name) for name in names)
    if len(set(plain)) < len(plain):
        raise ValueError(f"each operation must be named once, got {plain}")
    if {"crop", "resized-crop"} <= set(plain):
        raise ValueError("only one of 'crop' and 'resized-crop' is possible, got both")
    return plain


def _known(name: str) -> str:
    plain = name.lower().replace("_", "-")
    if plain not in OPERATIONS:
        close = difflib.get_close_matches(plain, OPERATIONS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"no operation is named {name!r}{hint}; there are {', '.join(OPERATIONS)}")
    return plain


def whole(name: str, value: int) -> int:
    """`value` if it is a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a whole number not below zero, got {value!r}")
    return value


def interval(name: str, ends: Sequence[float], most: float) -> None:
    """Whether two ends are above zero, in order, and not above the most."""
    if not isinstance(ends, tuple) or len(ends) != 2 or not 0 < ends[0] <= ends[1] <= most:
        raise ValueError(f"{name} must be two numbers in order, above 0 and at most {most}, got {ends!r}")


def check_batch(images: Tensor, labels: Tensor, numbers: Tensor, classes: int) -> None:
    """Types and shapes; values only where looking at them does not wait for a device."""
    if images.dtype != torch.uint8 or images.ndim not in (4, 5):
        raise ValueError(f"images must be uint8 (B C H W) or (B C D H W), got {images.dtype} {tuple(images.shape)}")
    if labels.dtype != torch.int64 or labels.shape != images.shape[:1] or len(numbers) != len(images):
        got = f"{labels.dtype} {tuple(labels.shape)} and {len(numbers)}"
        raise ValueError(f"labels must be int64 ({len(images)},) like the images, and indices as many, got {got}")
    if readable(labels) and len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"labels must be from 0 to {classes - 1}, got {int(labels.min())} to {int(labels.max())}")


def check_axes(name: str, given: Sequence[int], axes: int) -> None:
    """Whether axes of images that have so many are named once each, counted from the first or, below zero, from the last."""
    there = all(-axes <= axis < axes for axis in given)
    if not there or len({axis % axes for axis in given}) < len(given):
        raise ValueError(
            f"{name} must be of the {axes} axes of the images, from {-axes} to {axes - 1}, once each, got {given}"
        )


def check_meaning(operations: Sequence[str], shape: Sequence[int], size: Sequence[int] | None) -> None:
    """Whether the operations and the size suit images (B C …)."""
    if size is not None and len(size) != len(shape) - 2:
        raise ValueError(f"size must have one number for each of the {len(shape) - 2} axes of the images, got {size}")
    for name in operations:
        if len(shape) == 5 and name not in OF_VOLUMES:
            has = f"volumes have {', '.join(OF_VOLUMES)}, mixup and cutmix"
            raise ValueError(f"{name!r} is for images of two axes ({has}), got {tuple(shape)}")
        if name in OF_COLOURS and shape[1] not in (1, 3):
            raise ValueError(f"{name!r} is for images of 1 or 3 channels, got {tuple(shape)}")

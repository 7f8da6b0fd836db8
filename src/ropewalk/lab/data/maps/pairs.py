"""An image and the map of its classes, read from their files. Errors name the file."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from ropewalk.lab.data.rgb import lazy, rgb

IGNORED = 255
"""The number of pixels of which nothing is known: they are not trained on and not judged."""
MODES = ("P", "L", "1")
"""Of palettes, of grey, of black and white: those in which a pixel is a number."""


class Pair(NamedTuple):
    """The paths of an image and of its map."""

    image: Path
    map: Path


def read(pair: Pair, classes: int, *, binary: bool = False) -> tuple[Image.Image, Image.Image]:
    """An RGB image and its map, grey levels of which are class numbers or 255, of one size."""
    image, numbers = begun(pair.image, rgb), classified(pair.map, classes, binary=binary)
    _alike(pair, image.size, (numbers.shape[1], numbers.shape[0]))
    return image, Image.fromarray(numbers)


def classified(path: Path, classes: int, *, binary: bool = False) -> np.ndarray:
    """The numbers of a map, all of which are classes or 255; `binary` takes whatever is not 0 for class 1."""
    numbers = numbers_of(path)
    numbers = (numbers > 0).astype(np.uint8) if binary else numbers
    wrong = np.unique(numbers[(numbers >= classes) & (numbers != IGNORED)])
    if len(wrong):
        told = ", ".join(map(str, wrong[:4])) + (", …" if len(wrong) > 4 else "")
        raise ValueError(f"{path} must have class numbers from 0 to {classes - 1}, or {IGNORED}, got {told}")
    return numbers


def numbers_of(path: Path) -> np.ndarray:
    """The numbers of a map as its file has them, uint8 (rows columns)."""
    with begun(path) as map:
        _check_mode(path, map.mode)
        try:
            return np.asarray(map).astype(np.uint8)
        except Exception as error:
            raise ValueError(_unreadable(path, error)) from error


def look(pair: Pair) -> None:
    """Refuse files that are no image and no map of it, by what they say at their beginning."""
    with begun(pair.image, lazy) as image, begun(pair.map) as map:
        _check_mode(pair.map, map.mode)
        _alike(pair, image.size, map.size)


def begun(path: Path, way: Callable[[Path], Image.Image] = Image.open) -> Image.Image:
    """An image, opened in a way: of which the beginning of the file is read, if nothing else is said."""
    try:
        return way(path)
    except Exception as error:
        raise ValueError(_unreadable(path, error)) from error


def _unreadable(path: Path, error: Exception) -> str:
    return f"{path} cannot be read as an image: {type(error).__name__}: {error}"


def _check_mode(path: Path, mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"{path} must be a map of class numbers, with a palette or grey of 8 bits, got the mode {mode}")


def _alike(pair: Pair, image: tuple[int, int], map: tuple[int, int]) -> None:
    if image != map:
        sizes = f"{image[0]} × {image[1]} and {map[0]} × {map[1]}"
        raise ValueError(f"an image and its map must have one size, got {sizes} pixels of {pair.image} and {pair.map}")

"""Images and label maps, read from files. Errors name the file.

Images become RGB with 8 bits a color: gray ones get equal colors, palettes are applied, and transparency is dropped. The
orientation that cameras store is ignored. Images of more than 8 bits a pixel in one channel, as depths and scans have, are
refused, since it is not known which of their values are black and white.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from ropewalk.lab.file_gate import check_regular_file

# Prefixes of the modes of images with more than 8 bits a pixel: integers and floating-point numbers.
DEEP_MODES = ("I", "F")
IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM")
"""Formats that are read. PIL knows others, some of which run programs."""


def open_image_lazily(path: str | Path) -> Image.Image:
    """Open an image file and read its header alone."""
    image = open_known_image(path)
    if image.mode.startswith(DEEP_MODES):
        image.close()
        raise ValueError(f"it must have 8 bits a colour, with black as 0 and white as 255, got the mode {image.mode}")
    return image


def open_known_image(path: str | Path) -> Image.Image:
    """Open an image of a known format, of which no pixel is read yet."""
    check_regular_file(path)
    try:
        return Image.open(path, formats=IMAGE_FORMATS)
    except Image.DecompressionBombError as error:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise ValueError(
            f"it must have at most {most:,} pixels, so that a small file cannot fill the memory: {error}"
        ) from error
    except UnidentifiedImageError as error:
        raise ValueError(f"it must be an image in the format {', '.join(IMAGE_FORMATS)}") from error


def read_rgb_image(path: str | Path) -> Image.Image:
    """Read an image file and convert it to RGB."""
    with open_image_lazily(path) as image:
        return image.convert("RGB")


# Label of pixels whose class is unknown: they are neither trained on nor evaluated.
IGNORED_LABEL = 255
# Palette, gray, and black and white: the modes in which a pixel is one number of at most 8 bits.
LABEL_MAP_MODES = ("P", "L", "1")


class MapPair(NamedTuple):
    """The paths of an image and of its segmentation mask."""

    image: Path
    map: Path


def read_map_pair(pair: MapPair, classes: int, *, binary: bool = False) -> tuple[Image.Image, Image.Image]:
    """Read an RGB image and its segmentation mask, whose gray levels are class numbers or 255."""
    image, numbers = open_image_file(pair.image, read_rgb_image), read_class_map(pair.map, classes, binary=binary)
    _check_same_size(pair, image.size, (numbers.shape[1], numbers.shape[0]))
    return image, Image.fromarray(numbers)


def read_class_map(path: Path, classes: int, *, binary: bool = False) -> np.ndarray:
    """The class numbers of a segmentation mask, or 255; with `binary`, every number but 0 is class 1."""
    numbers = read_label_map(path)
    numbers = (numbers > 0).astype(np.uint8) if binary else numbers
    wrong = np.unique(numbers[(numbers >= classes) & (numbers != IGNORED_LABEL)])
    if len(wrong):
        told = ", ".join(map(str, wrong[:4])) + (", …" if len(wrong) > 4 else "")
        raise ValueError(f"{path} must have class numbers from 0 to {classes - 1}, or {IGNORED_LABEL}, got {told}")
    return numbers


def read_label_map(path: Path) -> np.ndarray:
    """The numbers of a segmentation mask as stored, uint8 (rows columns)."""
    with open_image_file(path) as map:
        _check_map_mode(path, map.mode)
        try:
            return np.asarray(map).astype(np.uint8)
        except Exception as error:
            raise ValueError(_unreadable_image(path, error)) from error


def check_map_pair(pair: MapPair) -> None:
    """Check the headers of an image and its segmentation mask."""
    with open_image_file(pair.image, open_image_lazily) as image, open_image_file(pair.map) as map:
        _check_map_mode(pair.map, map.mode)
        _check_same_size(pair, image.size, map.size)


def open_image_file(path: Path, way: Callable[[Path], Image.Image] = open_known_image) -> Image.Image:
    """Open an image with a function, by default one that reads the header alone; errors name the file."""
    try:
        return way(path)
    except Exception as error:
        raise ValueError(_unreadable_image(path, error)) from error


def _unreadable_image(path: Path, error: Exception) -> str:
    return f"{path} cannot be read as an image: {type(error).__name__}: {error}"


def _check_map_mode(path: Path, mode: str) -> None:
    if mode not in LABEL_MAP_MODES:
        raise ValueError(
            f"{path} must be a segmentation mask of class numbers, palette or gray with 8 bits, got the mode {mode}"
        )


def _check_same_size(pair: MapPair, image: tuple[int, int], map: tuple[int, int]) -> None:
    if image != map:
        sizes = f"{image[0]} × {image[1]} and {map[0]} × {map[1]}"
        raise ValueError(
            f"an image and its segmentation mask must have one size, got {sizes} pixels of {pair.image} and {pair.map}"
        )

"""A picture of maps that a model makes: the image, the truth and the answer, side by side."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ropewalk.lab.data.maps.pairs import IGNORED
from ropewalk.lab.dense.picture import filed

TITLES = ("image", "truth", "prediction")
ROW, WIDTH = 1.7, 7.2  # inches
DOTS = 110  # an inch
NAMED = 12
"""The most classes that a legend names."""
GREY = 128
"""Of pixels of which nothing is known."""


class Example(NamedTuple):
    """An image, uint8 (rows columns 3), and the class numbers of its pixels, (rows columns), as they are and as found."""

    image: np.ndarray
    truth: np.ndarray
    answer: np.ndarray


def painted(examples: Sequence[Example], classes: Sequence[str]) -> bytes:
    """A PNG file with a row for each example, and the colours of the classes that are seen."""
    figure = Figure(figsize=(WIDTH, ROW * len(examples) + 0.7), layout="constrained")
    cells = figure.subplots(len(examples), len(TITLES), squeeze=False)
    for row, each in zip(cells, examples, strict=True):
        for axes, picture in zip(row, (each.image, *(over(each.image, map) for map in each[1:])), strict=True):
            axes.imshow(picture)
            axes.axis("off")
    for axes, title in zip(cells[0], TITLES, strict=True):
        axes.set_title(title, fontsize=9)
    seen = sorted({int(number) for each in examples for map in each[1:] for number in np.unique(map)} - {IGNORED})
    keys = [Patch(color=tuple(colours(np.array(i)) / 255), label=classes[i]) for i in seen[:NAMED]]
    figure.legend(handles=keys, loc="outside lower left", ncols=6, fontsize=7, frameon=False)
    return filed(figure, DOTS)


def over(image: np.ndarray, map: np.ndarray) -> np.ndarray:
    """The colours of a map over its image, in grey, uint8 (rows columns 3)."""
    grey = image.mean(-1, keepdims=True)
    mixed = 0.35 * grey + 0.65 * colours(map)
    return mixed.round().astype(np.uint8)


def colours(map: np.ndarray) -> np.ndarray:
    """Pascal VOC's colour of each class number, (… 3): bit 3i + c of the number is bit 7 - i of channel c."""
    bits = (map[..., None, None].astype(int) >> (3 * np.arange(8)[:, None] + np.arange(3))) & 1
    found = (bits << (7 - np.arange(8))[:, None]).sum(-2)
    return np.where((map == IGNORED)[..., None], GREY, found)

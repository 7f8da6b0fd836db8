"""What is seen of an image: a part of it in training, all of it when a model is judged. Nothing is padded.

In training all views have one size. A view is a part of its image, of the shape of the view, resized to it: in the middle
and as large as fits, if nothing is drawn. With `crop` it lies anywhere, and is smaller along each side by a factor, its
logarithm uniform; factors below 1 would show more than there is and count as 1. With `flip` every second view is mirrored.
Draws follow from the seed, the epoch and the number of the image.

When a model is judged, each image goes alone, with its shape: `looked_at` says at which size.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ropewalk.lab.data.crops import Box
from ropewalk.lab.draws import uniform

VIEW = 1010
"""The stream of draws."""
LONGEST = 2
"""The longer side of an image, at most, in shorter sides of the images of training."""

Sides = Sequence[int]


class View(NamedTuple):
    """How views are cut: whether at random, by which factors, and whether mirrored."""

    crop: bool = False
    flip: bool = False
    scale: tuple[float, float] = (0.5, 2.0)


class Drawn(NamedTuple):
    """Of one view: the factor, how far down and along it lies, from 0 up to 1, and whether it is mirrored."""

    closer: float = 1.0
    down: float = 0.5
    along: float = 0.5
    flip: bool = False


def draw(view: View, seed: int, epoch: int, index: Tensor) -> list[Drawn]:
    """The draws of images of these numbers, int64 (B,)."""
    least, most = map(math.log, view.scale)
    out = []
    for closer, down, along, flip in uniform(seed, epoch, index, VIEW, 4).tolist():
        where = Drawn(math.exp(least + closer * (most - least)), down, along) if view.crop else Drawn()
        out.append(where._replace(flip=view.flip and flip < 0.5))
    return out


def part_of(sides: Sides, size: Sides, drawn: Drawn) -> Box:
    """The part of an image of these sides that a view of that size shows, in whole pixels."""
    factor = max(wanted / side for wanted, side in zip(size, sides, strict=True)) * max(drawn.closer, 1.0)
    rows, columns = (min(max(round(wanted / factor), 1), side) for wanted, side in zip(size, sides, strict=True))
    return int(drawn.down * (sides[0] - rows + 1)), int(drawn.along * (sides[1] - columns + 1)), rows, columns


def looked_at(sides: Sides, size: Sides, patch: int) -> tuple[int, int]:
    """Rows and columns of an image of these sides when it is judged, both multiples of the patch.

    Its shorter side is that of the images of training, unless the longer one would be over twice that; each is rounded.
    """
    short = min(size)
    factor = min(short / min(sides), LONGEST * short / max(sides))
    rows, columns = (max(round(side * factor / patch), 1) * patch for side in sides)
    return rows, columns

"""Images of other sizes than those of training: from half to twice its grid of patches.

The file's own images are brought to each size, with antialiasing. Positions of the larger or smaller grid are had in both
ways: "extrapolate" keeps the distance between patches, "rescale" the extent of the image. At the size of training both are
what the model was trained on. A table that ends where its grid ended reads between its entries or refuses.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from ropewalk.lab.data import Batch
from ropewalk.lab.probes.opening import Opened, Rows, judged, mean, refusal
from ropewalk.lab.train import open_data

FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
MODES = ("extrapolate", "rescale")
LITTLE = 1e-9
"""Of the training set, whose images nobody looks at; the validation set does not depend on it."""


def resolution(opened: Opened) -> Rows:
    """Accuracy and loss at each size, in pixels (`grid` is in patches), in both modes."""
    for grid in grids(opened.grid):
        yield from _at(opened, grid)


def grids(grid: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Grids of patches to look at, the smallest first, each once."""
    found = (tuple(max(1, math.floor(side * factor + 0.5)) for side in grid) for factor in FACTORS)
    return list(dict.fromkeys(found))


def _at(opened: Opened, grid: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """The rows of one grid. That of training is not looked at again: both modes are there what the model was trained on."""
    size = tuple(side * opened.config.patch for side in grid)
    words = {mode: refusal(opened.encoding, opened.encoding.grid(*grid, resolution=mode)) for mode in MODES}
    able = [mode for mode in MODES if words[mode] is None]
    known = size == opened.data.size
    found = dict.fromkeys(able, opened.unchanged) if known else dict(zip(able, _scores(opened, size, able), strict=True))
    for mode in MODES:
        said = found[mode] if mode in found else {"why": words[mode]}
        yield {"mode": mode, "size": list(size), "grid": list(grid), **said}


def _scores(opened: Opened, size: tuple[int, ...], modes: list[str]) -> list[dict[str, Any]]:
    """Of images of that size in each mode. Batches of larger images are smaller, so that they have as many tokens."""
    config = opened.config
    data = open_data(replace(config, size=size, fraction=LITTLE)).to(opened.data.device)
    more = max(1.0, math.prod(size) / math.prod(opened.data.size))
    answers = [partial(_answer, opened, mode) for mode in modes]
    return [mean([scores]) for scores in judged(data, answers, batch=max(1, int(config.batch / more)))]


def _answer(opened: Opened, mode: str, batch: Batch) -> Tensor:
    return opened.logits(batch.images, resolution=mode)

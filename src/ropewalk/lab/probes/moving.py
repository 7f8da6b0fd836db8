"""Positions without their content, and content without its positions.

offset       All positions move by one Gaussian vector. Scores of patches do not change if the encoding is relative; those
             with a class token or a register do, since these have no position to move with.
translation  The content of images moves, positions stay. What a model loses is what it learnt of where things are.
shuffle      Patches change places at random, positions stay. What a model keeps is what it knows without them.
"""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.lab.data import Batch
from ropewalk.lab.draws import seed_of, words
from ropewalk.lab.findings import patches as steps_of
from ropewalk.lab.probes.opening import Opened, Rows, judged, mean, refusal
from ropewalk.models.vit import patches

RHO = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Deviations of the vector, in patches."""
DRAWS = 5
OFFSET, SHUFFLE = 2001, 2002
"""Streams of draws, apart from those of training."""


def offset(opened: Opened) -> Rows:
    """Accuracy for each deviation, over several draws; the vectors of all deviations have the same directions."""
    places = {rho: _offsets(opened, rho) for rho in RHO}
    why = {rho: next(filter(None, (refusal(opened.encoding, p) for p in places[rho])), None) for rho in RHO}
    answers = [partial(_at, opened, p) for rho in RHO if why[rho] is None for p in places[rho]]
    scores = iter(judged(opened.data, answers, batch=opened.config.batch))
    yield {"rho": 0.0, **opened.unchanged, "draws": 1}
    for rho in RHO:
        found = {"why": why[rho]} if why[rho] else mean([next(scores) for _ in places[rho]])
        yield {"rho": rho, **found, "draws": len(places[rho])}


def _offsets(opened: Opened, rho: float) -> list[Tensor]:
    """Positions (N, axes) of the training grid for each draw."""
    encoding, grid = opened.encoding, opened.grid
    here, steps = encoding.grid(*grid, device="cpu"), torch.tensor(steps_of(encoding, grid))
    vectors = [_vector(opened.config.seed, draw, len(grid)) for draw in range(DRAWS)]
    return [here + rho * vector * steps for vector in vectors]


def _vector(seed: int, draw: int, axes: int) -> Tensor:
    return torch.randn(axes, generator=torch.Generator().manual_seed(seed_of(seed, draw, OFFSET)))


def _at(opened: Opened, positions: Tensor, batch: Batch) -> Tensor:
    return opened.logits(batch.images, positions.to(batch.images.device))


def translation(opened: Opened) -> Rows:
    """Accuracy for moves by 1, 2, 4, … pixels, up to a quarter of the image, both ways along each axis; black comes in."""
    moves = shifts(opened.data.size)
    answers = [partial(_translated, opened, move) for move in moves]
    scores = [mean([each]) for each in judged(opened.data, answers, batch=opened.config.batch)]
    still = (0,) * len(opened.data.size)
    found = zip((still, *moves), (opened.unchanged, *scores), strict=True)
    return [{"shift": list(move), **each} for move, each in found]


def shifts(size: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Moves in pixels along each axis."""
    found: list[tuple[int, ...]] = []
    for axis, side in enumerate(size):
        far = [2**power for power in range(int(math.log2(max(side // 4, 1))) + 1)]
        found += [(*(0,) * axis, by, *(0,) * (len(size) - axis - 1)) for by in (*(-n for n in reversed(far)), *far)]
    return found


def translated(images: Tensor, move: tuple[int, ...]) -> Tensor:
    """Images (B C *size) whose content is moved down, or right, by so many pixels; zeros come in."""
    return F.pad(images, [each for by in reversed(move) for each in (by, -by)])


def _translated(opened: Opened, move: tuple[int, ...], batch: Batch) -> Tensor:
    return opened.logits(translated(batch.images, move))


def shuffle(opened: Opened) -> Rows:
    """Accuracy where each image has its patches in an order of its own, over several draws."""
    answers = [partial(_shuffled, opened, draw) for draw in range(DRAWS)]
    row: dict[str, Any] = mean(judged(opened.data, answers, batch=opened.config.batch))
    return [row | {"draws": DRAWS}]


def _shuffled(opened: Opened, draw: int, batch: Batch) -> Tensor:
    order = words(opened.config.seed, draw, batch.index, SHUFFLE, math.prod(opened.grid)).argsort(1)
    return opened.logits(shuffled(batch.images, order, opened.model.patch))


def shuffled(images: Tensor, order: Tensor, patch: tuple[int, ...]) -> Tensor:
    """Images (B C *size) in which patch n is the one that was patch order[b, n]."""
    size = images.shape[2:]
    places = torch.arange(size.numel(), device=images.device).view(1, 1, *size)
    cells = patches(places, patch).flatten(0, -2)  # (N pixels): where the pixels of each patch lie
    source = torch.empty(len(images), size.numel(), dtype=torch.int64, device=images.device)
    source[:, cells.flatten()] = cells[order].flatten(1)
    return images.flatten(2).gather(2, source[:, None].expand(-1, images.shape[1], -1)).view_as(images)

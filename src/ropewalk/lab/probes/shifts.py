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

from ropewalk.lab.data.base import ImageBatch
from ropewalk.lab.hash_random import derive_seed, draw_words
from ropewalk.lab.inspect.theory_facts import measure_patch_steps as steps_of
from ropewalk.lab.probes.probe import Probe, ProbeCurve, ProbeRow, ProbeRows, find_refusal
from ropewalk.lab.tasks.trained_images import ImageRun, average_scores, score_answers
from ropewalk.models.vit import patches

OFFSET_DEVIATIONS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Deviations of the vector, in patches."""
PROBE_DRAWS = 5
PROBE_OFFSET_STREAM, PROBE_SHUFFLE_STREAM = 2001, 2002
"""Streams of draws, apart from those of training."""


def probe_offset(opened: ImageRun) -> ProbeRows:
    """Accuracy for each deviation, over several draws; the vectors of all deviations have the same directions."""
    places = {rho: sample_offset_positions(opened, rho) for rho in OFFSET_DEVIATIONS}
    why = {
        rho: next(filter(None, (find_refusal(opened.encoding, p) for p in places[rho])), None) for rho in OFFSET_DEVIATIONS
    }
    answers = [partial(_answer_positions, opened, p) for rho in OFFSET_DEVIATIONS if why[rho] is None for p in places[rho]]
    scores = iter(score_answers(opened.data, answers, batch=opened.config.batch))
    yield {"rho": 0.0, **opened.unmodified_scores, "draws": 1}
    for rho in OFFSET_DEVIATIONS:
        found = {"why": why[rho]} if why[rho] else average_scores([next(scores) for _ in places[rho]])
        yield {"rho": rho, **found, "draws": len(places[rho])}


def sample_offset_positions(opened: ImageRun, rho: float) -> list[Tensor]:
    """Positions (N, axes) of the training grid for each draw."""
    encoding, grid = opened.encoding, opened.grid
    here, steps = encoding.grid(*grid, device="cpu"), torch.tensor(steps_of(encoding, grid))
    vectors = [sample_offset_vector(opened.config.seed, draw, len(grid)) for draw in range(PROBE_DRAWS)]
    return [here + rho * vector * steps for vector in vectors]


def sample_offset_vector(seed: int, draw: int, axes: int) -> Tensor:
    """Draw one offset for all positions, a standard normal number for each axis."""
    return torch.randn(axes, generator=torch.Generator().manual_seed(derive_seed(seed, draw, PROBE_OFFSET_STREAM)))


def _answer_positions(opened: ImageRun, positions: Tensor, batch: ImageBatch) -> Tensor:
    return opened.logits(batch.images, positions.to(batch.images.device))


def probe_translation(opened: ImageRun) -> ProbeRows:
    """Accuracy for moves by 1, 2, 4, … pixels, up to a quarter of the image, both ways along each axis; black comes in."""
    moves = list_pixel_shifts(opened.data.size)
    answers = [partial(_answer_translated, opened, move) for move in moves]
    scores = [average_scores([each]) for each in score_answers(opened.data, answers, batch=opened.config.batch)]
    still = (0,) * len(opened.data.size)
    found = zip((still, *moves), (opened.unmodified_scores, *scores), strict=True)
    return [{"shift": list(move), **each} for move, each in found]


def list_pixel_shifts(size: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Moves in pixels along each axis."""
    found: list[tuple[int, ...]] = []
    for axis, side in enumerate(size):
        far = [2**power for power in range(int(math.log2(max(side // 4, 1))) + 1)]
        found += [(*(0,) * axis, by, *(0,) * (len(size) - axis - 1)) for by in (*(-n for n in reversed(far)), *far)]
    return found


def translate_content(images: Tensor, move: tuple[int, ...]) -> Tensor:
    """Images (B C *size) whose content is moved down, or right, by so many pixels; zeros come in."""
    return F.pad(images, [each for by in reversed(move) for each in (by, -by)])


def _answer_translated(opened: ImageRun, move: tuple[int, ...], batch: ImageBatch) -> Tensor:
    return opened.logits(translate_content(batch.images, move))


def probe_shuffle(opened: ImageRun) -> ProbeRows:
    """Accuracy where each image has its patches in an order of its own, over several draws."""
    answers = [partial(_answer_shuffled, opened, draw) for draw in range(PROBE_DRAWS)]
    row: dict[str, Any] = average_scores(score_answers(opened.data, answers, batch=opened.config.batch))
    return [row | {"draws": PROBE_DRAWS}]


def _answer_shuffled(opened: ImageRun, draw: int, batch: ImageBatch) -> Tensor:
    order = draw_words(opened.config.seed, draw, batch.index, PROBE_SHUFFLE_STREAM, math.prod(opened.grid)).argsort(1)
    return opened.logits(shuffle_patches(batch.images, order, opened.model.patch))


def shuffle_patches(images: Tensor, order: Tensor, patch: tuple[int, ...]) -> Tensor:
    """Images (B C *size) in which patch n is the one that was patch order[b, n]."""
    size = images.shape[2:]
    places = torch.arange(size.numel(), device=images.device).view(1, 1, *size)
    cells = patches(places, patch).flatten(0, -2)  # (N pixels): where the pixels of each patch lie
    source = torch.empty(len(images), size.numel(), dtype=torch.int64, device=images.device)
    source[:, cells.flatten()] = cells[order].flatten(1)
    return images.flatten(2).gather(2, source[:, None].expand(-1, images.shape[1], -1)).view_as(images)


def get_shift_distance(row: ProbeRow) -> float | None:
    """Pixels by which the content is moved."""
    shift = row.get("shift")
    return round(math.hypot(*shift), 3) if isinstance(shift, list) and shift else None


OFFSET = Probe(
    name="offset",
    summary="Accuracy when one random vector is added to all positions.",
    measure=probe_offset,
    tasks=("classify",),
    curve=ProbeCurve(
        title="Offset positions",
        caption="One random vector, of this standard deviation in patches along each axis, is added to all positions of an "
        "image; the mean over several draws. Relative encodings are invariant, unless the model has a class token or "
        "registers, whose position is fixed.",
        x="rho",
        x_label="standard deviation of the offset, patches",
    ),
)
TRANSLATION = Probe(
    name="translation",
    summary="Accuracy when the content of images is translated and positions are kept.",
    measure=probe_translation,
    tasks=("classify",),
    curve=ProbeCurve(
        title="Translated content",
        caption="The content of images is translated and black is filled in, while positions are kept; the mean over both "
        "directions along each axis. What leaves the image is lost, for every encoding alike.",
        x=get_shift_distance,
        x_label="translation, pixels",
    ),
)
SHUFFLE = Probe(
    name="shuffle",
    summary="Accuracy when the patches of each image are shuffled and positions are kept.",
    measure=probe_shuffle,
    tasks=("classify",),
)

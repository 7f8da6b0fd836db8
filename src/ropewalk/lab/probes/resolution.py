"""Images of other sizes than in training: grids of half to three times as many patches along each axis, volumes up to
twice.

The file's images are resized with antialiasing. Positions of the other grid are computed in two ways: "extrapolate" keeps
the distance between patches, "rescale" the extent of the image. At the size of training, both are the positions of
training. A learned table, which ends with its grid, is interpolated or refuses.

"ntk" and "yarn" extrapolate, and apply these rules of context extension, which reduce low frequencies along each axis, with
their default options. Images that are larger along no axis are extrapolated. Encodings that do not support these rules yield
one refusal for each.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from ropewalk.lab.data.base import ImageBatch
from ropewalk.lab.patch_grid import compute_grid_size
from ropewalk.lab.probes.probe import Probe, ProbeCurve, ProbeRow, ProbeRows, find_refusal
from ropewalk.lab.tasks.classify import open_image_data
from ropewalk.lab.tasks.trained_images import ImageRun, average_scores, score_answers
from ropewalk.rotary import GridWaves

GRID_FACTORS = (0.5, 0.7, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 3.0)
"""Factors on the grid of training: 0.7 is 112 of 160 pixels, 0.75 is 24 of 32."""
MAX_TOKEN_RATIO = 9
"""Limit on the number of tokens over that of training: 3 × 3 along the axes of an image, 2 × 2 × 2 along three axes."""
RESOLUTION_MODES = ("extrapolate", "rescale")
RESOLUTION_RULES = {"ntk": "ntk-aware", "yarn": "yarn"}
"""Modes that are rules of context extension."""
TINY_FRACTION = 1e-9
"""Share of the training set that is opened. Its images are not used, and the validation set does not depend on it."""


def probe_resolution(opened: ImageRun) -> ProbeRows:
    """Accuracy and loss at each size, in pixels (`grid` is in patches), in all modes that the encoding has."""
    able = isinstance(opened.encoding, GridWaves)
    for grid in list_probe_grids(opened.grid):
        yield from probe_grid(opened, grid, (*RESOLUTION_MODES, *(RESOLUTION_RULES if able else ())))
    for mode in () if able else RESOLUTION_RULES:
        yield {
            "mode": mode,
            "why": f"{opened.encoding.name} does not support context extension along each axis; axial and mixed do",
        }


def list_probe_grids(grid: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Distinct grids to probe, the smallest first."""
    found = (tuple(max(1, math.floor(side * factor + 0.5)) for side in grid) for factor in GRID_FACTORS)
    return list(dict.fromkeys(each for each in found if math.prod(each) <= MAX_TOKEN_RATIO * math.prod(grid)))


def probe_grid(
    opened: ImageRun, grid: tuple[int, ...], modes: tuple[str, ...] = RESOLUTION_MODES
) -> Iterator[dict[str, Any]]:
    """The rows of one grid. On the grid of training all modes are equal, and its scores are not computed again."""
    size = compute_grid_size(grid, opened.config.patch)
    subjects = {mode: _apply_mode(opened, mode, grid) for mode in modes}
    words = {mode: _check_mode(subject, mode, grid) for mode, subject in subjects.items()}
    asked = {
        mode: each
        for mode, each in subjects.items()
        if words[mode] is None and (mode in RESOLUTION_MODES or each is not opened)
    }
    known = size == opened.data.size
    found = (
        dict.fromkeys(asked, opened.unmodified_scores)
        if known
        else dict(zip(asked, _score_modes(opened, size, asked), strict=True))
    )
    for mode in modes:
        said = found.get(mode) or found.get(_position_mode(mode)) or {"why": words[mode]}
        yield {"mode": mode, "size": list(size), "grid": list(grid), **said}


def _apply_mode(opened: ImageRun, mode: str, grid: tuple[int, ...]) -> ImageRun:
    """The run with the encoding of a mode: the run itself if the mode has no rule or the grid does not grow."""
    encoding = opened.encoding
    grows = any(side > old for side, old in zip(grid, opened.grid, strict=True))
    if mode not in RESOLUTION_RULES or not grows or not isinstance(encoding, GridWaves):
        return opened
    return replace(opened, model=opened.model.with_encoding(encoding.extended(RESOLUTION_RULES[mode], grid)))


def _check_mode(subject: ImageRun, mode: str, grid: tuple[int, ...]) -> str | None:
    """Why the encoding refuses the positions of this grid; None if it accepts them."""
    return find_refusal(subject.encoding, subject.encoding.grid(*grid, resolution=_position_mode(mode)))


def _position_mode(mode: str) -> str:
    """How the positions of another grid are computed."""
    return mode if mode in RESOLUTION_MODES else "extrapolate"


def _score_modes(opened: ImageRun, size: tuple[int, ...], modes: dict[str, ImageRun]) -> list[dict[str, Any]]:
    """The scores of each mode on images of a size. Batches of larger images are smaller: the number of tokens is kept."""
    config = opened.config
    data = open_image_data(replace(config, size=size, fraction=TINY_FRACTION)).to(opened.data.device)
    more = max(1.0, math.prod(size) / math.prod(opened.data.size))
    answers = [partial(_answer, subject, _position_mode(mode)) for mode, subject in modes.items()]
    return [average_scores([scores]) for scores in score_answers(data, answers, batch=max(1, int(config.batch / more)))]


def _answer(opened: ImageRun, spacing: str, batch: ImageBatch) -> Tensor:
    return opened.logits(batch.images, resolution=spacing)


def get_image_side(row: ProbeRow) -> float | None:
    """The side of an image, or of a square or cube of the same size."""
    size = row.get("size")
    return math.prod(size) ** (1 / len(size)) if isinstance(size, list) and size else None


RESOLUTION = Probe(
    name="resolution",
    summary="Accuracy on images of other sizes, for each way to position their patches.",
    measure=probe_resolution,
    tasks=("classify",),
    curve=ProbeCurve(
        title="Other resolutions",
        caption="Validation accuracy on images of other sizes than in training, without further training. Images are "
        "resized with antialiasing. Positions of a larger image either continue beyond those of training or are rescaled to "
        "their range. NTK and YaRN continue and lower slow frequencies along each axis that is longer than in training; "
        "encodings that support neither are not in these panels.",
        x=get_image_side,
        x_label="side of the image, pixels",
        panel_column="mode",
        panels=(
            ("extrapolate", "Extrapolate: patches keep their distance"),
            ("rescale", "Rescale: the image keeps its extent"),
            ("ntk", "NTK: low frequencies are lowered"),
            ("yarn", "YaRN: frequencies of few rotations are lowered"),
        ),
    ),
)

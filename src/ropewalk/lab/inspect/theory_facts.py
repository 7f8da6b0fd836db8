"""What `ropewalk.theory` says of one encoding, trained or not, as plain JSON values."""

import copy
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk import theory
from ropewalk.encoding import Encoding
from ropewalk.lab.inspect.code_structure import compute_sample_code, describe_code_target, find_channel_groups
from ropewalk.lab.inspect.encoding_facts import count_parameters
from ropewalk.lab.inspect.figure_grid import get_axis_names, interpolate_positions, resolve_grid_size
from ropewalk.theory.commuting import turning, turns
from ropewalk.theory.waves import TOLERANCE as FOLDS
from ropewalk.theory.waves import commuting_planes, spectrum_of

TOLERANCE = 1e-6  # of what commutes, and of waves that are alike
MAX_POINTS_PER_AXIS = 8  # places along an axis
MAX_SHIFT_WORK = 2**26  # entries of differences of matrices: about 7 seconds of one core
MAX_HELD_NUMBERS = 2**27  # entries of matrices at a time: 1 GiB


class TokenShift(NamedTuple):
    """A move of all tokens along an axis by so many patches, which are so far apart in the encoding's coordinates."""

    axis: int
    patches: float
    distance: float


class ShiftChange(NamedTuple):
    """How scores change by each shift, ([L] h S), for each query, ([L] h S N), and how many places each axis has."""

    change: theory.Change
    places: tuple[int, ...]


def convert_to_float64(encoding: Encoding) -> Encoding:
    """A copy on the CPU that computes in float64."""
    return copy.deepcopy(encoding).cpu().double()


@torch.no_grad()
def analyze_encoding(encoding: Encoding) -> dict[str, Any]:
    """What theory says of an encoding, in float64. Layers and heads are counted from 0, None where there is but one.

    An encoding without generators has `turns` None and nothing of what follows; of a chain, it is of the part that turns.
    """
    encoding = convert_to_float64(encoding)
    size, names = resolve_grid_size(encoding), get_axis_names(encoding.axes)
    about = {
        "name": encoding.name,
        "repr": repr(encoding),
        "acts_on": describe_code_target(compute_sample_code(encoding)),
        "relative": dict(zip(names, encoding.traits.relative, strict=True)),
        "size": list(size),
        "coordinates": encoding.coordinates,
    }
    if not turns(encoding):
        return about | {"turns": None}
    part = turning(encoding)
    reach = max(n * step for n, step in zip(size, measure_patch_steps(encoding, size), strict=True)) / 4
    return about | {
        "turns": part.name,
        "generators": _describe_generators(encoding, names),
        "rope_equation": {"reach": reach, "residual": theory.rope_equation(encoding, reach=reach)},
        "moves": _measure_shifts(encoding, size, names),
        **_describe_frequencies(part),
        "span": _describe_span(encoding, size, names),
    }


def measure_patch_steps(encoding: Encoding, size: Sequence[int]) -> list[float]:
    """How far neighbours are apart along each axis, in the encoding's coordinates."""
    steps = []
    for axis, n in enumerate(size):
        shape = (*size[:axis], max(n, 2), *size[axis + 1 :])
        first, second = encoding.grid(*shape).unflatten(0, shape).movedim(axis, 0)[:2]
        steps.append((second - first).amax().item())
    return steps


def measure_shift_change(
    encoding: Encoding,
    size: Sequence[int],
    shifts: Sequence[TokenShift],
    *,
    most: int = MAX_POINTS_PER_AXIS,
    work: int = MAX_SHIFT_WORK,
) -> ShiftChange:
    """Scores when all tokens move, at `most` places along each axis, from the first patch to the last, or at fewer.

    There are fewer where that would take too much work or memory: where blocks are large, or heads and layers many.
    """
    distances = list(dict.fromkeys(shift.distance for shift in shifts))
    moves, width = encoding.axes * len(distances), encoding.head_dim
    lead = theory.generators(encoding).shape[:-3].numel()
    block = max(map(len, find_channel_groups(compute_sample_code(encoding)).channels), default=width)
    fit = MAX_HELD_NUMBERS // (2 * (moves + 1) * lead * width**2), math.isqrt(work // (moves * lead * width * block))
    places = _choose_grid(size, most, min(fit))
    lines = [torch.linspace(0, n - 1, count, dtype=torch.float64) for n, count in zip(size, places, strict=True)]
    found = theory.equivariance(encoding, interpolate_positions(encoding, size, *lines), distances)
    axis, which = zip(*((shift.axis, distances.index(shift.distance)) for shift in shifts), strict=True)
    worst, expected = (each[..., list(axis), list(which)] for each in (found.worst, found.expected))
    return ShiftChange(theory.Change(worst, expected, found.place[..., list(axis), list(which), :]), places)


def _choose_grid(size: Sequence[int], most: int, total: int) -> tuple[int, ...]:
    """As many places along each axis, `most` at most and two at least, as make no more than that in total."""
    tried = (tuple(min(n, count) for n in size) for count in range(max(most, 2), 1, -1))
    return next((each for each in tried if math.prod(each) <= total), tuple(min(n, 2) for n in size))


def _describe_generators(encoding: Encoding, names: Sequence[str]) -> dict[str, Any]:
    found = theory.commutators(encoding)
    pairs = [
        {"axes": [names[i], names[j]], "largest": (one := found[..., i, j]).max().item(), "mean": one.mean().item()}
        | _locate_largest(encoding, one)
        for i, j in itertools.combinations(range(len(names)), 2)
    ]
    return {"commute": found.max().item() <= TOLERANCE, "pairs": pairs}


def _measure_shifts(encoding: Encoding, size: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """By one patch and, where that is more, by half the image."""
    steps = measure_patch_steps(encoding, size)
    shifts = [TokenShift(axis, by, by * steps[axis]) for axis, n in enumerate(size) for by in (1.0, n / 2)[: 1 + (n > 2)]]
    (worst, expected, _), places = measure_shift_change(encoding, size, shifts)
    root = expected.flatten(0, -2).square().mean(0).sqrt()
    rows = [
        {
            "axis": names[shift.axis],
            "patches": shift.patches,
            "distance": shift.distance,
            "worst": worst[..., i].max().item(),
            "expected": root[i].item(),
        }
        | _locate_largest(encoding, worst[..., i])
        for i, shift in enumerate(shifts)
    ]
    return {"places": list(places), "shifts": rows}


def _describe_frequencies(part: Encoding) -> dict[str, Any]:
    """What an encoding learns, and the waves of each head of the RoPE-Mixed that it folds to; or why it does not."""
    learned = count_parameters(part)
    try:
        wave = commuting_planes(part, FOLDS).waves
    except ValueError as error:
        return {"folds": False, "why": str(error), "waves": None, "parameters": {"learned": learned, "folded": None}}
    heads = []
    for i, own in enumerate(wave.flatten(0, -3)):
        found = spectrum_of(own, part.head_dim, TOLERANCE)
        head: dict[str, Any] = {"different": len(found.waves), "directions": found.directions(TOLERANCE)}
        head |= {"planes": found.multiplicity.tolist(), "still": found.still}
        heads.append(head | _format_layer_head(part, i, wave.shape[-3]))
    return {"folds": True, "why": None, "waves": heads, "parameters": {"learned": learned, "folded": wave.numel()}}


def _describe_span(encoding: Encoding, size: Sequence[int], names: Sequence[str]) -> list[dict[str, Any]]:
    """Of each axis alone: radians across the image, and how many of them and of planes that do not turn a head has."""
    rows = []
    for name, radians in zip(names, theory.span(encoding, *size).flatten(0, -3).movedim(-2, 0), strict=True):  # (h P)
        least = TOLERANCE * radians.max()
        turn = radians > least
        slower = torch.nn.functional.pad(radians.where(turn, 0.0), (0, 1))[..., 1:]
        different = (turn & (radians - slower > least)).sum(-1)
        own = radians[turn]
        row = {"axis": name, "fastest": own.max().item() if len(own) else 0.0}
        row |= {"slowest": own.min().item() if len(own) else 0.0, "planes": radians.shape[-1]}
        rows.append(row | {"different": _find_range(different), "still": _find_range((~turn).sum(-1))})
    return rows


def _find_range(counts: Tensor) -> list[int]:
    return [int(counts.min()), int(counts.max())]


def _locate_largest(encoding: Encoding, values: Tensor) -> dict[str, int | None]:
    """The layer and head of the largest of values ([L] h)."""
    return _format_layer_head(encoding, int(values.argmax()), values.shape[-1])


def _format_layer_head(encoding: Encoding, index: int, heads: int) -> dict[str, int | None]:
    layer, head = divmod(index, heads)
    return {"layer": None if encoding.layers is None else layer, "head": head if heads > 1 else None}

"""Facts that `ropewalk.theory` computes of one encoding, trained or not: as plain JSON values, and as text."""

import copy
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk import theory
from ropewalk.encoding import Encoding
from ropewalk.lab.inspect.code_structure import compute_sample_code, describe_code_target, find_channel_groups
from ropewalk.lab.inspect.encoding_facts import count_parameters
from ropewalk.lab.inspect.figure_grid import format_grid_size, get_axis_names, interpolate_positions, resolve_grid_size
from ropewalk.theory.commuting import turning, turns
from ropewalk.theory.waves import TOLERANCE as FOLDS
from ropewalk.theory.waves import commuting_planes, spectrum_of

TOLERANCE = 1e-6  # of what commutes, and of waves that are alike
SCORE_ROUNDING = 1e-9  # smaller changes of scores are rounding
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
    """Compute the properties of an encoding in float64. Layers and heads are counted from 0, and are None if there is one.

    For an encoding without generators, `turns` is None, and the facts that need generators are missing. For a chain, they
    are those of the part that rotates.
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
    """The distance of neighboring patches along each axis, in the encoding's coordinates."""
    steps = []
    for axis, n in enumerate(size):
        shape = (*size[:axis], max(n, 2), *size[axis + 1 :])
        first, second = encoding.grid(*shape, resolution="extrapolate").unflatten(0, shape).movedim(axis, 0)[:2]
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
    """The number of parameters, and the waves per head of the RoPE-Mixed that it folds to; or why it cannot be folded."""
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
    """For each axis alone: radians across the image, the number of distinct ones, and of planes that are not rotated."""
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


def format_theory_facts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Format the facts as labels and texts; a blank label continues the one above."""
    yield "instance", found["repr"]
    if found.get("weights"):
        yield "weights", found["weights"]
    if found["turns"] is None:
        yield "generators", f"none: it rotates no channels by exp(p_1 A_1 + p_2 A_2 + …) and acts on {found['acts_on']}"
        yield "scores", _format_claim(found["relative"])
        return
    if found["turns"] != found["name"]:
        yield "of", f"{found['turns']}, the part that rotates q and k; the following lines are about this part alone"
    yield from _format_generators(found["generators"])
    yield "equation", _format_equation(**found["rope_equation"])
    yield from _format_shifts(found["moves"], found["size"])
    yield "waves", _format_waves(found)
    yield from _format_span(found["span"], found["size"])
    yield "learns", f"{found['parameters']['learned']:,} parameters"
    why = f"yes, with {found['parameters']['folded']:,} parameters" if found["folds"] else f"no, {found['why']}"
    yield "folds", f"to mixed RoPE: {why}"


def _format_claim(relative: dict[str, bool]) -> str:
    kept = [f"{name}s" for name, value in relative.items() if value]
    changed = [f"{name}s" for name, value in relative.items() if not value]
    words = [f"do not change when all tokens move along {' or '.join(kept)}"] * bool(kept)
    words += [f"change when all tokens move along {' or '.join(changed)}"] * bool(changed)
    return "; they ".join(words) + " (claimed by its traits, not computed)"


def _format_generators(generators: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not generators["pairs"]:
        yield "generators", "commute: there is only one"
        return
    verdict = "commute" if generators["commute"] else "do not commute"
    yield "generators", f"{verdict}; |AB - BA| / (|A||B|), at most 1:"
    for pair in generators["pairs"]:
        words = f"{' and '.join(pair['axes'])}: {format_residual(pair['largest'])}"
        if pair["layer"] is not None or pair["head"] is not None:
            words += f" at most{_format_location(pair, pair['largest'])}, mean {format_residual(pair['mean'])}"
        yield "", words


def _format_equation(residual: float, reach: float) -> str:
    drawn = f"of |q||k| (random positions and shifts with standard deviation {reach:.3g})"
    if residual < SCORE_ROUNDING:
        return f"scores depend on relative positions alone, with an error of {format_residual(residual)} {drawn}"
    return f"scores depend on more than relative positions, by up to {format_residual(residual)} {drawn}"


def _format_shifts(moves: dict[str, Any], size: Sequence[int]) -> Iterator[tuple[str, str]]:
    few = " × ".join(map(str, moves["places"])) + (" positions" if len(size) > 1 else "")
    at = "all" if moves["places"] == list(size) else f"{few} of"
    yield (
        "both move",
        f"change of scores if all tokens move (in brackets: in its coordinates), at {at} {format_grid_size(size)}:",
    )
    for row in moves["shifts"]:
        by = f"{row['patches']:g} {row['axis']}{'' if row['patches'] == 1 else 's'} ({row['distance']:.3g})"
        worst = f"at most {format_residual(row['worst'])} of |q||k|{_format_location(row, row['worst'])}"
        yield "", f"by {by}: {worst}, RMS {format_residual(row['expected'])} of the RMS score"


def _format_location(row: dict[str, Any], value: float) -> str:
    """The head and layer of the largest value, if it exceeds rounding error."""
    named = [f"{what} {row[what] + 1}" for what in ("head", "layer") if row[what] is not None]
    return f" ({' of '.join(named)})" if named and value > SCORE_ROUNDING else ""


def _format_waves(found: dict[str, Any]) -> str:
    if found["waves"] is None:
        own = (f"{_format_range(*row['different'])} along {row['axis']}s alone" for row in found["span"])
        return f"no wave vectors; distinct frequencies: {', '.join(own)}"
    heads = found["waves"]
    different, directions, still = (
        _format_plural(noun, min(head[key] for head in heads), max(head[key] for head in heads))
        for key, noun in (("different", "distinct vector"), ("directions", "direction"), ("still", "channel"))
    )
    planes = [count for head in heads for count in head["planes"]]
    if not planes:
        return "none: no channel is rotated"
    rotates = f"each rotates {_format_plural('plane', min(planes), max(planes))}"
    return f"{different} per head, along {directions}; {rotates}; {still} not rotated"


def _format_span(rows: list[dict[str, Any]], size: Sequence[int]) -> Iterator[tuple[str, str]]:
    yield "span", f"radians across {format_grid_size(size)}:"
    for row in rows:
        still = f"; {_format_plural('plane', *row['still'])} of {row['planes']} not rotated" if max(row["still"]) else ""
        yield "", f"along {row['axis']}s: fastest plane {row['fastest']:.3g}, slowest {row['slowest']:.3g}{still}"


def _format_plural(noun: str, low: int, high: int) -> str:
    return f"{_format_range(low, high)} {noun}{'' if high == 1 else 's'}"


def _format_range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def format_residual(value: float) -> str:
    """Format with three digits; a value within rounding error with one."""
    return "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-") if value < 1e-8 else f"{value:.3g}"

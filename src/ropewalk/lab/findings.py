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
from ropewalk.lab.anatomy import acts_on, groups, sample_code
from ropewalk.lab.describe import count
from ropewalk.lab.places import axis_names, between, size_of
from ropewalk.theory.commuting import turning, turns
from ropewalk.theory.waves import TOLERANCE as FOLDS
from ropewalk.theory.waves import commuting_planes, spectrum_of

TOLERANCE = 1e-6  # of what commutes, and of waves that are alike
MOST = 8  # places along an axis
WORK = 2**26  # entries of differences of matrices: about 7 seconds of one core
HELD = 2**27  # entries of matrices at a time: 1 GiB


class Shift(NamedTuple):
    """A move of all tokens along an axis by so many patches, which are so far apart in the encoding's coordinates."""

    axis: int
    patches: float
    distance: float


class Moved(NamedTuple):
    """How scores change by each shift, ([L] h S), for each query, ([L] h S N), and how many places each axis has."""

    change: theory.Change
    places: tuple[int, ...]


def exact(encoding: Encoding) -> Encoding:
    """A copy on the CPU that computes in float64."""
    return copy.deepcopy(encoding).cpu().double()


@torch.no_grad()
def findings(encoding: Encoding) -> dict[str, Any]:
    """What theory says of an encoding, in float64. Layers and heads are counted from 0, None where there is but one.

    An encoding without generators has `turns` None and nothing of what follows; of a chain, it is of the part that turns.
    """
    encoding = exact(encoding)
    size, names = size_of(encoding), axis_names(encoding.axes)
    about = {
        "name": encoding.name,
        "repr": repr(encoding),
        "acts_on": acts_on(sample_code(encoding)),
        "relative": dict(zip(names, encoding.traits.relative, strict=True)),
        "size": list(size),
        "coordinates": encoding.coordinates,
    }
    if not turns(encoding):
        return about | {"turns": None}
    part = turning(encoding)
    reach = max(n * step for n, step in zip(size, patches(encoding, size), strict=True)) / 4
    return about | {
        "turns": part.name,
        "generators": _generators(encoding, names),
        "rope_equation": {"reach": reach, "residual": theory.rope_equation(encoding, reach=reach)},
        "moves": _moves(encoding, size, names),
        **_spectrum(part),
        "span": _span(encoding, size, names),
    }


def patches(encoding: Encoding, size: Sequence[int]) -> list[float]:
    """How far neighbours are apart along each axis, in the encoding's coordinates."""
    steps = []
    for axis, n in enumerate(size):
        shape = (*size[:axis], max(n, 2), *size[axis + 1 :])
        first, second = encoding.grid(*shape).unflatten(0, shape).movedim(axis, 0)[:2]
        steps.append((second - first).amax().item())
    return steps


def moved(encoding: Encoding, size: Sequence[int], shifts: Sequence[Shift], *, most: int = MOST, work: int = WORK) -> Moved:
    """Scores when all tokens move, at `most` places along each axis, from the first patch to the last, or at fewer.

    There are fewer where that would take too much work or memory: where blocks are large, or heads and layers many.
    """
    distances = list(dict.fromkeys(shift.distance for shift in shifts))
    moves, width = encoding.axes * len(distances), encoding.head_dim
    lead = theory.generators(encoding).shape[:-3].numel()
    block = max(map(len, groups(sample_code(encoding)).channels), default=width)
    fit = HELD // (2 * (moves + 1) * lead * width**2), math.isqrt(work // (moves * lead * width * block))
    places = _places(size, most, min(fit))
    lines = [torch.linspace(0, n - 1, count, dtype=torch.float64) for n, count in zip(size, places, strict=True)]
    found = theory.equivariance(encoding, between(encoding, size, *lines), distances)
    axis, which = zip(*((shift.axis, distances.index(shift.distance)) for shift in shifts), strict=True)
    worst, expected = (each[..., list(axis), list(which)] for each in (found.worst, found.expected))
    return Moved(theory.Change(worst, expected, found.place[..., list(axis), list(which), :]), places)


def _places(size: Sequence[int], most: int, total: int) -> tuple[int, ...]:
    """As many places along each axis, `most` at most and two at least, as make no more than that in total."""
    tried = (tuple(min(n, count) for n in size) for count in range(max(most, 2), 1, -1))
    return next((each for each in tried if math.prod(each) <= total), tuple(min(n, 2) for n in size))


def _generators(encoding: Encoding, names: Sequence[str]) -> dict[str, Any]:
    found = theory.commutators(encoding)
    pairs = [
        {"axes": [names[i], names[j]], "largest": (one := found[..., i, j]).max().item(), "mean": one.mean().item()}
        | _where(encoding, one)
        for i, j in itertools.combinations(range(len(names)), 2)
    ]
    return {"commute": found.max().item() <= TOLERANCE, "pairs": pairs}


def _moves(encoding: Encoding, size: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """By one patch and, where that is more, by half the image."""
    steps = patches(encoding, size)
    shifts = [Shift(axis, by, by * steps[axis]) for axis, n in enumerate(size) for by in (1.0, n / 2)[: 1 + (n > 2)]]
    (worst, expected, _), places = moved(encoding, size, shifts)
    root = expected.flatten(0, -2).square().mean(0).sqrt()
    rows = [
        {
            "axis": names[shift.axis],
            "patches": shift.patches,
            "distance": shift.distance,
            "worst": worst[..., i].max().item(),
            "expected": root[i].item(),
        }
        | _where(encoding, worst[..., i])
        for i, shift in enumerate(shifts)
    ]
    return {"places": list(places), "shifts": rows}


def _spectrum(part: Encoding) -> dict[str, Any]:
    """What an encoding learns, and the waves of each head of the RoPE-Mixed that it folds to; or why it does not."""
    learned = count(part)
    try:
        wave = commuting_planes(part, FOLDS).waves
    except ValueError as error:
        return {"folds": False, "why": str(error), "waves": None, "parameters": {"learned": learned, "folded": None}}
    heads = []
    for i, own in enumerate(wave.flatten(0, -3)):
        found = spectrum_of(own, part.head_dim, TOLERANCE)
        head: dict[str, Any] = {"different": len(found.waves), "directions": found.directions(TOLERANCE)}
        head |= {"planes": found.multiplicity.tolist(), "still": found.still}
        heads.append(head | _place(part, i, wave.shape[-3]))
    return {"folds": True, "why": None, "waves": heads, "parameters": {"learned": learned, "folded": wave.numel()}}


def _span(encoding: Encoding, size: Sequence[int], names: Sequence[str]) -> list[dict[str, Any]]:
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
        rows.append(row | {"different": _range(different), "still": _range((~turn).sum(-1))})
    return rows


def _range(counts: Tensor) -> list[int]:
    return [int(counts.min()), int(counts.max())]


def _where(encoding: Encoding, values: Tensor) -> dict[str, int | None]:
    """The layer and head of the largest of values ([L] h)."""
    return _place(encoding, int(values.argmax()), values.shape[-1])


def _place(encoding: Encoding, index: int, heads: int) -> dict[str, int | None]:
    layer, head = divmod(index, heads)
    return {"layer": None if encoding.layers is None else layer, "head": head if heads > 1 else None}

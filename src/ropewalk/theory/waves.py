"""What an encoding holds: its wave vectors, how far they turn across an image, and how many numbers it learns.

A commuting encoding turns planes, each by w · p with a wave vector w. Planes of one wave turn together: the encoding tells
such pairs of channels nothing apart. Planes of different waves along one line tell distances along that direction alone.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.arguments import instance_of, integer, not_negative, positives
from ropewalk.encoding import Encoding
from ropewalk.theory.commuting import Planes, commutators_of, generators, planes, turning

TOLERANCE = 1e-8
"""How far off scores of unit q and k may be for each radian turned: 1e-6 at 100 radians."""


class Spectrum(NamedTuple):
    """The different wave vectors (W A) of a head, longest first, how many planes turn by each, and channels that do not."""

    waves: Tensor
    multiplicity: Tensor
    still: int

    def directions(self, tolerance: float = 1e-6) -> int:
        """How many lines through zero the waves lie on."""
        units = torch.nn.functional.normalize(self.waves, dim=-1)
        lines = units.unsqueeze(-1) * units.unsqueeze(-2)  # alike for a wave and its opposite
        return len(_distinct(lines.flatten(1), tolerance)[0])


class Counts(NamedTuple):
    """The numbers that an encoding learns, and those of the RoPE-Mixed that it folds to: None, if it does not commute."""

    learned: int
    folded: int | None


def commuting_planes(encoding: Encoding, tolerance: float) -> Planes:
    """The planes that an encoding rotates. Raises an error if scores of unit q and k would be off by more than the tolerance
    for each radian of rotation."""
    tolerance = not_negative("tolerance", tolerance)
    a = generators(encoding)
    size = a.abs().max().item()
    if (uneven := (a + a.mT).abs().max().item()) > tolerance * size:
        share = f"{uneven / (2 * size):.3g} of their size"
        raise ValueError(f"{encoding.name} does not only rotate: its generators are not skew-symmetric, by {share}")
    found = planes(a)
    if 2 * found.residual > tolerance:
        share = f"by {commutators_of(a).max().item():.3g} of their size"
        left = f"rotations of separate planes leave a residual of {found.residual:.3g}, above {tolerance / 2:.3g}"
        raise ValueError(f"the generators of {encoding.name} do not commute, {share}: {left}")
    return found


def spectrum(encoding: Encoding, *, layer: int = 0, head: int = 0, tolerance: float = 1e-6) -> Spectrum:
    """The wave vectors of one head of a commuting encoding. Waves closer than `tolerance` of the longest count as one."""
    instance_of("encoding", encoding, Encoding)
    tolerance = not_negative("tolerance", tolerance)
    for name, place, count in (("layer", layer, encoding.layers or 1), ("head", head, encoding.own_heads)):
        integer(name, place, least=0, most=count - 1)
    found = commuting_planes(encoding, TOLERANCE).waves
    found = found if encoding.layers is None else found[layer]
    return spectrum_of(found[head if len(found) > 1 else 0], encoding.head_dim, tolerance)


def spectrum_of(waves: Tensor, head_dim: int, tolerance: float = 1e-6) -> Spectrum:
    """The same of the waves (P A) of the planes of one head."""
    longest = waves.norm(dim=-1).max()
    turning = waves[waves.norm(dim=-1) > tolerance * longest]
    distinct, counts = _distinct(turning, tolerance * longest.item())
    planes = torch.tensor(counts, dtype=torch.long, device="cpu")
    return Spectrum(turning[distinct], planes, head_dim - 2 * len(turning))


def span(encoding: Encoding, *size: int) -> Tensor:
    """Radians ([L] h A P) that planes turn from the first patch to the last along each axis alone, fastest first.

    They are the frequencies of each axis's generator times the extent of a grid of that size, in the encoding's
    coordinates, extrapolated from those of training; whether generators of different axes commute makes no difference.
    """
    options: dict[str, Any] = {"resolution": "extrapolate", "dtype": torch.float64, "device": "cpu"}
    places = instance_of("encoding", encoding, Encoding).grid(*positives("size", size), **options)
    extent = places.amax(0) - places.amin(0)
    values = torch.linalg.eigvalsh(1j * generators(encoding)).flip(-1)[..., : encoding.head_dim // 2]
    return values * extent[:, None]


def parameters(encoding: Encoding, *, tolerance: float = TOLERANCE) -> Counts:
    """How many numbers it learns, and how many there are in the RoPE-Mixed that gives the same scores; of what turns."""
    learned = sum(value.numel() for value in turning(encoding).parameters())
    try:
        return Counts(learned, commuting_planes(encoding, tolerance).waves.numel())
    except ValueError:
        return Counts(learned, None)


def _distinct(vectors: Tensor, tolerance: float) -> tuple[list[int], list[int]]:
    """The first of each set of vectors that lie within the tolerance of it, and how many there are in each set."""
    first: list[int] = []
    count: list[int] = []
    for i, vector in enumerate(vectors):
        away = (vectors[first] - vector).norm(dim=-1)
        if first and away.min() <= tolerance:
            count[int(away.argmin())] += 1
        else:
            first.append(i)
            count.append(1)
    return first, count

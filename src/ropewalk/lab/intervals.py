"""Means of a few seeds, and what they are worth.

With n seeds each of several encodings, all have about the same variance between seeds, which is therefore estimated from
all of them together: s² = Σ (y - ȳ_e)² / Σ (n_e - 1). The mean of one has the 95 % interval ȳ ± t s / √n, t of as many
degrees of freedom as the denominator has. A difference to a baseline is taken seed by seed, and its variance pooled in the
same way: what both share, such as the order of the data, cancels.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

SHARE = 0.95


class Estimate(NamedTuple):
    """A mean, half the width of its interval (None where one seed tells nothing), and of how many seeds."""

    mean: float
    half: float | None
    count: int  # type: ignore[assignment]


def means(found: Mapping[str, Sequence[float]]) -> dict[str, Estimate]:
    """For each name the mean of its values, with an interval from the variance of all."""
    freedom = sum(len(values) - 1 for values in found.values())
    squares = sum((value - _mean(values)) ** 2 for values in found.values() for value in values)
    deviation = math.sqrt(squares / freedom) if freedom else None
    return {
        name: Estimate(_mean(values), _half(deviation, freedom, len(values)), len(values)) for name, values in found.items()
    }


def differences(found: Mapping[str, Mapping[int, float]], baseline: str) -> dict[str, Estimate]:
    """For each other name the mean of what it has above the baseline, over the seeds that both have, if there are any."""
    base = found[baseline]
    pairs = {
        name: [values[seed] - base[seed] for seed in sorted(values.keys() & base.keys())]
        for name, values in found.items()
        if name != baseline
    }
    return means({name: values for name, values in pairs.items() if values})


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _half(deviation: float | None, freedom: int, count: int) -> float | None:
    return None if deviation is None else quantile(freedom) * deviation / math.sqrt(count)


def quantile(freedom: int, share: float = SHARE) -> float:
    """Student's t beyond which, on both sides together, 1 - share lies: by bisection on its distribution."""
    low, high = 0.0, 1e3
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < share else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """The probability of |T| < t, from its closed form for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cos, sin = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term = total = 1.0 if not odd else cos
    for k in range(2 + odd, freedom - 1, 2):
        term *= cos * cos * (k - 1) / k
        total += term
    if not odd:
        return sin * total
    return 2 / math.pi * (angle + (sin * total if freedom > 1 else 0.0))

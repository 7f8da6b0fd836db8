"""Means of a few seeds, and what they are worth.

With n seeds each of several encodings, all have about the same variance between seeds, which is therefore estimated from
all of them together: s² = Σ (y - ȳ_e)² / Σ (n_e - 1). The mean of one has the 95 % interval ȳ ± t s / √n, t of as many
degrees of freedom as the denominator has. That takes it that seeds are independent: where a seed moves all encodings
alike, these intervals are too narrow.

A difference to a baseline is taken seed by seed, so that what a seed does to both cancels. Its variance is 2 s² / n, with s²
from what is left of all values when each encoding and each seed has had its own level (a design in blocks). Where several
encodings are compared with one baseline, the intervals of all hold together with 95 %, by Bonferroni's inequality.

Whether one of several variances is larger than chance makes it: Cochran's C.

Of k variances of n values each, C is the largest over their sum. If values are normal and the true variances are equal, the
share that a given one has is beta distributed, with (n - 1) / 2 and (k - 1)(n - 1) / 2; that any of them exceeds C has at
most k times the probability that this one does.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

CONFIDENCE_LEVEL = 0.95

SeedResults = Mapping[str, Mapping[int, float]]
"""Values by name and seed."""


class MeanEstimate(NamedTuple):
    """A mean, half the width of its interval (None where one seed tells nothing), and of how many seeds."""

    mean: float
    half: float | None
    seeds: int


def estimate_means(found: Mapping[str, Sequence[float]]) -> dict[str, MeanEstimate]:
    """For each name the mean of its values, with an interval from the variance of all."""
    freedom = sum(len(values) - 1 for values in found.values())
    squares = sum((value - _compute_mean(values)) ** 2 for values in found.values() for value in values)
    deviation = math.sqrt(squares / freedom) if freedom else None
    return {
        name: MeanEstimate(_compute_mean(values), _compute_half_width(deviation, freedom, len(values)), len(values))
        for name, values in found.items()
    }


def estimate_differences(found: SeedResults, baseline: str, *, only: Sequence[str] | None = None) -> dict[str, MeanEstimate]:
    """For each other name the mean of what it has above the baseline, over the seeds that both have, if there are any.

    With `only` some of them are asked about, and the others serve to estimate the variance alone.
    """
    base = found[baseline]
    pairs = {
        name: [values[seed] - base[seed] for seed in sorted(values.keys() & base.keys())]
        for name, values in found.items()
        if name != baseline and (only is None or name in only)
    }
    there = {name: values for name, values in pairs.items() if values}
    variance, freedom = _pool_residual_variance(found)
    deviation, share = math.sqrt(2 * variance) if freedom else None, 1 - (1 - CONFIDENCE_LEVEL) / max(len(there), 1)
    return {
        name: MeanEstimate(_compute_mean(values), _compute_half_width(deviation, freedom, len(values), share), len(values))
        for name, values in there.items()
    }


def estimate_contrast(found: SeedResults, weights: Mapping[str, float]) -> MeanEstimate | None:
    """The sum of means by weights, which add up to zero, over the seeds that all of these names have, if there are any.

    Its variance is s² Σ w² / n, with s² as for a difference, of which the weights are 1 and -1.
    """
    seeds = set.intersection(*({*found.get(name, ())} for name in weights))
    if not seeds:
        return None
    total = math.fsum(weight * found[name][seed] for name, weight in weights.items() for seed in seeds)
    variance, freedom = _pool_residual_variance(found)
    deviation = math.sqrt(variance * math.fsum(weight**2 for weight in weights.values())) if freedom else None
    return MeanEstimate(total / len(seeds), _compute_half_width(deviation, freedom, len(seeds)), len(seeds))


def _pool_residual_variance(found: SeedResults) -> tuple[float, int]:
    """The variance of what is left when each name and each seed has its own level, and its degrees of freedom."""
    cells = sorted((name, seed) for name, values in found.items() for seed in values)
    if not cells:
        return 0.0, 0
    names, seeds = ({cell[i]: None for cell in cells} for i in (0, 1))
    design = np.array(
        [[*(name == each for each in names), *(seed == each for each in seeds)] for name, seed in cells], float
    )
    wanted = np.array([found[name][seed] for name, seed in cells])
    levels, _, rank, _ = np.linalg.lstsq(design, wanted, rcond=None)
    freedom = len(cells) - int(rank)
    return (float(np.square(wanted - design @ levels).sum()) / freedom if freedom else 0.0), freedom


def _compute_mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _compute_half_width(deviation: float | None, freedom: int, count: int, share: float = CONFIDENCE_LEVEL) -> float | None:
    return None if deviation is None else compute_t_quantile(freedom, share) * deviation / math.sqrt(count)


def compute_t_quantile(freedom: int, share: float = CONFIDENCE_LEVEL) -> float:
    """Student's t beyond which, on both sides together, 1 - share lies: by bisection on its distribution."""
    low, high = 0.0, 1e3
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if compute_t_probability(middle, freedom) < share else (low, middle)
    return high


def compute_t_probability(t: float, freedom: int) -> float:
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


COCHRAN_LEVEL = 0.99


def compute_cochran_limit(count: int, size: int, share: float = COCHRAN_LEVEL) -> float:
    """What the largest of `count` equal variances of `size` values has of their sum at most, in this share of cases."""
    own, others, low, high = size - 1, (count - 1) * (size - 1), 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if count * _compute_tail_probability(middle, own, others) > 1 - share else (low, middle)
    return high


def _compute_tail_probability(x: float, own: int, others: int) -> float:
    """The probability of a share above x, of a sum of `own` squares in one of `own + others`.

    That of one square is Student's, that of two is a power; each two more add a term (Abramowitz and Stegun 26.5.16).
    """
    a, b = 1 - own % 2 / 2, others / 2
    beyond = (1 - x) ** b if a == 1 else 1 - compute_t_probability(math.sqrt(others * x / (1 - x)), others)
    while a < own / 2:
        beyond += x**a * (1 - x) ** b * math.exp(math.lgamma(a + b) - math.lgamma(a + 1) - math.lgamma(b))
        a += 1
    return beyond

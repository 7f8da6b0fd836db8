"""Confidence intervals for means and differences over a few seeds, paired tests, and tests of equal means and variances.

With n seeds each of several encodings the variance between seeds is assumed equal and pooled over all encodings:
s² = Σ (y - ȳ_e)² / Σ (n_e - 1). A mean has the 95 % interval ȳ ± t s / √n, with the degrees of freedom of the denominator.
Seeds are assumed independent: where a seed moves all encodings alike, these intervals are too narrow.

Differences to a baseline are taken seed by seed, so that the effect of a seed cancels. Their variance is 2 s² / n, with s²
from the residuals of a block design with one level for each encoding and each seed. Intervals of several encodings against
one baseline are Bonferroni-corrected: they hold together with 95 %.

Whether several means are equal is an F test: n Σ (ȳ_e - ȳ)² / (k - 1) over the same s², for k names and n seeds.

Cochran's C is the largest of k variances of n values over their sum. For normal values of equal variance, the share of one
is beta distributed with (n - 1) / 2 and (k - 1)(n - 1) / 2, and Bonferroni's inequality bounds that of the largest.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE_LEVEL = 0.95

SeedResults = Mapping[str, Mapping[int, float]]
"""Values by name and seed."""


class MeanEstimate(NamedTuple):
    """A mean, half the width of its confidence interval (None without degrees of freedom), and the number of seeds."""

    mean: float
    half: float | None
    seeds: int


def estimate_means(found: Mapping[str, Sequence[float]]) -> dict[str, MeanEstimate]:
    """Estimate the mean of each name's values, with intervals from the pooled variance."""
    freedom = sum(len(values) - 1 for values in found.values())
    squares = sum((value - _compute_mean(values)) ** 2 for values in found.values() for value in values)
    deviation = math.sqrt(squares / freedom) if freedom else None
    return {
        name: MeanEstimate(_compute_mean(values), _compute_half_width(deviation, freedom, len(values)), len(values))
        for name, values in found.items()
    }


def estimate_differences(found: SeedResults, baseline: str, *, only: Sequence[str] | None = None) -> dict[str, MeanEstimate]:
    """Estimate the mean difference of each other name to the baseline, over the seeds that both have.

    Names without a common seed are left out. With `only`, the correction for multiple comparisons counts these names alone;
    the others still contribute to the pooled variance.
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
    """Estimate a contrast: the weighted sum of means, over the seeds that all of these names have; None without any.

    Weights add up to zero. The variance is s² Σ w² / n, with s² as for a difference, whose weights are 1 and -1.
    """
    seeds = set.intersection(*({*found.get(name, ())} for name in weights))
    if not seeds:
        return None
    total = math.fsum(weight * found[name][seed] for name, weight in weights.items() for seed in seeds)
    variance, freedom = _pool_residual_variance(found)
    deviation = math.sqrt(variance * math.fsum(weight**2 for weight in weights.values())) if freedom else None
    return MeanEstimate(total / len(seeds), _compute_half_width(deviation, freedom, len(seeds)), len(seeds))


class EqualityTest(NamedTuple):
    """An F test of equal means: the statistic, and its probability if the means are equal."""

    statistic: float
    probability: float


def compute_equality_test(found: SeedResults, names: Sequence[str]) -> EqualityTest | None:
    """Test whether these names have equal means, over the seeds that all of them have; None without degrees of freedom.

    The residual variance is pooled over all names in `found`, as for a difference.
    """
    seeds = set.intersection(*({*found.get(name, ())} for name in names))
    variance, freedom = _pool_residual_variance(found)
    if not seeds or not variance or len(names) < 2:
        return None
    averages = [_compute_mean([found[name][seed] for seed in sorted(seeds)]) for name in names]
    center, between = _compute_mean(averages), len(names) - 1
    statistic = len(seeds) * math.fsum((each - center) ** 2 for each in averages) / between / variance
    return EqualityTest(statistic, float(stats.f.sf(statistic, between, freedom)))


def _pool_residual_variance(found: SeedResults) -> tuple[float, int]:
    """Compute the residual variance of a block design, a level for each name and seed, and its degrees of freedom."""
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
    """Compute the two-sided quantile of Student's t: |T| is below it with probability `share`."""
    return float(stats.t.isf((1 - share) / 2, freedom))


def compute_variance_shares(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Compute the share of each name in the sum of variances, for equally many values each."""
    variances = {name: statistics.variance(values) for name, values in found.items()}
    total = math.fsum(variances.values())
    return {name: each / total if total else 0.0 for name, each in variances.items()}


COCHRAN_LEVEL = 0.99


def compute_cochran_limit(count: int, size: int, share: float = COCHRAN_LEVEL) -> float:
    """Compute the critical value of Cochran's C for `count` equal variances of `size` values each."""
    return float(stats.beta.isf((1 - share) / count, (size - 1) / 2, (count - 1) * (size - 1) / 2))


class PairedEstimate(NamedTuple):
    """The mean of differences of single seeds, its standard error (None of a single seed), and the number of seeds.

    Its variance is that of these differences alone, not pooled over other encodings: a paired t test.
    """

    mean: float
    error: float | None
    seeds: int

    def half_width(self, share: float = CONFIDENCE_LEVEL) -> float | None:
        """Half of the confidence interval; None of a single seed."""
        return None if self.error is None else compute_t_quantile(self.seeds - 1, share) * self.error

    @property
    def p_value(self) -> float | None:
        """The two-sided p value of a mean of zero; None of a single seed."""
        if self.error is None:
            return None
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return 2 * float(stats.t.sf(abs(self.mean) / self.error, self.seeds - 1))


def estimate_paired_mean(differences: Sequence[float]) -> PairedEstimate | None:
    """Estimate the mean of differences, one a seed; None without any."""
    count = len(differences)
    if not count:
        return None
    mean = _compute_mean(differences)
    squares = math.fsum((each - mean) ** 2 for each in differences)
    return PairedEstimate(mean, math.sqrt(squares / (count - 1) / count) if count > 1 else None, count)


LARGEST_SIGN_FLIPS = 20
"""Most seeds whose signs are flipped in all ways: a million."""


def compute_sign_flip_p(differences: Sequence[float]) -> float:
    """Compute the exact two-sided p value of a mean of zero, if each difference is as likely as its negative."""
    if len(differences) > LARGEST_SIGN_FLIPS:
        raise ValueError(f"signs are flipped in all ways for at most {LARGEST_SIGN_FLIPS} seeds, got {len(differences)}")
    sums = np.zeros(1)
    for each in differences:
        sums = np.concatenate([sums + each, sums - each])
    found = abs(math.fsum(differences))
    tolerance = 1e-12 * math.fsum(map(abs, differences))  # sums of the same numbers in another order
    return float((np.abs(sums) >= found - tolerance).mean())


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values of several hypotheses by Holm's method: those up to α are rejected, with an error of α in all."""
    order, highest = sorted(range(len(p_values)), key=lambda i: p_values[i]), 0.0
    adjusted = [0.0] * len(p_values)
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def estimate_crossed_half(values: np.ndarray, share: float = CONFIDENCE_LEVEL) -> float | None:
    """Half of the confidence interval of the mean of values (seeds images) for other seeds and other images; None of one.

    The variance is that of means over images, plus that of means over seeds, less what both count twice, and no less than
    the larger one. Student's t has the degrees of freedom of the smaller number.
    """
    seeds, images = values.shape
    if min(seeds, images) < 2:
        return None
    rows, columns = values.mean(1), values.mean(0)
    rest = values - rows[:, None] - columns + values.mean()
    of_seeds, of_images = float(rows.var(ddof=1)) / seeds, float(columns.var(ddof=1)) / images
    twice = float(np.square(rest).sum()) / ((seeds - 1) * (images - 1)) / (seeds * images)
    variance = max(of_seeds + of_images - twice, of_seeds, of_images)
    return compute_t_quantile(min(seeds, images) - 1, share) * math.sqrt(variance)

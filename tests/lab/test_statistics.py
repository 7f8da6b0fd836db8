"""Intervals against scipy's, and by simulation."""

import math
import random

import numpy as np
import pytest
from scipy import stats

from ropewalk.lab.statistics import (
    compute_cochran_limit,
    compute_equality_test,
    compute_t_quantile,
    compute_variance_shares,
    estimate_contrast,
    estimate_differences,
    estimate_means,
)


@pytest.mark.parametrize(
    ("freedom", "at_95"),
    [
        (1, 12.706204736432095),
        (2, 4.302652729911275),
        (5, 2.570581835636314),
        (15, 2.131449545559323),
        (40, 2.021075390306273),
    ],
)
def test_quantiles_are_student_s(freedom, at_95):
    assert compute_t_quantile(freedom) == pytest.approx(at_95, rel=1e-9)


def test_two_degrees_of_freedom_have_a_closed_form():
    for share in (0.5, 0.95, 0.999, 1 - 0.05 / 12):
        assert compute_t_quantile(2, share) == pytest.approx(share * math.sqrt(2 / (1 - share**2)), rel=1e-9)


@pytest.mark.parametrize(
    ("count", "size", "at_1", "at_5"),
    [
        (2, 3, 0.9950, 0.9750),
        (4, 3, 0.8643, 0.7679),
        (10, 3, 0.5358, 0.4450),
        (12, 3, 0.4751, 0.3924),
        (3, 2, 0.9933, 0.9669),
        (5, 4, 0.6957, 0.5981),
    ],
)
def test_the_largest_of_equal_variances_has_what_cochran_s_table_has(count, size, at_1, at_5):
    assert compute_cochran_limit(count, size) == pytest.approx(at_1, abs=6e-5)
    assert compute_cochran_limit(count, size, 0.95) == pytest.approx(at_5, abs=6e-5)


@pytest.mark.parametrize("size", range(2, 12))
@pytest.mark.parametrize("count", [2, 3, 11, 40])
def test_the_largest_of_equal_variances_follows_from_the_quantile_of_f(count, size):
    quantile_of_f = stats.f.isf(0.01 / count, size - 1, (count - 1) * (size - 1))
    assert compute_cochran_limit(count, size) == pytest.approx(1 / (1 + (count - 1) / quantile_of_f), rel=1e-9)


def test_equal_variances_are_rarely_rejected():
    drawn = np.random.default_rng(0).normal(size=(40_000, 4, 3)).var(-1, ddof=1)
    told = (drawn.max(-1) > compute_cochran_limit(4, 3) * drawn.sum(-1)).mean()
    assert told == pytest.approx(0.01, abs=0.002)


def test_one_encoding_has_the_usual_interval():
    values = [0.71, 0.75, 0.7, 0.73]
    low, high = stats.t.interval(0.95, 3, loc=sum(values) / 4, scale=stats.sem(values))
    found = estimate_means({"a": values})["a"]
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    assert found.seeds == 4


def test_variance_is_pooled():
    found = estimate_means({"a": [1.0, 3.0], "b": [10.0, 10.0, 10.0]})
    deviation = math.sqrt(2.0 / 3)
    assert found["a"].half == pytest.approx(stats.t.ppf(0.975, 3) * deviation / math.sqrt(2))
    assert found["b"].half == pytest.approx(stats.t.ppf(0.975, 3) * deviation / math.sqrt(3))


def test_one_seed_tells_no_interval():
    assert estimate_means({"a": [0.5], "b": [0.6]})["a"] == (0.5, None, 1)


def test_what_seeds_share_cancels_in_differences():
    shared = {0: 0.0, 1: 5.0, 2: -5.0}
    found = {
        "base": {seed: 1 + shift for seed, shift in shared.items()},
        "other": {seed: 1.5 + shift + 0.01 * seed for seed, shift in shared.items()},
        "few": {1: 7.0},
        "none": {7: 1.0},
    }
    apart = estimate_differences(found, "base")
    assert apart.keys() == {"other", "few"}
    assert apart["other"].mean == pytest.approx(0.51)
    assert (
        apart["other"].half
        < 0.1
        < estimate_means({name: list(values.values()) for name, values in found.items()})["other"].half
    )
    assert apart["few"] == pytest.approx((1.0, apart["other"].half * math.sqrt(3), 1))


def test_differences_are_of_a_design_in_blocks():
    found = {"base": {0: 1.0, 1: 2.0, 2: 4.0}, "a": {0: 2.0, 1: 2.5, 2: 6.0}, "b": {0: 0.0, 1: 2.0, 2: 2.5}}
    y = np.array([list(values.values()) for values in found.values()])
    left = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    half = stats.t.ppf(1 - 0.025 / 2, 4) * math.sqrt(2 * (left**2).sum() / 4 / 3)  # two differences, which hold at once
    assert estimate_differences(found, "base") == {
        "a": pytest.approx((3.5 / 3, half, 3)),
        "b": pytest.approx((-2.5 / 3, half, 3)),
    }


def test_one_difference_has_the_interval_of_student_s_paired_test():
    found = {"base": {0: 1.0, 1: 2.0, 2: 4.0}, "a": {0: 2.0, 1: 2.5, 2: 6.0}}
    apart = estimate_differences(found, "base")["a"]
    low, high = stats.ttest_rel(list(found["a"].values()), list(found["base"].values())).confidence_interval(0.95)
    assert (apart.mean - apart.half, apart.mean + apart.half) == pytest.approx((low, high))


def test_seeds_that_some_lack_still_tell_of_the_variance():
    whole = {
        name: {seed: float((7 * i + 3 * seed * seed + i * seed) % 5) for seed in range(4)} for i, name in enumerate("xyz")
    }
    gaps = {**whole, "y": {0: whole["y"][0], 2: whole["y"][2]}, "w": {9: 3.0}}
    apart = estimate_differences(gaps, "x")
    assert [(name, each.seeds) for name, each in apart.items()] == [("y", 2), ("z", 4)]
    assert apart["y"].mean == pytest.approx((whole["y"][0] - whole["x"][0] + whole["y"][2] - whole["x"][2]) / 2)
    assert apart["y"].half == pytest.approx(apart["z"].half * math.sqrt(2))
    cells = [(name, seed) for name, values in gaps.items() if name != "w" for seed in values]
    design = np.array([[name == "y", name == "z", *(seed == each for each in range(4))] for name, seed in cells], float)
    _, squares, rank, _ = np.linalg.lstsq(design, np.array([gaps[name][seed] for name, seed in cells]), rcond=None)
    freedom = len(cells) - rank
    assert apart["z"].half == pytest.approx(stats.t.ppf(1 - 0.025 / 2, freedom) * math.sqrt(2 * squares[0] / freedom / 4))


def test_differences_of_one_seed_have_no_interval():
    assert estimate_differences({"base": {0: 1.0}, "a": {0: 2.0}, "b": {0: 0.5}}, "base") == {
        "a": (1.0, None, 1),
        "b": (-0.5, None, 1),
    }
    assert estimate_differences({"base": {0: 1.0}}, "base") == {}


def test_all_differences_hold_at_once():
    draw, wrong, one = random.Random(0), 0, 0
    for _ in range(1500):
        shared = {seed: draw.gauss(0, 3) for seed in range(2)}
        found = {name: {seed: draw.gauss(0, 1) + shared[seed] for seed in shared} for name in "abcdefgh"}
        apart = [abs(each.mean) > each.half for each in estimate_differences(found, "a").values()]
        wrong, one = wrong + any(apart), one + apart[0]
    assert 0.02 < wrong / 1500 < 0.05  # Bonferroni's inequality is not sharp where all share a baseline
    assert one / 1500 < 0.02


def test_intervals_hold_what_they_say():
    draw, inside = random.Random(0), 0
    for _ in range(2000):
        found = estimate_means(
            {name: [draw.gauss(place, 1) for _ in range(3)] for name, place in (("a", 0), ("b", 4), ("c", 9))}
        )
        inside += abs(found["b"].mean - 4) < found["b"].half
    assert inside / 2000 == pytest.approx(0.95, abs=0.015)


def test_nothing_has_no_difference():
    assert estimate_differences({"base": {}, "other": {}}, "base") == {}


def test_a_contrast_of_two_is_their_difference():
    drawn = np.random.default_rng(0).normal(size=(4, 3))
    found = {name: dict(enumerate(map(float, row))) for name, row in zip("abcd", drawn, strict=True)}
    assert estimate_contrast(found, {"b": 1.0, "a": -1.0}) == pytest.approx(
        estimate_differences(found, "a", only=["b"])["b"]
    )


def test_a_contrast_of_groups_is_that_of_least_squares():
    drawn = np.random.default_rng(1).normal(size=(5, 3))
    found = {name: dict(enumerate(map(float, row))) for name, row in zip("abcde", drawn, strict=True)}
    weights = {"a": 0.5, "b": 0.5, "c": -1.0}
    left = drawn - drawn.mean(1, keepdims=True) - drawn.mean(0) + drawn.mean()
    deviation = math.sqrt((left**2).sum() / 8 * (0.25 + 0.25 + 1) / 3)
    means_of = drawn.mean(1)
    told = estimate_contrast(found, weights)
    assert told.mean == pytest.approx((means_of[0] + means_of[1]) / 2 - means_of[2])
    assert (told.half, told.seeds) == (pytest.approx(stats.t.ppf(0.975, 8) * deviation), 3)


def test_a_contrast_is_of_the_seeds_that_all_have():
    found = {"a": {0: 1.0, 1: 3.0, 2: 9.0}, "b": {0: 0.0, 1: 1.0}}
    told = estimate_contrast(found, {"a": 1.0, "b": -1.0})
    assert (told.mean, told.seeds) == (1.5, 2)
    assert estimate_contrast(found, {"a": 1.0, "c": -1.0}) is None
    assert estimate_contrast({"a": {0: 1.0}, "b": {0: 0.5}}, {"a": 1.0, "b": -1.0}) == (0.5, None, 1)


def test_equal_means_are_tested_by_the_analysis_of_variance_in_blocks():
    """Independent reference: sums of squares of a complete design."""
    draw = np.random.default_rng(0).normal(size=(4, 5)) + np.arange(4)[:, None] / 2
    found = {name: dict(enumerate(row)) for name, row in zip("abcd", draw, strict=True)}
    center, names, seeds = draw.mean(), draw.mean(1, keepdims=True), draw.mean(0)
    residual = ((draw - names - seeds + center) ** 2).sum() / 12
    statistic = 5 * ((names - center) ** 2).sum() / 3 / residual
    test = compute_equality_test(found, "abcd")
    assert test.statistic == pytest.approx(statistic)
    assert test.probability == pytest.approx(1 - stats.f.cdf(statistic, 3, 12))


def test_equality_of_some_has_the_variance_of_all_and_of_two_is_a_difference():
    found = {"a": {0: 1.0, 1: 2.0, 2: 4.0}, "b": {0: 2.5, 1: 2.0, 2: 5.0}, "wild": {0: 0.0, 1: 9.0, 2: -7.0}}
    test = compute_equality_test(found, ("a", "b"))
    pair = estimate_differences(found, "b", only=["a"])["a"]
    assert test.statistic == pytest.approx((pair.mean * compute_t_quantile(4) / pair.half) ** 2)
    assert compute_equality_test({"a": {0: 1.0}, "b": {0: 2.0}}, ("a", "b")) is None
    assert compute_equality_test(found, ("a", "none")) is None


def test_shares_of_variance():
    assert compute_variance_shares({"a": [1.0, 3.0], "b": [0.0, 4.0]}) == pytest.approx({"a": 0.2, "b": 0.8})
    assert compute_variance_shares({"a": [1.0, 1.0], "b": [2.0, 2.0]}) == {"a": 0.0, "b": 0.0}

"""Intervals against scipy's, and by simulation."""

import math
import random

import pytest
from scipy import stats

from ropewalk.lab.intervals import differences, means, quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 15, 40, 301])
def test_quantiles_are_student_s(freedom):
    assert quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)
    assert quantile(freedom, 0.5) == pytest.approx(stats.t.ppf(0.75, freedom), rel=1e-9)


def test_one_encoding_has_the_usual_interval():
    values = [0.71, 0.75, 0.7, 0.73]
    low, high = stats.t.interval(0.95, 3, loc=sum(values) / 4, scale=stats.sem(values))
    found = means({"a": values})["a"]
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    assert found.count == 4


def test_variance_is_pooled():
    found = means({"a": [1.0, 3.0], "b": [10.0, 10.0, 10.0]})
    deviation = math.sqrt(2.0 / 3)
    assert found["a"].half == pytest.approx(stats.t.ppf(0.975, 3) * deviation / math.sqrt(2))
    assert found["b"].half == pytest.approx(stats.t.ppf(0.975, 3) * deviation / math.sqrt(3))


def test_one_seed_tells_no_interval():
    assert means({"a": [0.5], "b": [0.6]})["a"] == (0.5, None, 1)


def test_what_seeds_share_cancels_in_differences():
    shared = {0: 0.0, 1: 5.0, 2: -5.0}
    found = {
        "base": {seed: 1 + shift for seed, shift in shared.items()},
        "other": {seed: 1.5 + shift + 0.01 * seed for seed, shift in shared.items()},
        "few": {1: 7.0},
        "none": {7: 1.0},
    }
    apart = differences(found, "base")
    assert apart.keys() == {"other", "few"}
    assert apart["other"].mean == pytest.approx(0.51)
    assert apart["other"].half < 0.1 < means({name: list(values.values()) for name, values in found.items()})["other"].half
    assert apart["few"] == pytest.approx((1.0, apart["other"].half * math.sqrt(3), 1))


def test_intervals_hold_what_they_say():
    draw, inside = random.Random(0), 0
    for _ in range(2000):
        found = means({name: [draw.gauss(place, 1) for _ in range(3)] for name, place in (("a", 0), ("b", 4), ("c", 9))})
        inside += abs(found["b"].mean - 4) < found["b"].half
    assert inside / 2000 == pytest.approx(0.95, abs=0.015)

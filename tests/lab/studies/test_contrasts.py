"""Pre-registered contrasts on made-up records whose answer is known."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from ropewalk.lab.config import Config
from ropewalk.lab.record import RunRecord, pack_bits
from ropewalk.lab.statistics import (
    PairedEstimate,
    adjust_by_holm,
    compute_sign_flip_p,
    estimate_crossed_half,
    estimate_paired_mean,
)
from ropewalk.lab.studies.claims import ClaimSide
from ropewalk.lab.studies.contrasts import (
    PairedContrast,
    collect_contrast,
    get_test_loss,
    intervals_overlap,
    judge_contrasts,
    judge_estimate,
)

A, B = ClaimSide("a"), ClaimSide("b")
GAPS = (0.1, 0.5, -0.2, 0.3, 0.4)


def record(side, seed, value, loss=None, bits=None):
    result = {"test_accuracy": value / 100} | ({} if loss is None else {"test_loss": loss})
    facts = {} if bits is None else {"test_correct": pack_bits(bits), "data": {"counts": {"test": len(bits)}}}
    return RunRecord(config=Config(seed=seed), run=None, part=side.part, name=side.name, result=result, **facts)


def pairs(gaps, one=A, other=B):
    """Runs of `one` that are better than those of `other` by these gaps; seeds are far apart."""
    found = []
    for seed, gap in enumerate(gaps):
        found += [record(one, seed, 60 + 3 * seed + gap, 1.0), record(other, seed, 60 + 3 * seed, 1.0 + gap / 10)]
    return found


def difference(one=A, other=B, **options):
    return PairedContrast("name", "text", {one: 1.0, other: -1.0}, **options)


def test_the_interval_is_that_of_a_paired_t_test():
    (verdict,) = judge_contrasts([difference()], pairs(GAPS))
    test = stats.ttest_1samp(GAPS, 0.0)
    assert verdict.found.mean == pytest.approx(np.mean(GAPS))
    assert verdict.found.p_value == pytest.approx(test.pvalue)
    for level in (0.90, 0.95):
        low, high = test.confidence_interval(level)
        assert verdict.found.half_width(level) == pytest.approx((high - low) / 2)
    assert verdict.loss.mean == pytest.approx(-np.mean(GAPS) / 10)
    assert verdict.loss.p_value == pytest.approx(test.pvalue)


def test_other_encodings_do_not_change_the_interval():
    """Unlike claims, whose variance is pooled."""
    noisy = [record(ClaimSide("c"), seed, 50 + 7 * (-1) ** seed) for seed in range(5)]
    assert judge_contrasts([difference()], pairs(GAPS)) == judge_contrasts([difference()], [*pairs(GAPS), *noisy])


def test_seeds_that_lack_a_run_are_left_out():
    whole = pairs(GAPS)
    assert collect_contrast(difference(), whole[:-1]) == pytest.approx(dict(enumerate(GAPS[:-1])))
    unfinished = [*whole[:-1], replace(whole[-1], result=None)]
    assert len(collect_contrast(difference(), unfinished)) == 4
    assert collect_contrast(difference(), [replace(each, part="other") for each in whole]) == {}
    assert (
        len(collect_contrast(difference(), [replace(each, result={"test_accuracy": 0.5}) for each in whole], get_test_loss))
        == 0
    )


def test_weights_of_several_runs():
    sides = [ClaimSide(name, part) for part in ("main", "more") for name in "ab"]
    weights = dict(zip(sides, (0.5, -0.5, 0.5, -0.5), strict=True))
    records = [*pairs((1.0, 2.0)), *pairs((3.0, 6.0), sides[2], sides[3])]
    assert collect_contrast(PairedContrast("name", "text", weights), records) == pytest.approx({0: 2.0, 1: 4.0})


@pytest.mark.parametrize(
    ("mean", "error", "margin", "word"),
    [
        (0.0, 0.1, 0.5, "equivalent"),
        (0.24, 0.1, 0.5, "different, equivalent"),
        (0.4, 0.1, 0.5, "different"),
        (-0.4, 0.1, 0.5, "different"),
        (0.24, 0.1, None, "different"),
        (0.3, 0.2, 0.5, "undecided"),
        (-0.3, 0.2, 0.5, "undecided"),
        # With 10 seeds t is 1.833 and 2.262: just inside and outside of each rule.
        (0.5 - 1.84 * 0.1, 0.1, 0.5, "different, equivalent"),
        (0.5 - 1.83 * 0.1, 0.1, 0.5, "different"),
        (2.27 * 0.1, 0.1, None, "different"),
        (2.26 * 0.1, 0.1, None, "undecided"),
    ],
)
def test_words(mean, error, margin, word):
    assert judge_estimate(PairedEstimate(mean, error, 10), margin) == word


def test_a_single_seed_and_no_seed_tell_nothing():
    (verdict,) = judge_contrasts([difference(margin=100.0)], pairs((0.0,)))
    assert (verdict.word, verdict.found.error, verdict.found.half_width(), verdict.found.p_value) == (
        "undecided",
        *[None] * 3,
    )
    (verdict,) = judge_contrasts([difference(margin=100.0, family=True)], [])
    assert verdict[1:] == (None, None, None, None, None, "undecided")


def test_seeds_that_agree_exactly():
    assert estimate_paired_mean([0.3] * 3).p_value == 0.0
    assert estimate_paired_mean([0.0] * 3).p_value == 1.0


def test_holm_by_hand():
    assert adjust_by_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert adjust_by_holm([0.6, 0.5]) == [1.0, 1.0]
    assert adjust_by_holm([0.001, 0.02, 0.021]) == pytest.approx([0.003, 0.04, 0.04])


def test_contrasts_of_the_family_that_were_not_run_count():
    missing = difference(ClaimSide("x"), family=True)
    family = judge_contrasts([difference(family=True), missing, missing], pairs(GAPS))
    assert family[0].holm_p == pytest.approx(3 * family[0].found.p_value)
    assert family[1].holm_p is None
    assert judge_contrasts([difference()], pairs(GAPS))[0].holm_p is None


def test_sign_flips_by_hand():
    assert compute_sign_flip_p([1.0, 1.0, 1.0]) == 2 / 8
    assert compute_sign_flip_p([3.0, -1.0]) == 4 / 4
    assert compute_sign_flip_p([3.0, 1.0, 0.5]) == 2 / 8
    assert compute_sign_flip_p([3.0, 1.0, -0.5]) == 4 / 8
    assert compute_sign_flip_p([0.1, 0.2, 0.3, 0.7]) == 2 / 16, "rounding of sums does not count"
    with pytest.raises(ValueError, match="20 seeds, got 21"):
        compute_sign_flip_p([1.0] * 21)


def test_sign_flips_agree_with_t_on_normal_values():
    values = [random.Random(seed).gauss(0.2, 0.35) for seed in range(10)]
    assert compute_sign_flip_p(values) == pytest.approx(estimate_paired_mean(values).p_value, abs=0.03)


def test_an_interval_for_images_covers():
    """Effects of seeds, of images and of both: the interval for others of each has the true mean in 95 % of cases."""
    generator, inside, trials = np.random.default_rng(0), 0, 2000
    for _ in range(trials):
        parts = (0.2, (10, 1)), (2.0, (1, 100)), (3.0, (10, 100))
        values = sum(deviation * generator.standard_normal(shape) for deviation, shape in parts)
        inside += abs(values.mean()) <= estimate_crossed_half(values)
    assert 0.94 < inside / trials < 0.985
    assert estimate_crossed_half(np.zeros((1, 100))) is None


def test_images_widen_the_interval():
    """Every seed gains the same ten of a hundred images: certain over seeds, not over images."""
    gain, seeds = [i < 10 for i in range(100)], range(4)
    records = [record(A, seed, 10.0, bits=gain) for seed in seeds]
    records += [record(B, seed, 0.0, bits=[False] * 100) for seed in seeds]
    (verdict,) = judge_contrasts([difference()], records)
    assert verdict.found.half_width() == 0.0
    expected = 100 * np.std(gain, ddof=1) / 10 * stats.t.ppf(0.975, 3)
    assert verdict.image_half == pytest.approx(expected)
    assert judge_contrasts([difference()], [replace(each, test_correct=None) for each in records])[0].image_half is None


def test_intervals_overlap_or_not():
    one = PairedEstimate(0.0, 0.1, 10)
    half = one.half_width()
    assert intervals_overlap(one, PairedEstimate(2 * half - 1e-9, 0.1, 10))
    assert not intervals_overlap(one, PairedEstimate(2 * half + 1e-9, 0.1, 10))
    assert intervals_overlap(one, None) is None
    assert math.isclose(half, 0.1 * stats.t.ppf(0.975, 9))

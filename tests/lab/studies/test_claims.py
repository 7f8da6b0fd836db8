"""Claims are judged by intervals of differences that are paired by seed."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from ropewalk.lab.config import Config
from ropewalk.lab.record import RunRecord
from ropewalk.lab.record_lines import load_records
from ropewalk.lab.statistics import estimate_differences
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.claims import (
    CLAIM_CONFIRMED,
    CLAIM_REFUTED,
    CLAIM_UNDECIDED,
    EQUALITY_MARGIN,
    ClaimSide,
    StudyClaim,
    get_test_accuracy,
    judge_claims,
)
from ropewalk.lab.studies.equivariance import (
    make_offset_loss,
    make_size_accuracy,
    measure_frequency_drop,
)

RESULTS = Path(__file__).parents[3] / "results"

NOISE = (0.3, -0.5, 0.2)


def record(name, seed, value, part="main", probes=None, **result):
    result = {"test_accuracy": value / 100, **result}
    return RunRecord(config=Config(seed=seed), run=None, part=part, name=name, result=result, probes=probes or {})


def records(levels, spread=0.1, part="main"):
    """Runs of three seeds: each seed moves all encodings alike, and each run by a little of its own."""
    found = []
    for (i, (name, level)), seed in itertools.product(enumerate(levels.items()), range(3)):
        own = spread * (-1) ** (i + seed) * (1 + (i * seed) % 2)
        found.append(record(name, seed, level + NOISE[seed] + own, part))
    return found


def claim(by, one="a", other="b", part="main"):
    return StudyClaim(
        "text", "source", ClaimSide(one, part), None if other is None else ClaimSide(other), get_test_accuracy, "points", by
    )


@pytest.mark.parametrize(
    ("gap", "by", "word"),
    [
        (2.0, 0.0, CLAIM_CONFIRMED),
        (-2.0, 0.0, CLAIM_REFUTED),
        (0.05, 0.0, CLAIM_UNDECIDED),
        (2.0, 7.0, CLAIM_REFUTED),
        (8.0, 7.0, CLAIM_CONFIRMED),
        (0.1, None, CLAIM_CONFIRMED),
        (-0.1, None, CLAIM_CONFIRMED),
        (3.0, None, CLAIM_REFUTED),
        (-3.0, None, CLAIM_REFUTED),
        (EQUALITY_MARGIN, None, CLAIM_UNDECIDED),
    ],
)
def test_words(gap, by, word):
    (verdict,) = judge_claims([claim(by)], records({"a": 60 + gap, "b": 60.0, "c": 55.0, "d": 50.0}))
    assert verdict.word == word
    assert verdict.found.mean == pytest.approx(gap, abs=0.3)
    assert verdict.found.seeds == 3


def test_what_a_seed_does_to_all_does_not_count():
    """Seeds that are ten points apart leave the interval as it is; noise of single runs does not."""
    levels = {"a": 61.0, "b": 60.0, "c": 55.0}
    apart = [
        replace(each, result={"test_accuracy": each.result["test_accuracy"] + 0.1 * each.config.seed})
        for each in records(levels)
    ]
    (near,), (far,) = judge_claims([claim(0.0)], records(levels)), judge_claims([claim(0.0)], apart)
    assert far.found == pytest.approx(near.found, rel=1e-9)
    (noisy,) = judge_claims([claim(0.0)], records(levels, spread=1.0))
    assert noisy.found.half > 5 * near.found.half


def test_one_seed_tells_nothing():
    alone = [record("a", 0, 90.0), record("b", 0, 10.0)]
    assert judge_claims([claim(0.0)], alone)[0].word == CLAIM_UNDECIDED
    assert judge_claims([claim(0.0, other="x")], records({"a": 1.0, "b": 2.0}))[0] == (
        claim(0.0, other="x"),
        None,
        CLAIM_UNDECIDED,
    )


def test_parts_are_compared():
    """The same encoding in two parts."""
    every = [*records({"a": 60.0, "b": 58.0}), *records({"a": 64.0, "b": 50.0}, part="perturbed")]
    (verdict,) = judge_claims([claim(0.0, one="a", other="a", part="perturbed")], every)
    assert verdict.found.mean == pytest.approx(4.0, abs=0.3)
    assert verdict.word == CLAIM_CONFIRMED


def test_a_number_above_zero():
    found = records({"a": 3.0, "b": -3.0, "c": 0.0}, spread=0.5)
    words = [judge_claims([claim(0.0, one=name, other=None)], found)[0].word for name in "abc"]
    assert words == [CLAIM_CONFIRMED, CLAIM_REFUTED, CLAIM_UNDECIDED]


def test_only_some_are_asked_about():
    """Intervals are for one question then, of the variance of all."""
    values = {name: {seed: float(i + seed + (i * seed) % 3) for seed in range(3)} for i, name in enumerate("abcd")}
    alone, every = estimate_differences(values, "a", only=["b"]), estimate_differences(values, "a")
    assert list(alone) == ["b"]
    assert alone["b"].mean == every["b"].mean
    assert alone["b"].half < every["b"].half


def test_numbers_of_a_run():
    modes = {"extrapolate": 0.3, "rescale": 0.4, "yarn": 0.5}  # the last is no way to place patches
    rows = [{"mode": mode, "size": [48, 48], "accuracy": share} for mode, share in modes.items()]
    moved = [{"rho": 0.0, "accuracy": 0.6}, {"rho": 4.0, "accuracy": 0.45}]
    layers = [{"layer": i, "radians": [6.0 - i, 1.0, 9.0]} for i in range(6)]
    one = record("a", 0, 60.0, probes={"resolution": rows, "offset": moved, "frequencies": layers}, encoding_parameters=9)
    assert make_size_accuracy(48)(one) == pytest.approx(40.0)
    assert make_size_accuracy(64)(one) is None
    assert make_offset_loss(4.0)(one) == pytest.approx(15.0)
    assert make_offset_loss(8.0)(one) is None
    assert measure_frequency_drop(one) == pytest.approx(4.0)
    assert measure_frequency_drop(replace(one, result={"encoding_parameters": 0})) is None
    assert measure_frequency_drop(replace(one, probes={})) is None
    assert get_test_accuracy(one) == pytest.approx(60.0)
    assert get_test_accuracy(replace(one, result=None)) is None


@pytest.mark.parametrize("study", ALL_STUDIES.values(), ids=ALL_STUDIES)
def test_claims_are_about_runs_of_the_study(study):
    for each in study.claims:
        for side in filter(None, (each.one, each.other)):
            assert side.name in study.parts[side.part].encodings, each.text
    assert len({each.text for each in study.claims}) == len(study.claims)


def test_verdicts_on_the_recorded_runs():
    """Those of the site's pages."""
    known = [record for path in (RESULTS / "equivariance").glob("*.jsonl") for record in load_records(path)]
    found = judge_claims(ALL_STUDIES["equivariance-imagenette"].claims, known)
    assert [(f"{each.found.mean:.2f} ± {each.found.half:.2f}", each.word) for each in found] == [
        ("1.95 ± 0.83", CLAIM_CONFIRMED),
        ("-0.16 ± 0.83", CLAIM_UNDECIDED),
        ("0.59 ± 0.83", CLAIM_UNDECIDED),
        ("-0.42 ± 0.83", CLAIM_UNDECIDED),
        ("-0.38 ± 0.83", CLAIM_UNDECIDED),
        ("-0.47 ± 0.83", CLAIM_UNDECIDED),
    ]
    words = [each.word for each in judge_claims(ALL_STUDIES["equivariance"].claims, known)]
    assert [words.count(word) for word in (CLAIM_CONFIRMED, CLAIM_REFUTED, CLAIM_UNDECIDED)] == [6, 1, 10]


def test_photographs_are_judged_by_seeds_that_chose_no_claim():
    study = ALL_STUDIES["equivariance-imagenette"]
    first, again = (study.parts[name] for name in ("imagenette", "imagenette-again"))
    assert (first.seeds, again.seeds) == ((0, 1, 2), (3, 4, 5))
    assert replace(again, about=first.about, seeds=first.seeds) == first
    assert first.encodings[0] == "learned-ape"
    assert [(each.one.name, each.other.name, each.by) for each in study.claims] == [
        ("axial", "learned-ape", 0.0),
        ("mixed", "axial", 0.0),
        ("axial", "spherical", 0.0),
        ("spherical", "mixed", None),
        ("spherical-symmetric", "mixed", None),
        ("comrope-ld-8", "axial", 0.0),
    ]
    assert {side.part for each in study.claims for side in (each.one, each.other)} == {"imagenette-again"}

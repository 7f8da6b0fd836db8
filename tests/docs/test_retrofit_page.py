"""The page on retrofitting: its tables, and whether what it says of them is so."""

import json
import math
import statistics
from pathlib import Path

import pytest

import retrofit_tables
from page_engine import make_namespace, render_page
from tests.support.markdown_tables import cells

ROOT = Path(__file__).parents[2]
RUNS = json.loads((ROOT / "results/fine-tuning.json").read_text())["runs"]
ARMS = ("none", "comrope-ld", "comrope-ld fast", "liere fast", "mixed", "mixed without table")
ZERO_STARTS = ARMS[1:4]
PAGE = (ROOT / "docs/pages/retrofit.md").read_text()


def of_arm(arm):
    found = [run for run in RUNS if run["arm"] == arm]
    assert [run["seed"] for run in found] == [1, 2, 3]
    return found


def mean(arm, name):
    return 100 * statistics.fmean(run[name] for run in of_arm(arm))


def size(arm, mode, side):
    rows = [row for run in of_arm(arm) for row in run["sizes"] if row["mode"] == mode and row["size"][0] == side]
    return 100 * statistics.fmean(row["accuracy"] for row in rows)


def table(text):
    return list(cells(text).values())


def test_each_arm_has_a_row_with_its_means():
    rows = table(retrofit_tables.compare_training())
    assert len(rows) == len(ARMS)
    for arm, row in zip(ARMS, rows, strict=True):
        assert row["before the first step"] == f"{mean(arm, 'at_start'):.1f}"
        assert row["after epoch 20"] == f"{mean(arm, 'validation_accuracy'):.1f}"
        assert row["test set"].startswith(f"{mean(arm, 'test_accuracy'):.1f} ± ")
        curves = [run["curve"] for run in of_arm(arm)]
        fifth = f"{100 * statistics.fmean(curve[4] for curve in curves):.1f}" if all(curves) else ""
        assert row["after epoch 5"] == fifth
        assert (row["difference to none"] == "") == (arm == "none")


def test_other_sizes_are_those_of_the_record():
    for arm, row in zip(ARMS, table(retrofit_tables.compare_sizes()), strict=True):
        for side in (48, 64):
            for mode, word in (("rescale", "rescaled"), ("extrapolate", "extrapolated")):
                assert row[f"{side} px, {word}"] == f"{size(arm, mode, side):.1f}"


def test_differences_are_taken_seed_by_seed():
    """The interval by hand: residuals of a level for each arm and each seed, and Bonferroni's share for five arms."""
    values = {arm: [100 * run["test_accuracy"] for run in of_arm(arm)] for arm in ARMS}
    whole = statistics.fmean(value for each in values.values() for value in each)
    seeds = [statistics.fmean(each[i] for each in values.values()) for i in range(3)]
    squares = sum(
        (value - statistics.fmean(each) - seeds[i] + whole) ** 2 for each in values.values() for i, value in enumerate(each)
    )
    t = 3.1693  # of 10 degrees of freedom, two-sided 99 %
    half = t * math.sqrt(2 * squares / 10 / 3)
    gains = retrofit_tables.estimate_gains("test")
    for arm in ARMS[1:]:
        assert gains[arm].half == pytest.approx(half, rel=1e-3)
        assert gains[arm].mean == pytest.approx(mean(arm, "test_accuracy") - mean("none", "test_accuracy"))


def test_what_the_page_says_is_so():
    gains = retrofit_tables.estimate_gains("test")
    assert all(mean(arm, "at_start") == mean("none", "at_start") for arm in ZERO_STARTS)
    assert all(abs(gains[arm].mean) < gains[arm].half for arm in (*ZERO_STARTS, "mixed"))
    assert gains["mixed without table"].mean < -gains["mixed without table"].half
    curve = {arm: [run["curve"][4] for run in of_arm(arm)] for arm in ("none", "mixed")}
    assert 0 < 100 * (statistics.fmean(curve["none"]) - statistics.fmean(curve["mixed"])) < 1  # about five epochs
    for side in (48, 64):
        rescaled, extrapolated = (retrofit_tables.estimate_gains(f"{mode} {side}") for mode in ("rescale", "extrapolate"))
        assert all(abs(rescaled[arm].mean) < rescaled[arm].half for arm in (*ZERO_STARTS, "mixed"))
        assert rescaled["mixed without table"].mean < -rescaled["mixed without table"].half
        assert extrapolated["mixed"].mean < -extrapolated["mixed"].half
    assert sum(run["curve"] is None for run in RUNS) == 1
    assert "in one run the compiled model" in PAGE


def test_figures_in_the_text_are_those_of_the_tables(tmp_path):
    """All expressions can be evaluated, and none leaves a sign that a sentence already says in words."""
    text = render_page(PAGE, make_namespace(tmp_path / "retrofit.md"), name="retrofit.md")
    assert "{{" not in text
    lost = mean("mixed", "test_accuracy") - mean("mixed without table", "test_accuracy")
    assert f"loses {lost:.1f} points that 20 epochs" in text
    at_once = mean("none", "at_start") - mean("mixed", "at_start")
    assert f"**`mixed` costs {at_once:.0f} points at first**" in text
    assert "costs -" not in text
    assert "loses -" not in text

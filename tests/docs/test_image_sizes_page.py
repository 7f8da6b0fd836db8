"""The page on images of other sizes: its tables, and whether what it and the README say of them is so."""

import json
import math
import statistics
from pathlib import Path

import pytest

import size_tables
from page_engine import find_section
from ropewalk.lab.figures.theme import FIGURE_THEMES
from tests.support.markdown_tables import cells

ROOT = Path(__file__).parents[2]
FILES = ("imagenette", "imagenette-again")
TEXTS = [(ROOT / f"results/equivariance/{name}.jsonl").read_text() for name in FILES]
LINES = [json.loads(line) for text in TEXTS for line in text.splitlines()]
ROTATIONS = ("axial", "mixed", "comrope-ld-8", "spherical", "spherical-symmetric")


def accuracies(name, mode, side):
    """By seed, straight from the files."""
    found = {
        line["config"]["seed"]: 100 * row["accuracy"]
        for line in LINES
        for row in line["probes"]["resolution"]
        if line["name"] == name and row["mode"] == mode and row.get("size") == [side, side] and "accuracy" in row
    }
    return [found[seed] for seed in sorted(found)]


def mean(name, mode, side):
    found = accuracies(name, mode, side)
    assert len(found) == 6
    return statistics.fmean(found)


def gain(name, side):
    return mean(name, "rescale", side) - mean(name, "extrapolate", side)


def test_tables_say_what_was_measured():
    assert size_tables.list_sides() == (80, 128, 160, 208, 240, 288, 320, 480)
    rows = cells(size_tables.compare_modes(320))
    assert set(rows) == {*ROTATIONS, "learned-ape"}
    words = {"rescale": "rescaled", "yarn": "YaRN", "ntk": "NTK", "extrapolate": "extrapolated"}
    for name, row in rows.items():
        for mode, word in words.items():
            cell = row[f"320 px, {word}"]
            assert cell == "" if not accuracies(name, mode, 320) else cell.startswith(f"{mean(name, mode, 320):.1f} ± ")
    gains = cells(size_tables.compare_ways(80, 320))
    assert all(gains[name]["320 px"].startswith(f"{gain(name, 320):+.1f} ± ") for name in ROTATIONS)
    sides = cells(size_tables.compare_sides("axial", "learned-ape"))
    assert sides["axial`, rescaled"]["480 px"] == f"{mean('axial', 'rescale', 480):.1f}"
    assert sides["learned-ape`, extrapolated"]["480 px"] == ""


def test_intervals_pool_the_variance_of_all_encodings():
    t = 2.0423  # of 30 degrees of freedom, two-sided 95 %
    spread = [statistics.variance(accuracies(name, "rescale", 320)) for name in (*ROTATIONS, "learned-ape")]
    half = t * math.sqrt(statistics.fmean(spread) / 6)
    assert size_tables.estimate_accuracies("rescale")["mixed"][320].half == pytest.approx(half, rel=1e-3)


def test_on_tiny_images_half_the_size_is_better_extrapolated():
    rows = cells(size_tables.compare_ways(16, 48, parts=("main",)))
    smaller, larger = (
        {name: float(row[f"{side} px"].split()[0]) for name, row in rows.items() if row[f"{side} px"]} for side in (16, 48)
    )
    assert all(-16 <= gain <= -3.8 for name, gain in smaller.items() if name not in ("uniform", "learned-ape"))
    assert all(gain > 3.5 for gain in larger.values())
    assert "none" not in rows


def test_what_the_page_says_is_so():
    assert all(8.5 <= gain(name, 320) < 12.5 and 11.5 <= gain(name, 480) < 16.5 for name in ROTATIONS)
    assert all(gain(name, side) > 1 for name in ROTATIONS for side in (208, 240, 288, 320, 480))
    assert all(1 <= gain(name, 80) <= 2 for name in ("axial", "mixed", "comrope-ld-8", "learned-ape"))
    assert all(-2 <= gain(name, 80) <= -1 for name in ("spherical", "spherical-symmetric"))
    for name in ("axial", "mixed"):
        rescaled, yarn, ntk, plain = (mean(name, mode, 320) for mode in ("rescale", "yarn", "ntk", "extrapolate"))
        assert rescaled - 1 < yarn < rescaled
        assert plain < ntk < yarn
    assert mean("mixed", "extrapolate", 320) < mean("learned-ape", "rescale", 320)


def test_the_readme_has_the_figures_of_the_page():
    rows = cells(find_section((ROOT / "README.md").read_text(), "My images are 224 and 512").split("\n\n")[-2].strip())
    assert set(rows) == {"axial", "mixed", "learned-ape"}
    modes = {"rescaled": "rescale", "YaRN": "yarn", "extrapolated": "extrapolate"}
    for name, row in rows.items():
        assert row["160 px, as in training"] == f"{mean(name, 'rescale', 160):.1f}"
        for word, mode in modes.items():
            assert row[f"320 px, {word}"] == (f"{mean(name, mode, 320):.1f}" if accuracies(name, mode, 320) else "")


@pytest.mark.parametrize("look", FIGURE_THEMES.values(), ids=FIGURE_THEMES)
def test_the_figure_has_a_line_for_each_encoding_and_each_way(look):
    left, right = size_tables.draw_sizes_by_mode(look).axes
    words = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in (left, right)]
    assert set(words[0]) == {*ROTATIONS, "learned-ape"}
    assert words[1] == [
        "mixed, rescaled", "mixed, YaRN", "mixed, NTK", "mixed, extrapolated", "learned-ape, rescaled"
    ]  # fmt: skip

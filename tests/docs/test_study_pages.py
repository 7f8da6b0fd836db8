"""The tables of the studies of volumes and pedestrians, from runs that are made up."""

import pedestrians
import pytest
import studied
import volumes

from ropewalk.lab.statistics import estimate_differences
from ropewalk.lab.studies.claims import get_test_accuracy
from tests.support.markdown_tables import cells


def volume(part, name, seed, level):
    """A line of a run with this accuracy, in points, which loses 10 on finer grids, and 5 more if they are rescaled."""
    sizes = [([15] * 3, 0), ([30] * 3, 10)]
    rows = [
        {"mode": mode, "size": size, "accuracy": (level - less - (5 if mode == "rescale" and less else 0)) / 100}
        for size, less in sizes
        for mode in ("extrapolate", "rescale")
    ] + [{"mode": "yarn", "why": "it takes no rule"}]
    head = {"part": part, "name": name, "seed": seed, "test_accuracy": level / 100, "encoding_parameters": 12}
    return head | {"probes": {"resolution": rows}}


def detector(name, seed, ap, curve):
    """A line of a run with this box AP on the test set, and this one in validations."""
    names = ("box_ap", "box_ap50", "mask_ap", "mask_ap50", "box_ap75")
    scores = {f"test_{key}": (ap + i) / 100 for i, key in enumerate(names)}
    return {"part": "masks", "name": name, "seed": seed, "box_curve": curve, "encoding_parameters": 0, **scores}


def test_numbers_have_the_intervals_that_seeds_give():
    """By hand: both have a deviation of 1 over 3 seeds, which pooled have 4 degrees of freedom; t = 2.776."""
    values = {"learned-ape": (80.0, 81.0, 82.0), "axial": (84.0, 86.0, 85.0)}
    lines = [volume("half", name, seed, each[seed]) for name, each in values.items() for seed in range(3)]
    found = studied.levels(lines, lambda line: 100 * line["test_accuracy"])
    assert list(found) == ["axial", "learned-ape"]
    half = 2.776 / 3**0.5
    assert studied.told(found["axial"]) == f"85.0 ± {half:.1f}"
    pair = estimate_differences({name: dict(enumerate(each)) for name, each in values.items()}, "learned-ape")["axial"]
    assert (
        studied.told(studied.above(lines, get_test_accuracy, "learned-ape")["axial"], sign="+") == f"+4.0 ± {pair.half:.1f}"
    )
    assert studied.told(None) == studied.one(None) == ""
    assert studied.told(found["axial"]._replace(mean=-0.04), sign="+") == f"+0.0 ± {half:.1f}"
    assert studied.one(-0.04) == "0.0"


def test_volumes():
    levels = {"learned-ape": (80, 82, 81), "axial": (84, 85, 89)}
    lines = [volume("half", name, seed, each[seed]) for name, each in levels.items() for seed in range(3)]
    rows = cells(volumes.half_table(lines))
    assert list(rows) == ["axial", "learned-ape"]
    assert rows["axial"]["above learned-ape"].startswith("+5.0 ± ")
    assert (rows["axial"]["30³, extrapolate"], rows["axial"]["30³, rescale"]) == ("76.0", "71.0")


def test_volumes_once():
    rows = cells(volumes.once_table([volume("whole", "axial", 0, 90.0), volume("also", "alibi", 0, 70.0)]))
    assert rows["axial"] == {"encoding": "axial", "trained at 30³": "90.0", "others at 15³": ""}
    assert rows["alibi"]["others at 15³"] == "70.0"


CURVES = {
    "learned-ape": ([0.1, 0.2, 0.46, 0.5], [0.1, 0.2, 0.3, 0.5]),
    "axial": ([0.46, 0.6, 0.5, 0.6], [0.2, 0.3, 0.5, 0.6]),
    "mixed": ([0.46, 0.5, 0.6, 0.6], [0.1, 0.2, 0.3, 0.4]),
    "none": ([0.1, 0.1, 0.2, 0.2], [0.1, 0.1, 0.2, 0.2]),
}
"""Nine tenths of 0.5, which learned-ape has in the end, are reached after 75 and 100 % of the training by itself, after 25
and 75 by axial, after 25 by one of mixed."""


def test_how_soon_detectors_are_good():
    levels = {"learned-ape": (40, 42), "axial": (50, 51), "mixed": (60, 60), "none": (20, 21)}
    lines = [detector(name, seed, levels[name][seed], CURVES[name][seed]) for name in levels for seed in range(2)]
    rows = cells(pedestrians.masks_table(lines))
    assert pedestrians.level(lines) == pytest.approx(0.45)
    assert {name: row["reached after"] for name, row in rows.items()} == {
        "learned-ape": "87.5", "axial": "50.0", "mixed": "1 of 2 runs", "none": "0 of 2 runs"
    }  # fmt: skip
    assert rows["axial"]["sooner"].startswith("+37.5 ± ")
    assert {rows[name]["sooner"] for name in ("learned-ape", "mixed", "none")} == {""}
    assert rows["axial"]["box AP"].startswith("50.5 ± ")
    heads = ("box AP50", "mask AP", "mask AP50", "box AP75")
    assert [rows["axial"][head] for head in heads] == ["51.5", "52.5", "53.5", "54.5"]
    assert rows["none"]["above learned-ape"].startswith("-20.5 ± ")


def test_detectors_that_were_never_validated_are_not_timed():
    assert "reached after" not in pedestrians.masks_table([detector("learned-ape", 0, 40, [])])


def test_classifiers():
    lines = [{"part": "backbones", "name": name, "seed": 0, "test_accuracy": 0.7 + 0.1 * i} for i, name in enumerate("ab")]
    assert list(cells(pedestrians.backbones_table(lines))) == ["b", "a"]


def test_what_has_not_run_says_so():
    every = (volumes.half_table, volumes.once_table, pedestrians.masks_table, pedestrians.backbones_table)
    assert {table([]) for table in every} == {studied.ABSENT}


@pytest.mark.parametrize("page", [volumes, pedestrians], ids=["volumes", "pedestrians"])
def test_what_was_measured_fills_the_page(page):
    state = cells(page.TABLES[f"{page.__name__}-state"]())
    assert list(state) == list(page.STUDY.parts)
    counted = {name: int(row["runs"].split()[0]) for name, row in state.items()}
    assert sum(counted.values()) == len(page.found())
    assert all(int(row["epochs"]) == page.STUDY.config(name, {}).epochs for name, row in state.items())

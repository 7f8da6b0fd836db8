"""The tables of the studies of volumes and pedestrians, from runs that are made up."""

import pytest

import pedestrians
import studied
import volumes
from tables_read import cells


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
    names = ("box_ap", "box_ap50", "mask_ap", "mask_ap50")
    scores = {f"test_{key}": (ap + i) / 100 for i, key in enumerate(names)}
    return {"part": "masks", "name": name, "seed": seed, "box_curve": curve, "encoding_parameters": 0, **scores}


def test_volumes():
    lines = [volume("half", "learned-ape", seed, 80 + seed) for seed in range(3)]
    lines += [volume("half", "axial", seed, 84 + seed) for seed in range(3)]
    rows = cells(volumes.half_table(lines))
    assert list(rows) == ["axial", "learned-ape"]
    assert rows["axial"]["above learned-ape"].startswith("+4.0 ± ")
    assert (rows["axial"]["30³, extrapolate"], rows["axial"]["30³, rescale"]) == ("75.0", "70.0")


def test_volumes_once():
    rows = cells(volumes.once_table([volume("whole", "axial", 0, 90.0), volume("also", "alibi", 0, 70.0)]))
    assert rows["axial"] == {"encoding": "axial", "trained at 30³": "90.0", "others at 15³": ""}
    assert rows["alibi"]["others at 15³"] == "70.0"


def test_how_soon_detectors_are_good():
    """Nine tenths of 0.5 are reached by learned-ape in the last of four validations, by axial in the second."""
    lines = [detector("learned-ape", seed, 40 + seed, [0.1, 0.2, 0.4, 0.5]) for seed in range(2)]
    lines += [detector("axial", seed, 50 + seed, [0.2, 0.45, 0.5, 0.6]) for seed in range(2)]
    lines += [detector("none", seed, 20 + seed, [0.1, 0.1, 0.2, 0.2]) for seed in range(2)]
    rows = cells(pedestrians.masks_table(lines))
    assert pedestrians.level(lines) == pytest.approx(0.45)
    assert rows["axial"]["reached after, %"] == "50.0"
    assert rows["axial"]["sooner, %"].startswith("+50.0")
    assert (rows["none"]["reached after, %"], rows["none"]["sooner, %"]) == ("", "")
    assert (rows["axial"]["box AP"][:4], rows["axial"]["mask AP50"]) == ("50.5", "53.5")
    assert rows["none"]["above learned-ape"].startswith("-20.0")


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

"""The table of the ViT that goes on with a rotation."""

import json

import pytest

import tuned

RUNS = [
    {"label": "none", "tuned": False, "test_accuracy": 0.5, "validation_accuracy": [0.3, 0.52]},
    {"label": "none", "tuned": True, "test_accuracy": 0.6, "at_start": 0.52, "validation_accuracy": [0.51, 0.55]},
    {"label": "mixed", "tuned": True, "test_accuracy": 0.58, "at_start": 0.1, "validation_accuracy": [0.4, 0.56]},
]


def test_each_row_has_the_start_the_lowest_and_the_end():
    lines = tuned.tuned(RUNS).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert rows == [
        ["the ViT as it was", "", "", "", "50.0"],
        ["nothing", "52.0", "51.0", "55.0", "60.0"],
        ["mixed RoPE", "10.0", "10.0", "56.0", "58.0"],
    ]


@pytest.mark.parametrize("name", tuned.FILES)
def test_what_was_measured_has_a_row_each(name):
    runs = json.loads((tuned.RESULTS / tuned.FILES[name]).read_text())["runs"]
    table = tuned.TABLES[name]()
    assert len(table.splitlines()) == 2 + len(runs)
    assert all(tuned.NAMES[run["label"].partition(":")[0]] in table for run in runs if run["tuned"])

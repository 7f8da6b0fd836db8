"""A ViT that goes on with a rotation: tables of the page on timm, from what `benchmarks/fine_tuning.py` found."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tables

RESULTS = Path(__file__).parent.parent / "results"
FILES = {"fine-tuning": "fine-tuning.json", "fine-tuning-small": "fine-tuning-cpu.json"}
NAMES = {
    "none": "nothing",
    "comrope-ld": "ComRoPE-LD from zero",
    "comrope-ap": "ComRoPE-AP from zero",
    "liere": "LieRE from zero",
    "mixed": "mixed RoPE",
}
Line = dict[str, Any]


def read(name: str) -> str:
    """The table of a file of results."""
    return tuned(json.loads((RESULTS / FILES[name]).read_text())["runs"])


def tuned(runs: Sequence[Line]) -> str:
    """Each encoding that was put in: accuracy on held-out images on the way, and on the test set at the end."""
    (first,) = [run for run in runs if not run["tuned"]]
    rows = [["the ViT as it was", "", "", "", _points(first["test_accuracy"])]]
    return tables.table(
        ["what was put in", "before the first step", "lowest on the way", "at the end", "test set"],
        rows + [_row(run) for run in runs if run["tuned"]],
    )


def _row(run: Line) -> list[str]:
    curve = run["validation_accuracy"]
    numbers = (run["at_start"], min(run["at_start"], *curve), curve[-1], run["test_accuracy"])
    return [NAMES[run["label"].partition(":")[0]], *map(_points, numbers)]


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


TABLES = {name: partial(read, name) for name in FILES}

"""A ViT that goes on with a rotation: the table of the page on timm, from what `benchmarks/fine_tuning.py` found."""

import json
from pathlib import Path
from typing import Any

import tables

RESULTS = Path(__file__).parent.parent / "results" / "fine-tuning.json"
NAMES = {
    "none": "nothing",
    "comrope-ld": "ComRoPE-LD from zero",
    "comrope-ap": "ComRoPE-AP from zero",
    "mixed": "mixed RoPE",
}
Line = dict[str, Any]


def tuned(document: dict[str, Any] | None = None) -> str:
    """Each encoding that was put in: accuracy on held-out images on the way, and on the test set at the end."""
    runs = (json.loads(RESULTS.read_text()) if document is None else document)["runs"]
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


TABLES = {"fine-tuning": tuned}

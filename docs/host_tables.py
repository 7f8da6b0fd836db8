"""Which model families of transformers an encoding can be installed in, from results/transformers-hosts.json."""

import json
import textwrap
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from markdown_text import escape_prose, format_table

RESULTS = Path(__file__).parent.parent / "results"
TRANSFORMERS = "transformers-hosts.json"
# What the criteria of the judge are about, in the words of the page.
CRITERIA = {
    "running": "raises after `install`",
    "agreement": "outputs differ from the original model's",
    "own": "the model's own rotation runs",
    "wired": "a frequency has no effect",
    "learned": "learned frequencies get no gradient, or are not saved",
    "traceless": "`uninstall` leaves a trace",
}


@cache
def load_hosts(name: str = TRANSFORMERS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def count_hosts() -> str:
    """How many families count, of how many."""
    rows = load_hosts()["rows"]
    return f"{sum(row['status'] == 'counts' for row in rows)} of {len(rows)}"


def describe_hosts() -> str:
    """Versions and date of the table."""
    found = load_hosts()
    return f"transformers {found['versions']['transformers']}, torch {found['versions']['torch']}, {found['date']}"


def list_counting() -> str:
    """The families that count, with the class that was judged."""
    rows = [row for row in load_hosts()["rows"] if row["status"] == "counts"]
    return ", ".join(f"`{row['family']}`" for row in rows) + "."


def list_refused() -> str:
    """The families that do not count, and why."""
    rows = [row for row in load_hosts()["rows"] if row["status"] != "counts"]
    return format_table(["family", "result", "reason"], [_describe_row(row) for row in rows])


def list_own_tests() -> str:
    """How many of transformers' own tests pass without and with an encoding."""
    rows = load_hosts("transformers-tests.json")["models"]
    heads = ["model", "pass without an encoding", "of these, with its own", "of these, with learned frequencies"]
    counts = ("pass without", "pass with own", "pass with learned")
    return format_table(heads, [(f"`{name}`", *(str(row[count]) for count in counts)) for name, row in rows.items()])


def describe_own_tests() -> str:
    """Versions and date of these counts."""
    found = load_hosts("transformers-tests.json")
    return f"transformers {found['versions']['transformers']}, torch {found['versions']['torch']}, {found['date']}"


def _describe_row(row: dict[str, Any]) -> tuple[str, str, str]:
    kind, _, criterion = row["status"].partition(" ")
    result = {"refused": "refused", "unbuilt": "not judged"}.get(kind, CRITERIA.get(criterion, criterion))
    return f"`{row['family']}`", result, escape_prose(textwrap.shorten(row["reason"], 240, placeholder=" …"))


def summarize_generation() -> str:
    """How many of the families that count were judged with generation, and with SDPA attention."""
    figures = [row["figures"] for row in load_hosts()["rows"] if row["status"] == "counts"]
    generating = Counter(figure["generation"] == "yes" for figure in figures)[True]
    fused = sum("sdpa" in figure["attention"] for figure in figures)
    return f"{generating} generate tokens with a cache, and {fused} have SDPA attention"

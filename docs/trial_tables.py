"""The table of what was tried to break ropewalk, from the counts that scripts wrote into results/."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from markdown_text import format_table

RESULTS = Path(__file__).parent.parent / "results"


@cache
def load_counts(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / name).read_text())


def list_trials() -> str:
    """What was tried, how often, how it must end, and how often it did not."""
    calls, damage = load_counts("fuzz.json"), load_counts("damage-trials.json")
    kills, bits, files = damage["kills"], damage["bits"], damage["files"]
    rows = [
        (
            f"odd calls of {calls['functions']} functions and methods",
            calls["calls"],
            "an error in our words, or what the function promises",
            sum(calls.get(kind, 0) for kind in ("internal", "silent", "hang")),
        ),
        (
            f"kills of {kills['runs']} trainings",
            kills["kills"],
            "the same metrics and weights, bit for bit",
            kills["other_ends"],
        ),
        *(
            (f"flipped bits of {article} {state} run", found["flipped"], "reported, or without effect", found["unnoticed"])
            for state, article in (("finished", "a"), ("unfinished", "an"))
            for found in [bits[state]]
        ),
        (f"openings of {files['files']} hostile files", files["opened"], "read, or refused in a line", files["crashed"]),
    ]
    return format_table(
        ["what was tried", "times", "how it must end", "how often it did not"],
        [(what, f"{times:,}", end, str(failed)) for what, times, end, failed in rows],
    )


def describe_calls() -> str:
    """How the odd calls ended."""
    found = load_counts("fuzz.json")
    words = f"{found['refused']:,} were refused, {found['returned']:,} returned"
    memory = found.get("memory", 0)
    return words + (f", and {memory:,} asked for more memory than a trial may take" if memory else "")


def describe_bits(state: str) -> str:
    found = load_counts("damage-trials.json")["bits"][state]
    return f"{found['reported']:,} were reported and {found['without_effect']:,} had no effect"


def describe_files() -> str:
    found = load_counts("damage-trials.json")["files"]
    return f"{found['refused']:,} were refused and {found['read']:,} read"


def date_of(name: str) -> str:
    return load_counts(name)["date"]

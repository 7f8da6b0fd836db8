"""The file of a run's probes: an object of lists of rows, by the name of the probe, whole at every moment.

A probe that is done has its name there, with an empty list if it could measure nothing. Rows that say "why" are refusals:
they go to the list `refused`, with the name of their probe.
"""

import json
from pathlib import Path
from typing import Any

from ropewalk.lab.store import Damaged, Run, write

REFUSED = "refused"

Row = dict[str, Any]


def held(run: Run) -> dict[str, list[Row]]:
    """All that is known; nothing, where there is no file."""
    path = run.path / "probes.json"
    if not path.exists():
        return {}
    try:
        found: dict[str, list[Row]] = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, f"cannot be read ({error})") from error
    lists = isinstance(found, dict) and all(isinstance(rows, list) for rows in found.values())
    if not lists or not all(isinstance(row, dict) for rows in found.values() for row in rows):
        raise _damaged(path, "must hold an object of lists of objects")
    return found


def add(run: Run, name: str, rows: list[Row]) -> dict[str, list[Row]]:
    """Write down what a probe found, beside what is there by now; all of it."""
    there = held(run)
    refused = [{"probe": name, **row} for row in rows if "why" in row]
    there[name] = [row for row in rows if "why" not in row]
    there[REFUSED] = [row for row in there.pop(REFUSED, []) if row.get("probe") != name] + refused
    write(run.path / "probes.json", there)
    return there


def _damaged(path: Path, what: str) -> Damaged:
    return Damaged(f"{path} {what}; delete it to probe anew")

"""The file of a run's probes: an object of lists of rows, by the name of the probe, whole at every moment.

A probe that is done has its name there, with an empty list if it could measure nothing. Rows that say "why" are refusals:
they go to the list `refused`, with the name of their probe.
"""

from typing import Any

from ropewalk.lab.store import Damaged, Run, read, write

REFUSED, ANEW = "refused", "delete it to probe anew"

Row = dict[str, Any]


def held(run: Run) -> dict[str, list[Row]]:
    """All that is known; nothing, where there is no file."""
    path = run.path / "probes.json"
    if not path.exists():
        return {}
    try:
        found: dict[str, list[Row]] = read(path)
    except Damaged as error:
        raise Damaged(f"{error}; {ANEW}") from error
    if not all(isinstance(rows, list) and all(isinstance(row, dict) for row in rows) for rows in found.values()):
        raise Damaged(f"{path} must hold an object of lists of objects; {ANEW}")
    return found


def add(run: Run, name: str, rows: list[Row]) -> dict[str, list[Row]]:
    """Write down what a probe found, beside what is there by now; all of it."""
    there = held(run)
    refused = [{"probe": name, **row} for row in rows if "why" in row]
    there[name] = [row for row in rows if "why" not in row]
    there[REFUSED] = [row for row in there.pop(REFUSED, []) if row.get("probe") != name] + refused
    write(run.path / "probes.json", there)
    return there

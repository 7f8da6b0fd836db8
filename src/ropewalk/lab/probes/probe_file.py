"""The file of a run's probes: an object of lists of rows, by the name of the probe, whole at every moment.

A probe that is done has its name there, with an empty list if it could measure nothing. Rows that say "why" are refusals:
they go to the list `refused`, with the name of their probe.
"""

from typing import Any

from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.run_store import RunFolder

PROBES_FILE, REFUSED_KEY, REPROBE_HINT = "probes.json", "refused", "delete it to probe anew"

ProbeRow = dict[str, Any]


def load_probes(run: RunFolder) -> dict[str, list[ProbeRow]]:
    """All that is known; nothing, where there is no file."""
    path = run.path / PROBES_FILE
    try:
        found: dict[str, list[ProbeRow]] = run.read_document(PROBES_FILE) or {}
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; {REPROBE_HINT}") from error
    if not all(isinstance(rows, list) and all(isinstance(row, dict) for row in rows) for rows in found.values()):
        raise DamagedFileError(f"{path} must hold an object of lists of objects; {REPROBE_HINT}")
    return found


def save_probe(run: RunFolder, name: str, rows: list[ProbeRow]) -> dict[str, list[ProbeRow]]:
    """Write down what a probe found, beside what is there by now; all of it."""
    there = load_probes(run)
    refused = [{"probe": name, **row} for row in rows if "why" in row]
    there[name] = [row for row in rows if "why" not in row]
    there[REFUSED_KEY] = [row for row in there.pop(REFUSED_KEY, []) if row.get("probe") != name] + refused
    run.write_document(PROBES_FILE, there)
    return there

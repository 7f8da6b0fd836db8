"""Which runs others begin with, and whether these begin alike.

Detectors of two encodings begin with classifiers of these encodings: other folders, but trained alike. They are compared if
all else about these is equal, and about those that these began with. A folder that is not where it was is looked for beside
the run; if it is not there either, its name is all that is known.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk.lab.comparing.entries import label_of
from ropewalk.lab.comparing.plan import OWN
from ropewalk.lab.config import ELSEWHERE
from ropewalk.lab.store import Damaged, Run

LONG = 16
"""Runs in a row that are followed back."""


def keys_of(runs: Sequence[Run]) -> list[str]:
    """For each run what must be equal in runs that are compared. Of beginnings of one name, one that can be read will do."""
    known = {name: _digest(first, LONG) for run in runs if (name := named(run)) and (first := begun(run)) is not None}
    return [_key(run, known) for run in runs]


def shared(run: Run) -> dict[str, Any]:
    """Its settings but for those that may differ."""
    return {name: value for name, value in run.config.document().items() if name not in (*OWN, *ELSEWHERE)}


def named(run: Run) -> str | None:
    """The name of the folder that it begins with, in which {seed} may stand for its own."""
    return None if run.config.start is None else Path(run.config.start).name


def begun(run: Run) -> Run | None:
    """The run that it begins with, if there is one and it can be read."""
    folder = run.config.begins
    for place in () if folder is None else (folder, run.path.parent / folder.name):
        try:
            return Run.at(place)
        except (ValueError, Damaged, OSError):
            continue
    return None


def apart(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of one key in as few parts as have no encoding with one seed and two beginnings, which could not be told from
    each other. In the first are those that begin with runs of their own encoding."""
    parts: list[dict[tuple[str, int], list[Run]]] = []
    for run in sorted(runs, key=lambda run: not own(run)):
        place = label_of(run.config), run.config.seed
        fitting = (part for part in parts if place not in part or named(part[place][0]) == named(run))
        part = next(fitting, None)
        if part is None:
            parts.append(part := {})
        part.setdefault(place, []).append(run)
    return [[run for same in part.values() for run in same] for part in parts]


def own(run: Run) -> bool:
    """Whether it begins with a run of its own encoding."""
    first = begun(run)
    return first is not None and label_of(first.config) == label_of(run.config)


def start_of(runs: Sequence[Run]) -> str | None:
    """What runs that are compared begin with, in words."""
    names = {named(run) for run in runs}
    if len(names) == 1:
        return names.pop()
    first = next(first for run in runs if (first := begun(run)) is not None)
    whose = "the same encoding" if all(map(own, runs)) else "several encodings"
    return f"runs of {whose}, {first.config.epochs} epochs of {Path(first.config.data).name}"


def _key(run: Run, known: Mapping[str, str]) -> str:
    start = named(run)
    return json.dumps({**shared(run), "start": start and known.get(start, start)}, sort_keys=True)


def _digest(run: Run, steps: int) -> str:
    first = begun(run) if steps else None
    known = {} if first is None else {named(run) or "": _digest(first, steps - 1)}
    return hashlib.sha256(_key(run, known).encode()).hexdigest()

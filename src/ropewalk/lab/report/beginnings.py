"""Which runs others begin with, and whether these begin alike.

Detectors of two encodings begin with classifiers of these encodings: other folders, but trained alike. They are compared if
all else about these is equal. A folder that is not where it was is looked for beside the run; if it is not there either,
its name is all that is known.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropewalk.lab.comparing.entries import Entry
from ropewalk.lab.config import ELSEWHERE, Config
from ropewalk.lab.store import Damaged, Run

FREE = ("encoding", "options", "seed")
"""Settings that may differ where runs are compared."""


def shared(run: Run) -> dict[str, Any]:
    """The settings that must be equal in runs that are compared; of the run that it begins with, a hash of them."""
    first = begun(run)
    return {**_told(run.config), "start": _named(run.config) if first is None else _digest(first.config)}


def begun(run: Run) -> Run | None:
    """The run that it begins with, if there is one and it can be read."""
    folder = run.config.begins
    for place in () if folder is None else (folder, run.path.parent / folder.name):
        try:
            return Run.at(place)
        except (ValueError, Damaged):
            continue
    return None


def clashing(runs: Sequence[Run]) -> bool:
    """Whether one encoding is there with one seed and two beginnings: such runs cannot be told from each other."""
    places = {(label_of(run), run.config.seed): run.config.begins for run in runs}
    return any(places[label_of(run), run.config.seed] != run.config.begins for run in runs)


def start_of(runs: Sequence[Run]) -> str | None:
    """What runs that are compared begin with, in words."""
    names = {_named(run.config) for run in runs}
    if len(names) == 1:
        return names.pop()
    firsts = [first for run in runs if (first := begun(run)) is not None]
    own = all(label_of(first) == label_of(run) for first, run in zip(firsts, runs, strict=True))
    told = f"{firsts[0].config.epochs} epochs of {Path(firsts[0].config.data).name}"
    return f"runs of {'the same encoding' if own else 'several encodings'}, {told}"


def label_of(run: Run) -> str:
    """Its encoding with its options."""
    return Entry(run.config.encoding, run.config.options).label


def _named(config: Config) -> str | None:
    """The name of its folder, in which {seed} may stand for that of each run."""
    return None if config.start is None else Path(config.start).name


def _told(config: Config) -> dict[str, Any]:
    return {name: value for name, value in config.document().items() if name not in (*FREE, *ELSEWHERE)}


def _digest(config: Config) -> str:
    return hashlib.sha256(json.dumps(_told(config), sort_keys=True).encode()).hexdigest()

"""What a trained model does with positions: measured on a run that is done, and kept beside it in probes.json.

    found = probe(Run.at(path), ["resolution", "offset"])
    found["resolution"]   # [{"mode": "extrapolate", "size": [16, 16], "grid": [8, 8], "accuracy": 0.87, "loss": 0.41}, …]

All probes that look at images look at those of the validation set: the test set is read once, at the end of training, and
what is learnt here may be used to choose between models. The weights are the moving average's, where there is one. Every
number but those of `cost` follows from the run and its seed. A probe has a list of rows under its name; what it could not
measure is in the list `refused`, with the words of whoever refused it. A probe that is done is not done again. Runs on text
and runs that find boxes or masks have probes of their own.
"""

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ropewalk.lab.probes.attending import patterns as patterns
from ropewalk.lab.probes.costing import cost, cost_of_reading
from ropewalk.lab.probes.file import add, held
from ropewalk.lab.probes.finding import passkey
from ropewalk.lab.probes.looking import Looked, cost_of_looking, reached_share
from ropewalk.lab.probes.looking import looked as looked
from ropewalk.lab.probes.moving import offset, shuffle, translation
from ropewalk.lab.probes.opening import Empty, Opened, Rows, opened
from ropewalk.lab.probes.opening import restored as restored
from ropewalk.lab.probes.reaching import reached
from ropewalk.lab.probes.reading import Read, positions
from ropewalk.lab.probes.reading import read as read
from ropewalk.lab.probes.resolving import resolution
from ropewalk.lab.probes.turning import equivariance, frequencies, waves
from ropewalk.lab.store import Run

PROBES: dict[str, Callable[[Opened], Rows]] = {
    "resolution": resolution,
    "offset": offset,
    "translation": translation,
    "shuffle": shuffle,
    "reached": reached,
    "frequencies": frequencies,
    "waves": waves,
    "equivariance": equivariance,
    "cost": cost,
}
"""The probes by name. A row with a "why" is a refusal."""
READING: dict[str, Callable[[Read], Rows]] = {"positions": positions, "passkey": passkey, "cost": cost_of_reading}
"""Those of text."""
LOOKING: dict[str, Callable[[Looked], Rows]] = {"reached": reached_share, "cost": cost_of_looking}
"""Those of boxes and masks."""
SEGMENTING: dict[str, Callable[[Opened], Rows]] = {"reached": reached, "cost": cost}
"""Those of maps."""
ALL = tuple(dict.fromkeys((*PROBES, *READING)))


def probe(
    run: Run,
    names: Sequence[str] | None = None,
    *,
    device: torch.device | str | None = None,
    watch: Callable[[str], None] = lambda name: None,
) -> dict[str, list[dict[str, Any]]]:
    """Probe a run on its validation set, on a GPU if there is one; all that is known of it, earlier probes included.

    Without names it is probed for everything. `watch` gets the name of each probe that begins. Each is written down when it
    is done, so that an interruption loses but the one that it interrupts.
    """
    kind = names_of(run)
    names = kind if names is None else names
    for name in names:
        _known(name, kind, run)
    if run.result() is None:
        raise ValueError(f"only a run that is done is probed, since it is probed once; {run.path} has no result.json")
    there = held(run)
    left = [name for name in dict.fromkeys(names) if name not in there]
    if not left:
        return there
    where = ("cuda" if torch.cuda.is_available() else "cpu") if device is None else device
    subject = _subject(run, where)
    for name in left:
        watch(name)
        there = add(run, name, _rows(name, subject))
    return there


def names_of(run: Run) -> tuple[str, ...]:
    """The probes that a run can be asked for."""
    if run.config.length is not None:
        return tuple(READING)
    return tuple({None: PROBES, "segment": SEGMENTING}.get(run.config.task, LOOKING))


def _subject(run: Run, device: torch.device | str) -> Opened | Read | Looked:
    """A run as its probes want it."""
    if run.config.task in ("detect", "masks"):
        return looked(run, device)
    return opened(run, device) if run.config.length is None else read(run, device)


def _rows(name: str, subject: Opened | Read | Looked) -> list[dict[str, Any]]:
    """What a probe found; one that looks at images finds nothing where there are none."""
    try:
        if isinstance(subject, Looked):
            return list(LOOKING[name](subject))
        return list(READING[name](subject) if isinstance(subject, Read) else PROBES[name](subject))
    except Empty as error:
        return [{"why": str(error)}]


def _known(name: str, there: Sequence[str], run: Run) -> None:
    """Refuse a name that no probe of this kind of run has."""
    if name in PROBES and name not in there and run.config.task is not None:
        kind = f"the task {run.config.task}, which have {', '.join(there)}"
        raise ValueError(f"{name} is a probe of runs that find one class in an image, not of those with {kind}")
    if name not in there:
        close = difflib.get_close_matches(name, there, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"no probe is named {name!r}{hint}; there are {', '.join(there)}")

"""Measurements on a trained model, stored beside it in probes.json.

    found = probe_run(RunFolder.at(path), ["resolution", "offset"])
    found["resolution"]   # [{"mode": "extrapolate", "size": [16, 16], "grid": [8, 8], "accuracy": 0.87, "loss": 0.41}, …]

Probes read the validation set: the test set is read once, at the end of training, and what is measured here may be used to
choose between models. The weights are the moving average's, if there is one. All numbers but those of `cost` follow from the
run and its seed. A finished probe is not run again.

`PROBES` is the registry: a new probe is a file here and an entry below.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from rich.console import Console

from ropewalk.lab.console import collapse_whitespace
from ropewalk.lab.errors import CommandError, DamagedFileError
from ropewalk.lab.probes.cost import CONVERGENCE, COST
from ropewalk.lab.probes.probe import Probe, ProbeRow
from ropewalk.lab.probes.resolution import RESOLUTION
from ropewalk.lab.probes.shifts import OFFSET, SHUFFLE, TRANSLATION
from ropewalk.lab.probes.spectrum import EQUIVARIANCE, FREQUENCIES, WAVE_VECTORS
from ropewalk.lab.probes.text import PASSKEY, POSITIONS
from ropewalk.lab.progress_bars import StageProgress
from ropewalk.lab.run_store import RunFolder, translate_run_errors
from ropewalk.lab.task_types import find_task
from ropewalk.lab.tasks import open_trained_run
from ropewalk.lab.tasks.base import TrainedRun
from ropewalk.lab.tasks.trained_images import EmptyDataError, load_image_model
from ropewalk.validation import check_choice

PROBES: dict[str, Probe] = {
    each.name: each
    for each in (
        RESOLUTION, OFFSET, TRANSLATION, SHUFFLE, CONVERGENCE, FREQUENCIES, WAVE_VECTORS, EQUIVARIANCE, COST, POSITIONS,
        PASSKEY,
    )
}  # fmt: skip
"""The probes by name."""

LOCK_WAIT_SECONDS = 600.0
"""How long the rows of a probe wait for another process that writes the run, such as a study that probes it."""
PROBES_FILE, REFUSED_KEY, REPROBE_HINT = "probes.json", "refused", "delete it to probe again"


def list_task_probes(task: str) -> tuple[str, ...]:
    """Names of the probes that support a task."""
    return tuple(name for name, probe in PROBES.items() if probe.supports(task))


def list_probe_names(run: RunFolder) -> tuple[str, ...]:
    """Names of the probes that support a run."""
    return list_task_probes(find_task(run.config).name)


def probe_run(
    run: RunFolder,
    names: Sequence[str] | None = None,
    *,
    device: torch.device | str | None = None,
    watch: Callable[[str], None] = lambda name: None,
) -> dict[str, list[ProbeRow]]:
    """Probe a finished run, by default with every probe that supports its task, on a GPU if there is one.

    Returns the rows of every probe so far, and under "refused" what could not be measured, with the reasons. `watch` gets
    the name of each probe that begins. Each probe is stored when it is finished, so that an interruption loses at most one.
    """
    for name in names or ():
        _check_probe_name(name, run)
    names = list_probe_names(run) if names is None else names
    if run.result() is None:
        raise ValueError(f"only a finished run is probed, since it is probed once; {run.path} has no result.json")
    stored = load_probes(run)
    left = [name for name in dict.fromkeys(names) if name not in stored]
    if not left:
        return stored
    opened = open_trained_run(run, device)
    for name in left:
        watch(name)
        stored = save_probe(run, name, _measure_rows(PROBES[name], opened))
    return stored


def _measure_rows(probe: Probe, opened: TrainedRun) -> list[ProbeRow]:
    try:
        return list(probe.measure(opened))
    except EmptyDataError as error:
        return [{"why": str(error)}]


def _check_probe_name(name: str, run: RunFolder) -> None:
    """Refuse unknown probes, and probes that do not support the task of a run."""
    supported, task = list_probe_names(run), find_task(run.config).name
    if name in PROBES and name not in supported:
        raise ValueError(f"The probe {name!r} does not support the task {task}; expected one of {', '.join(supported)}")
    check_choice("probe", name, supported)


def load_probes(run: RunFolder) -> dict[str, list[ProbeRow]]:
    """The rows of all finished probes by name; empty if the run has no probes.json."""
    path = run.path / PROBES_FILE
    try:
        found: dict[str, list[ProbeRow]] = run.read_document(PROBES_FILE) or {}
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; {REPROBE_HINT}") from error
    if not all(isinstance(rows, list) and all(isinstance(row, dict) for row in rows) for rows in found.values()):
        raise DamagedFileError(f"{path} must hold an object of lists of objects; {REPROBE_HINT}")
    return found


def save_probe(run: RunFolder, name: str, rows: list[ProbeRow]) -> dict[str, list[ProbeRow]]:
    """Store the rows of a probe in probes.json, refusals apart, and return the rows of all probes.

    A finished probe that could measure nothing has an empty list. The file is replaced atomically, under the lock of the
    run, so that several processes can probe it.
    """
    with run.hold_lock(wait=LOCK_WAIT_SECONDS):
        stored = load_probes(run)
        refused = [{"probe": name, **row} for row in rows if "why" in row]
        stored[name] = [row for row in rows if "why" not in row]
        stored[REFUSED_KEY] = [row for row in stored.pop(REFUSED_KEY, []) if row.get("probe") != name] + refused
        run.write_document(PROBES_FILE, stored)
    return stored


class ProbeOutcome(NamedTuple):
    """The rows of each run by its directory, and the errors of runs that could not be probed."""

    found: dict[str, dict[str, list[ProbeRow]]]
    errors: list[Exception]


def choose_probes(given: Sequence[str]) -> list[str]:
    """Check names of probes and drop repetitions; all probes if none is given."""
    return [check_choice("probe", name, PROBES, error=CommandError) for name in dict.fromkeys(given)] or list(PROBES)


def probe_or_raise(runs: Sequence[RunFolder], given: Sequence[str], console: Console) -> ProbeOutcome:
    """Probe runs, and raise the first error if all of them fail."""
    with translate_run_errors():
        probed = probe_all_runs(runs, choose_probes(given), console)
        if not probed.found:
            raise probed.errors[0]
    return probed


def probe_all_runs(runs: Sequence[RunFolder], chosen: Sequence[str], console: Console) -> ProbeOutcome:
    """Probe finished runs with those of the chosen probes that support their task. Of several runs, one that fails is
    reported and the others continue."""
    asked = [[name for name in chosen if name in list_probe_names(run)] or list(chosen) for run in runs]
    probed = ProbeOutcome({}, [])
    with StageProgress(console, sum(map(len, asked))) as shown:
        for number, (run, own) in enumerate(zip(runs, asked, strict=True)):
            watch = partial(_show_stage, shown, run, own, sum(map(len, asked[:number])))
            try:
                probed.found[str(run.path)] = probe_run(run, own, watch=watch)
            except KeyboardInterrupt:
                shown.say("stopped; the same command resumes")
                raise
            except Exception as error:
                probed.errors.append(error)
                if len(runs) > 1:
                    shown.say(f"{run.path.name} could not be probed: {collapse_whitespace(error)}")
    return probed


def _show_stage(shown: StageProgress, run: RunFolder, names: list[str], before: int, name: str) -> None:
    shown.begin(before + names.index(name), f"{run.path.name}: {name}")


# Former names, which scripts may import.
probe, restored = probe_run, load_image_model

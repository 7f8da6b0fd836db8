"""What a trained model does with positions: measured on a run that is done, and kept beside it in probes.json.

    found = probe_run(RunFolder.at(path), ["resolution", "offset"])
    found["resolution"]   # [{"mode": "extrapolate", "size": [16, 16], "grid": [8, 8], "accuracy": 0.87, "loss": 0.41}, …]

All probes that look at images look at those of the validation set: the test set is read once, at the end of training, and
what is learnt here may be used to choose between models. The weights are the moving average's, where there is one. Every
number but those of `cost` follows from the run and its seed. A probe has a list of rows under its name; what it could not
measure is in the list `refused`, with the words of whoever refused it. A probe that is done is not done again. Runs on text
and runs that find boxes or masks have probes of their own.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ropewalk.lab.probes.convergence import probe_convergence, probe_detection_convergence
from ropewalk.lab.probes.cost import probe_detection_cost, probe_image_cost, probe_text_cost
from ropewalk.lab.probes.open_run import (
    DetectionRun,
    EmptyDataError,
    ImageRun,
    ProbeRows,
    load_image_model,
    open_detection_run,
    open_image_run,
)
from ropewalk.lab.probes.probe_file import load_probes, save_probe
from ropewalk.lab.probes.resolution import probe_resolution
from ropewalk.lab.probes.shifts import probe_offset, probe_shuffle, probe_translation
from ropewalk.lab.probes.spectrum import probe_equivariance, probe_frequencies, probe_wave_vectors
from ropewalk.lab.probes.text import TextRun, open_text_run, probe_passkey, probe_positions
from ropewalk.lab.run_store import RunFolder
from ropewalk.validation import check_choice

IMAGE_PROBES: dict[str, Callable[[ImageRun], ProbeRows]] = {
    "resolution": probe_resolution,
    "offset": probe_offset,
    "translation": probe_translation,
    "shuffle": probe_shuffle,
    "reached": probe_convergence,
    "frequencies": probe_frequencies,
    "waves": probe_wave_vectors,
    "equivariance": probe_equivariance,
    "cost": probe_image_cost,
}
"""The probes by name. A row with a "why" is a refusal."""
TEXT_PROBES: dict[str, Callable[[TextRun], ProbeRows]] = {
    "positions": probe_positions,
    "passkey": probe_passkey,
    "cost": probe_text_cost,
}
"""Those of text."""
DETECTION_PROBES: dict[str, Callable[[DetectionRun], ProbeRows]] = {
    "reached": probe_detection_convergence,
    "cost": probe_detection_cost,
}
"""Those of boxes and masks."""
SEGMENTATION_PROBES: dict[str, Callable[[ImageRun], ProbeRows]] = {"reached": probe_convergence, "cost": probe_image_cost}
"""Those of maps."""
PROBE_NAMES = tuple(dict.fromkeys((*IMAGE_PROBES, *TEXT_PROBES)))


def probe_run(
    run: RunFolder,
    names: Sequence[str] | None = None,
    *,
    device: torch.device | str | None = None,
    watch: Callable[[str], None] = lambda name: None,
) -> dict[str, list[dict[str, Any]]]:
    """Probe a run on its validation set, on a GPU if there is one; all that is known of it, earlier probes included.

    Without names it is probed for everything. `watch` gets the name of each probe that begins. Each is written down when it
    is done, so that an interruption loses but the one that it interrupts.
    """
    kind = list_probe_names(run)
    names = kind if names is None else names
    for name in names:
        _check_probe_name(name, kind, run)
    if run.result() is None:
        raise ValueError(f"only a run that is done is probed, since it is probed once; {run.path} has no result.json")
    there = load_probes(run)
    left = [name for name in dict.fromkeys(names) if name not in there]
    if not left:
        return there
    where = ("cuda" if torch.cuda.is_available() else "cpu") if device is None else device
    subject = _open_subject(run, where)
    for name in left:
        watch(name)
        there = save_probe(run, name, _run_probe(name, subject))
    return there


def list_probe_names(run: RunFolder) -> tuple[str, ...]:
    """The probes that a run can be asked for."""
    if run.config.length is not None:
        return tuple(TEXT_PROBES)
    return tuple({None: IMAGE_PROBES, "segment": SEGMENTATION_PROBES}.get(run.config.task, DETECTION_PROBES))


def _open_subject(run: RunFolder, device: torch.device | str) -> ImageRun | TextRun | DetectionRun:
    """A run as its probes want it."""
    if run.config.task in ("detect", "masks"):
        return open_detection_run(run, device)
    return open_image_run(run, device) if run.config.length is None else open_text_run(run, device)


def _run_probe(name: str, subject: ImageRun | TextRun | DetectionRun) -> list[dict[str, Any]]:
    """What a probe found; one that looks at images finds nothing where there are none."""
    try:
        if isinstance(subject, DetectionRun):
            return list(DETECTION_PROBES[name](subject))
        return list(TEXT_PROBES[name](subject) if isinstance(subject, TextRun) else IMAGE_PROBES[name](subject))
    except EmptyDataError as error:
        return [{"why": str(error)}]


def _check_probe_name(name: str, there: Sequence[str], run: RunFolder) -> None:
    """Refuse a name that no probe of this kind of run has."""
    if name in IMAGE_PROBES and name not in there and run.config.task is not None:
        kind = f"the task {run.config.task}, which have {', '.join(there)}"
        raise ValueError(f"{name} is a probe of runs that find one class in an image, not of those with {kind}")
    check_choice("probe", name, there)


# Former names, which scripts may import.
probe, restored = probe_run, load_image_model

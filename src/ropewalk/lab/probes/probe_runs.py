"""Probing of several runs, one after another, with a progress bar; a run that fails does not stop the others."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from rich.console import Console

from ropewalk.lab.console import collapse_whitespace
from ropewalk.lab.errors import CommandError
from ropewalk.lab.probes import PROBES, list_probe_names, probe_run
from ropewalk.lab.probes.probe import ProbeRow
from ropewalk.lab.progress_bars import StageProgress
from ropewalk.lab.run_store import RunFolder, translate_run_errors
from ropewalk.validation import check_choice


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

"""Probing of several runs, one after another: how far it is, and what could not be probed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk.lab.console import collapse_whitespace
from ropewalk.lab.errors import CommandError
from ropewalk.validation import check_choice

if TYPE_CHECKING:
    from rich.console import Console

    from ropewalk.lab.run_store import RunFolder


class ProbeOutcome(NamedTuple):
    """What is known by now of each run, by its folder, and what went wrong with others."""

    found: dict[str, dict[str, list[dict[str, Any]]]]
    errors: list[Exception]


def choose_probes(given: Sequence[str]) -> list[str]:
    """Probes that there are: those given, each once, or all."""
    from ropewalk.lab.probes import PROBE_NAMES

    return [check_choice("probe", name, PROBE_NAMES, error=CommandError) for name in dict.fromkeys(given)] or list(
        PROBE_NAMES
    )


def probe_or_raise(runs: Sequence["RunFolder"], given: Sequence[str], console: "Console") -> ProbeOutcome:
    """Probe runs. If nothing comes of it, the first error says why."""
    from ropewalk.lab.run_store import translate_run_errors

    with translate_run_errors():
        probed = probe_all_runs(runs, choose_probes(given), console)
        if not probed.found:
            raise probed.errors[0]
    return probed


def probe_all_runs(runs: Sequence["RunFolder"], chosen: Sequence[str], console: "Console") -> ProbeOutcome:
    """Probe runs, those that are done, for what there is for images or text. One that fails is told, unless it is alone, and
    the others go on."""
    from ropewalk.lab.probes import list_probe_names, probe_run
    from ropewalk.lab.progress_bars import StageProgress

    asked = [[name for name in chosen if name in list_probe_names(run)] or list(chosen) for run in runs]
    probed = ProbeOutcome({}, [])
    with StageProgress(console, sum(map(len, asked))) as shown:
        for number, (run, own) in enumerate(zip(runs, asked, strict=True)):

            def watch(
                name: str, run: "RunFolder" = run, before: int = sum(map(len, asked[:number])), own: Any = own
            ) -> None:
                shown.begin(before + own.index(name), f"{run.path.name}: {name}")

            try:
                probed.found[str(run.path)] = probe_run(run, own, watch=watch)
            except KeyboardInterrupt:
                shown.say("stopped; the same command goes on")
                raise
            except Exception as error:
                probed.errors.append(error)
                if len(runs) > 1:
                    shown.say(f"{run.path.name} could not be probed: {collapse_whitespace(error)}")
    return probed

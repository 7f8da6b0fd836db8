"""Probing of several runs, one after another: how far it is, and what could not be probed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk.lab.choose import known
from ropewalk.lab.verdicts import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from ropewalk.lab.store import Run


class Probed(NamedTuple):
    """What is known by now of each run, by its folder, and what went wrong with others."""

    found: dict[str, dict[str, list[dict[str, Any]]]]
    errors: list[Exception]


def names(given: Sequence[str]) -> list[str]:
    """Probes that there are: those given, each once, or all."""
    from ropewalk.lab.probes import PROBES

    return [known("probe", name, PROBES) for name in dict.fromkeys(given)] or list(PROBES)


def evaluate(runs: Sequence["Run"], given: Sequence[str], console: "Console") -> Probed:
    """Probe runs. If nothing comes of it, the first error says why."""
    from ropewalk.lab.endings import ending

    with ending():
        probed = probe_all(runs, names(given), console)
        if not probed.found:
            raise probed.errors[0]
    return probed


def probe_all(runs: Sequence["Run"], chosen: Sequence[str], console: "Console") -> Probed:
    """Probe runs, those that are done. One that fails is told, unless it is alone, and the others go on."""
    from ropewalk.lab.probes import probe
    from ropewalk.lab.progress import Stages

    probed = Probed({}, [])
    with Stages(console, len(runs) * len(chosen)) as shown:
        for number, run in enumerate(runs):

            def watch(name: str, run: "Run" = run, before: int = number * len(chosen)) -> None:
                shown.begin(before + chosen.index(name), f"{run.path.name}: {name}")

            try:
                probed.found[str(run.path)] = probe(run, chosen, watch=watch)
            except KeyboardInterrupt:
                shown.say("stopped; the same command goes on")
                raise
            except Exception as error:
                probed.errors.append(error)
                if len(runs) > 1:
                    shown.say(f"{run.path.name} could not be probed: {one_line(error)}")
    return probed

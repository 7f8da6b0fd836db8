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
    from ropewalk.lab.probes import ALL

    return [known("probe", name, ALL) for name in dict.fromkeys(given)] or list(ALL)


def evaluate(runs: Sequence["Run"], given: Sequence[str], console: "Console") -> Probed:
    """Probe runs. If nothing comes of it, the first error says why."""
    from ropewalk.lab.endings import ending

    with ending():
        probed = probe_all(runs, names(given), console)
        if not probed.found:
            raise probed.errors[0]
    return probed


def probe_all(runs: Sequence["Run"], chosen: Sequence[str], console: "Console") -> Probed:
    """Probe runs, those that are done, for what there is for images or text. One that fails is told, unless it is alone, and
    the others go on."""
    from ropewalk.lab.probes import names_of, probe
    from ropewalk.lab.progress import Stages

    asked = [[name for name in chosen if name in names_of(run)] or list(chosen) for run in runs]
    probed = Probed({}, [])
    with Stages(console, sum(map(len, asked))) as shown:
        for number, (run, own) in enumerate(zip(runs, asked, strict=True)):

            def watch(name: str, run: "Run" = run, before: int = sum(map(len, asked[:number])), own: Any = own) -> None:
                shown.begin(before + own.index(name), f"{run.path.name}: {name}")

            try:
                probed.found[str(run.path)] = probe(run, own, watch=watch)
            except KeyboardInterrupt:
                shown.say("stopped; the same command goes on")
                raise
            except Exception as error:
                probed.errors.append(error)
                if len(runs) > 1:
                    shown.say(f"{run.path.name} could not be probed: {one_line(error)}")
    return probed

"""A study is run: part after part, run after run, each trained, probed and written down before the next begins.

A run that has its line is not made again, wherever it was trained: with the lines of its parts, a study goes on elsewhere.
Processes that are started with the same command share its runs: what one of them is at, others pass over.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ropewalk.lab import probing
from ropewalk.lab.choose import refusing
from ropewalk.lab.compare import compare
from ropewalk.lab.config import Config
from ropewalk.lab.intervals import means
from ropewalk.lab.metric import metric_of
from ropewalk.lab.probes import PROBES
from ropewalk.lab.store import Busy, Run
from ropewalk.lab.studies.beginning import groups
from ropewalk.lab.studies.lines import line, load, settings, told, write
from ropewalk.lab.studies.study import Study
from ropewalk.lab.verdicts import one_line


@dataclass(frozen=True)
class Asked:
    """The runs of a part that are asked for: encodings by name, seeds, settings, and the file for their lines."""

    study: Study
    part: str
    names: Sequence[str]
    seeds: Sequence[int]
    given: Mapping[str, Any]
    config: Config
    path: Path

    def left(self, seed: int) -> list[str]:
        """Encodings that have no line with this seed."""
        there = written(self.path, self.config)
        return [name for name in self.names if (name, seed) not in there]

    def complete(self) -> bool:
        """Whether all have a line."""
        return not any(self.left(seed) for seed in self.seeds)


def asked(
    study: Study, part: str, out: Path, *, only: Sequence[str] = (), seeds: Sequence[int] = (), given: Mapping[str, Any]
) -> Asked | None:
    """What is asked for of a part; None if it has none of it."""
    names, numbers = study.members(part, only, seeds)
    if not names:
        return None
    with refusing():
        config = study.config(part, given)
    return Asked(study, part, names, numbers, given, config, out / f"{part}.jsonl")


def run(wanted: Asked, runs: Path, console: Console) -> None:
    """Train, probe and write down what has no line."""
    study, part, path, config = wanted.study, wanted.part, wanted.path, wanted.config
    probes = list(PROBES) if study.parts[part].probed else []

    def keep(run: Run) -> None:
        with contextlib.suppress(Busy):  # another process is at it
            run.claim()
            try:
                note(run)
            finally:
                run.release()

    def note(run: Run) -> None:
        if (study.named(run.config), run.config.seed) in written(path, config):
            return
        probed = probing.probe_all([run] if probes else [], probes, Console(quiet=True))  # a bar is shown already
        if probed.errors:
            console.print(f"{run.path.name} could not be probed, and has no line: {one_line(probed.errors[0])}")
        else:
            write(path, [line(study, part, run)])

    for seed in wanted.seeds:
        left = wanted.left(seed)
        for some, own in groups(study, part, left, seed, wanted.given, runs) if left else ():
            said = [study.encodings[name] for name in some]
            compare(said, own, runs, seeds=[seed], baseline=said[0], console=console, after=keep)


def written(path: Path, config: Config) -> dict[tuple[str, int], float]:
    """What runs of a part that have a line, of these settings, came to on the test set, by name and seed."""
    said, key = settings(config), f"test_{metric_of(config.document()).key}"
    lines = load(path) if path.exists() else []
    alike = [each for each in lines if each["epochs"] == config.epochs and told(each["settings"]) == said]
    return {(each["name"], each["seed"]): each[key] for each in alike}


def table(path: Path, config: Config) -> list[str]:
    """What the runs of a part came to, the best first, in a line each."""
    found: dict[str, list[float]] = {}
    for (name, _), value in written(path, config).items():
        found.setdefault(name, []).append(metric_of(config.document()).scale * value)
    level, wide = means(found), max(map(len, found), default=0)
    ordered = sorted(level, key=lambda name: -level[name].mean)
    return [f"{name:{wide}}  {len(found[name])}  {level[name].mean:.2f}" + _half(level[name].half) for name in ordered]


def _half(half: float | None) -> str:
    return "" if half is None else f" ± {half:.2f}"

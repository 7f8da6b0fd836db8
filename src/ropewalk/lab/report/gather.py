"""Runs in groups that were treated alike, within which they are compared.

All settings of a group are equal but the encoding, its options and the seed, and so are those of runs that they begin with.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ropewalk.lab.comparing.entries import label_of
from ropewalk.lab.metric import Metric, metric_of
from ropewalk.lab.report.beginnings import apart, keys_of, shared, start_of
from ropewalk.lab.report.reading import Found, read
from ropewalk.lab.report.words import counted, listed
from ropewalk.lab.store import Run


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that share their settings, by label and seed, and how many were left out because they were there already.

    Of one run that was given twice, what is done comes first, and what its own folder says before what a line does.
    """

    settings: dict[str, Any]
    found: dict[str, dict[int, Found]]
    twice: int = 0

    @property
    def runs(self) -> list[Found]:
        """All of them, in order."""
        return [found for seeds in self.found.values() for found in seeds.values()]

    @property
    def prefix(self) -> str:
        """The tokens without a position that all models have, in words; empty where there are none."""
        registers = int(self.settings.get("registers") or 0)
        given = ["a class token"] if self.settings.get("pool") == "class" else []
        given += [counted(registers, "register")] if registers > 0 else []
        return listed(given) if given else ""

    @property
    def metric(self) -> Metric:
        """What they are judged by."""
        return metric_of(self.settings)

    @property
    def logged(self) -> set[str]:
        """The names of all that their metrics have."""
        return {name for each in self.runs for record in each.metrics for name in record}

    def scores(self) -> dict[str, dict[int, float]]:
        """Of the runs that are done, by label and seed."""
        values = {
            label: {seed: each.score for seed, each in seeds.items() if each.score is not None}
            for label, seeds in self.found.items()
        }
        return {label: seeds for label, seeds in values.items() if seeds}


def groups_of(runs: Sequence[Run]) -> list[Group]:
    """Runs with equal settings together, the largest group first; the order of the runs does not matter."""
    ordered = sorted(runs, key=lambda run: (run.config.name, str(run.path)))
    together: dict[str, list[Run]] = {}
    for key, run in zip(keys_of(ordered), ordered, strict=True):
        together.setdefault(key, []).append(run)
    parts = [part for key in sorted(together) for part in apart(together[key])]
    return [_group([read(run) for run in part]) for part in sorted(parts, key=len, reverse=True)]


def _group(members: Sequence[Found]) -> Group:
    found: dict[str, dict[int, Found]] = {}
    for each in sorted(members, key=lambda each: (each.score is None, each.restored)):
        found.setdefault(label_of(each.run.config), {}).setdefault(each.run.config.seed, each)
    ordered = {label: dict(sorted(found[label].items())) for label in sorted(found)}
    runs = [each.run for each in members]
    settings = {**shared(runs[0]), "start": start_of(runs)}
    return Group(settings=settings, found=ordered, twice=len(members) - sum(map(len, ordered.values())))

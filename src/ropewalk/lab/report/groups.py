"""Which runs others begin with, and whether these begin alike.

Detectors of two encodings begin with classifiers of these encodings: other folders, but trained alike. They are compared if
all else about these is equal, and about those that these began with. A folder that is not where it was is looked for beside
the run; if it is not there either, its name is all that is known.

Runs in groups that were treated alike, within which they are compared.

All settings of a group are equal but the encoding, its options and the seed, and so are those of runs that they begin with.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.lab.config import PER_RUN_FIELDS, UNHASHED_FIELDS
from ropewalk.lab.encoding_spec import get_encoding_label
from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.metrics import RunMetric, select_metric
from ropewalk.lab.report.format import format_count, join_words
from ropewalk.lab.report.load import LoadedRun, load_run_results
from ropewalk.lab.run_store import RunFolder

MAX_START_DEPTH = 16
"""Runs in a row that are followed back."""


def compute_group_keys(runs: Sequence[RunFolder]) -> list[str]:
    """For each run what must be equal in runs that are compared. Of beginnings of one name, one that can be read will do."""
    known = {
        name: _digest_run(first, MAX_START_DEPTH)
        for run in runs
        if (name := get_start_name(run)) and (first := load_start_run(run)) is not None
    }
    return [_compute_group_key(run, known) for run in runs]


def get_shared_settings(run: RunFolder) -> dict[str, Any]:
    """Its settings but for those that may differ."""
    return {name: value for name, value in run.config.document().items() if name not in (*PER_RUN_FIELDS, *UNHASHED_FIELDS)}


def get_start_name(run: RunFolder) -> str | None:
    """The name of the folder that it begins with, in which {seed} may stand for its own."""
    return None if run.config.start is None else Path(run.config.start).name


def load_start_run(run: RunFolder) -> RunFolder | None:
    """The run that it begins with, if there is one and it can be read."""
    folder = run.config.start_path
    for place in () if folder is None else (folder, run.path.parent / folder.name):
        try:
            return RunFolder.at(place)
        except (ValueError, DamagedFileError, OSError):
            continue
    return None


def split_by_start(runs: Sequence[RunFolder]) -> list[list[RunFolder]]:
    """Runs of one key in as few parts as have no encoding with one seed and two beginnings, which could not be told from
    each other. In the first are those that begin with runs of their own encoding."""
    parts: list[dict[tuple[str, int], list[RunFolder]]] = []
    for run in sorted(runs, key=lambda run: not starts_with_same_encoding(run)):
        place = get_encoding_label(run.config), run.config.seed
        fitting = (part for part in parts if place not in part or get_start_name(part[place][0]) == get_start_name(run))
        part = next(fitting, None)
        if part is None:
            parts.append(part := {})
        part.setdefault(place, []).append(run)
    return [[run for same in part.values() for run in same] for part in parts]


def starts_with_same_encoding(run: RunFolder) -> bool:
    """Whether it begins with a run of its own encoding."""
    first = load_start_run(run)
    return first is not None and get_encoding_label(first.config) == get_encoding_label(run.config)


def describe_start(runs: Sequence[RunFolder]) -> str | None:
    """What runs that are compared begin with, in words."""
    names = {get_start_name(run) for run in runs}
    if len(names) == 1:
        return names.pop()
    first = next(first for run in runs if (first := load_start_run(run)) is not None)
    whose = "the same encoding" if all(map(starts_with_same_encoding, runs)) else "several encodings"
    return f"runs of {whose}, {first.config.epochs} epochs of {Path(first.config.data).name}"


def _compute_group_key(run: RunFolder, known: Mapping[str, str]) -> str:
    start = get_start_name(run)
    return json.dumps({**get_shared_settings(run), "start": start and known.get(start, start)}, sort_keys=True)


def _digest_run(run: RunFolder, steps: int) -> str:
    first = load_start_run(run) if steps else None
    known = {} if first is None else {get_start_name(run) or "": _digest_run(first, steps - 1)}
    return hashlib.sha256(_compute_group_key(run, known).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Runs that share their settings, by label and seed, and how many were left out because they were there already.

    Of one run that was given twice, what is done comes first, and what its own folder says before what a line does.
    """

    settings: dict[str, Any]
    found: dict[str, dict[int, LoadedRun]]
    twice: int = 0

    @property
    def runs(self) -> list[LoadedRun]:
        """All of them, in order."""
        return [found for seeds in self.found.values() for found in seeds.values()]

    @property
    def prefix(self) -> str:
        """The tokens without a position that all models have, in words; empty where there are none."""
        registers = int(self.settings.get("registers") or 0)
        given = ["a class token"] if self.settings.get("pool") == "class" else []
        given += [format_count(registers, "register")] if registers > 0 else []
        return join_words(given) if given else ""

    @property
    def metric(self) -> RunMetric:
        """What they are judged by."""
        return select_metric(self.settings)

    @property
    def logged_names(self) -> set[str]:
        """The names of all that their metrics have."""
        return {name for each in self.runs for record in each.metrics for name in record}

    def scores(self) -> dict[str, dict[int, float]]:
        """Of the runs that are done, by label and seed."""
        values = {
            label: {seed: each.score for seed, each in seeds.items() if each.score is not None}
            for label, seeds in self.found.items()
        }
        return {label: seeds for label, seeds in values.items() if seeds}


def group_runs(runs: Sequence[RunFolder]) -> list[RunGroup]:
    """Runs with equal settings together, the largest group first; the order of the runs does not matter."""
    ordered = sorted(runs, key=lambda run: (run.config.name, str(run.path)))
    together: dict[str, list[RunFolder]] = {}
    for key, run in zip(compute_group_keys(ordered), ordered, strict=True):
        together.setdefault(key, []).append(run)
    parts = [part for key in sorted(together) for part in split_by_start(together[key])]
    return [_build_group([load_run_results(run) for run in part]) for part in sorted(parts, key=len, reverse=True)]


def _build_group(members: Sequence[LoadedRun]) -> RunGroup:
    found: dict[str, dict[int, LoadedRun]] = {}
    for each in sorted(members, key=lambda each: (each.score is None, each.restored)):
        found.setdefault(get_encoding_label(each.run.config), {}).setdefault(each.run.config.seed, each)
    ordered = {label: dict(sorted(found[label].items())) for label in sorted(found)}
    runs = [each.run for each in members]
    settings = {**get_shared_settings(runs[0]), "start": describe_start(runs)}
    return RunGroup(settings=settings, found=ordered, twice=len(members) - sum(map(len, ordered.values())))

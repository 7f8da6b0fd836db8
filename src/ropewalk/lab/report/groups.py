"""Groups of comparable runs.

All settings of a group are equal but the encoding, its options and the seed. Runs that were initialised from other runs are
comparable if the settings of those are equal too, and so on: the detectors of each encoding may be initialised from the
classifiers of the same encoding. Where these settings are not known, only the name of the folder is compared.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.lab.config import PER_RUN_FIELDS, UNHASHED_FIELDS, Config
from ropewalk.lab.encoding_spec import get_encoding_label
from ropewalk.lab.record import RunRecord
from ropewalk.lab.report.format import join_words
from ropewalk.lab.task_types import RunMetric, select_metric


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Comparable runs.

    settings  What they share; `start` describes what they were initialised from.
    found     Runs by label and seed.
    twice     How many runs were left out as duplicates. Of duplicates a finished one is kept, then one read from its folder.
    """

    settings: dict[str, Any]
    found: dict[str, dict[int, RunRecord]]
    twice: int = 0

    @property
    def runs(self) -> list[RunRecord]:
        return [record for seeds in self.found.values() for record in seeds.values()]

    @property
    def metric(self) -> RunMetric:
        return select_metric(self.settings)

    @property
    def logged_names(self) -> set[str]:
        """Names of all logged metrics."""
        return {name for record in self.runs for row in record.metrics for name in row}

    def scores(self) -> dict[str, dict[int, float]]:
        """Scores of finished runs, by label and seed."""
        values = {
            label: {seed: each.score for seed, each in seeds.items() if each.score is not None}
            for label, seeds in self.found.items()
        }
        return {label: seeds for label, seeds in values.items() if seeds}


def group_records(records: Sequence[RunRecord]) -> list[RunGroup]:
    """Group comparable runs, the largest group first. The result does not depend on the order of the records."""
    ordered = sorted(records, key=lambda record: (record.config.name, record.location or ""))
    together: dict[str, list[RunRecord]] = {}
    for key, record in zip(_compute_group_keys(ordered), ordered, strict=True):
        together.setdefault(key, []).append(record)
    parts = [part for key in sorted(together) for part in _split_by_origin(together[key])]
    return [_build_group(part) for part in sorted(parts, key=len, reverse=True)]


def _build_group(members: Sequence[RunRecord]) -> RunGroup:
    found: dict[str, dict[int, RunRecord]] = {}
    for each in sorted(members, key=lambda each: (each.score is None, each.location is None)):
        found.setdefault(each.label, {}).setdefault(each.config.seed, each)
    ordered = {label: dict(sorted(found[label].items())) for label in sorted(found)}
    settings = {**_get_shared_settings(members[0].config), "start": _describe_origins(members)}
    return RunGroup(settings=settings, found=ordered, twice=len(members) - sum(map(len, ordered.values())))


# What must be equal


def _get_shared_settings(config: Config) -> dict[str, Any]:
    return {name: value for name, value in config.document().items() if name not in (*PER_RUN_FIELDS, *UNHASHED_FIELDS)}


def _compute_group_keys(records: Sequence[RunRecord]) -> list[str]:
    """A key for each record. Where its origin is not known, another record's of the same name is used."""
    known = {
        name: _digest_origins(record.origins)
        for record in records
        if record.origins and (name := _get_start_name(record.config))
    }
    return [_compute_group_key(record.config, known) for record in records]


def _compute_group_key(config: Config, known: Mapping[str, str]) -> str:
    start = _get_start_name(config)
    return json.dumps({**_get_shared_settings(config), "start": start and known.get(start, start)}, sort_keys=True)


def _digest_origins(origins: Sequence[Config]) -> str:
    first, *others = origins
    name = _get_start_name(first)
    known = {name: _digest_origins(others)} if others and name else {}
    return hashlib.sha256(_compute_group_key(first, known).encode()).hexdigest()


def _get_start_name(config: Config) -> str | None:
    """The name of the folder it was initialised from, in which {seed} may stand for its own seed."""
    return None if config.start is None else Path(config.start).name


# Origins


def _split_by_origin(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """Split runs of one key into as few parts as possible, such that no encoding has two origins for one seed in a part.

    The first part has those that were initialised from runs of their own encoding.
    """
    parts: list[dict[tuple[str, int], list[RunRecord]]] = []
    for record in sorted(records, key=lambda record: not _has_own_origin(record)):
        place, name = (record.label, record.config.seed), _get_start_name(record.config)
        fitting = (part for part in parts if place not in part or _get_start_name(part[place][0].config) == name)
        part = next(fitting, None)
        if part is None:
            parts.append(part := {})
        part.setdefault(place, []).append(record)
    return [[record for same in part.values() for record in same] for part in parts]


def _has_own_origin(record: RunRecord) -> bool:
    """Whether it was initialised from a run of its own encoding."""
    return bool(record.origins) and get_encoding_label(record.origins[0]) == record.label


def _describe_origins(records: Sequence[RunRecord]) -> str | None:
    """What comparable runs were initialised from."""
    names = {_get_start_name(record.config) for record in records}
    first = next((record.origins[0] for record in records if record.origins), None)
    if len(names) == 1 or first is None:
        return join_words(sorted(filter(None, names))) or None
    whose = "the same encoding" if all(map(_has_own_origin, records)) else "several encodings"
    return f"runs of {whose}, {first.epochs} epochs of {Path(first.data).name}"

"""What probes and metrics measured over the seeds of a group: lines to draw, and single numbers.

Points are means over seeds, with confidence intervals from the pooled variance of all encodings.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from ropewalk.lab.probes.probe import ProbeRow
from ropewalk.lab.record import RunRecord
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.results_table import MISSING_CELL, format_score
from ropewalk.lab.statistics import MeanEstimate, estimate_means
from ropewalk.lab.task_types import BITS_PER_BYTE, TOP1_ACCURACY
from ropewalk.validation import parse_finite

EstimateLines = dict[str, dict[Any, MeanEstimate]]
"""By label, then by x value."""


def collect_lines(
    group: RunGroup, probe: str, place: Callable[[ProbeRow], Hashable | None], what: str = "accuracy"
) -> EstimateLines:
    """Means of one column of a probe at each x value. Several rows of a run at one x value count as their mean."""
    at: dict[Any, dict[str, list[float]]] = {}
    for label, seeds in group.found.items():
        for found in seeds.values():
            for where, value in _average_by_position(found.probes.get(probe, []), place, what).items():
                at.setdefault(where, {}).setdefault(label, []).append(value)
    lines: EstimateLines = {}
    for where in sorted(at):
        for label, estimate in estimate_means(at[where]).items():
            lines.setdefault(label, {})[where] = estimate
    return {label: lines[label] for label in group.found if label in lines}


def _average_by_position(
    entries: Sequence[ProbeRow], place: Callable[[ProbeRow], Hashable | None], what: str
) -> dict[Any, float]:
    at: dict[Any, list[float]] = {}
    for entry in entries:
        where, value = place(entry), parse_finite(entry.get(what))
        if where is not None and value is not None:
            at.setdefault(where, []).append(value)
    return {where: math.fsum(values) / len(values) for where, values in at.items()}


def _parse_finite_list(value: Any) -> list[float]:
    """A list of finite numbers; empty if it is anything else."""
    found = [parse_finite(each) for each in value] if isinstance(value, list) else []
    return [] if None in found else [each for each in found if each is not None]


def collect_frequencies(runs: Sequence[RunRecord]) -> dict[int, list[float]]:
    """Frequencies of each layer in radians across the image, sorted, over all seeds."""
    layers: dict[int, list[float]] = {}
    for found in runs:
        for entry in found.probes.get("frequencies", []):
            if isinstance(entry.get("layer"), int):
                layers.setdefault(entry["layer"], []).extend(_parse_finite_list(entry.get("radians")))
    return {layer: sorted(values) for layer, values in sorted(layers.items()) if values}


def select_quantiles(values: Sequence[float], most: int = 48) -> list[float]:
    """At most so many values: evenly spaced quantiles, including both extremes."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def get_metric_curve(found: RunRecord, name: str) -> dict[float, float]:
    """A metric by epoch."""
    return {record["epoch"]: record[name] for record in found.metrics if "epoch" in record and name in record}


def average_metric_curve(runs: Sequence[RunRecord], name: str) -> dict[float, float]:
    """The mean over finished runs, at the epochs that all of them have."""
    curves = [get_metric_curve(found, name) for found in runs if found.score is not None]
    epochs = sorted(set.intersection(*map(set, curves))) if curves else []
    return {epoch: math.fsum(each[epoch] for each in curves) / len(curves) for epoch in epochs}


# Single numbers

SHUFFLED_TITLE = "Accuracy, patches shuffled"
SCORE_CHANGE_FLOOR = 1e-9
"""Smaller changes are rounding errors of float64."""
SCORE_CHANGE_TITLE = "Change of scores for one patch, at worst"


def tabulate_single_numbers(group: RunGroup) -> dict[str, dict[str, str]]:
    """Cells by label, then by title; a column without any value is left out."""
    worst = {label: _find_worst_change(list(seeds.values())) for label, seeds in group.found.items()}
    columns = {
        SHUFFLED_TITLE: {
            label: format_score(line[0], TOP1_ACCURACY)
            for label, line in collect_lines(group, "shuffle", lambda entry: 0).items()
        },
        SCORE_CHANGE_TITLE: {
            label: f"{value:.2g}" if value > SCORE_CHANGE_FLOOR else "0"
            for label, value in worst.items()
            if value is not None
        },
        **_tabulate_steps(group),
    }
    labels = {label: None for column in columns.values() for label in column}
    there = {title: column for title, column in columns.items() if column}
    return {label: {title: column.get(label, MISSING_CELL) for title, column in there.items()} for label in labels}


def _find_worst_change(runs: Sequence[RunRecord]) -> float | None:
    """The largest change of scores, over layers, axes and seeds."""
    values = [parse_finite(entry.get("worst")) for found in runs for entry in found.probes.get("equivariance", [])]
    return max((value for value in values if value is not None), default=None)


def _tabulate_steps(group: RunGroup) -> dict[str, dict[str, str]]:
    """Mean steps to the highest level that every probed run has reached."""
    key = group.metric.key
    runs = {label: [_read_levels(found, key) for found in seeds.values()] for label, seeds in group.found.items()}
    asked = {label: [levels for levels in each if levels] for label, each in runs.items() if any(each)}
    every = [set(levels) for each in asked.values() for levels in each]
    common = set.intersection(*every) if every else set()
    if not common:
        return {}
    level = max(common)
    of_what = "" if group.metric in (TOP1_ACCURACY, BITS_PER_BYTE) else f" of its last validation {group.metric.name}"
    return {
        f"Steps to {100 * level:g} %{of_what}": {label: _format_mean_steps(each, level) for label, each in asked.items()}
    }


def _read_levels(found: RunRecord, key: str) -> dict[float, float]:
    """Steps by level, for the levels that were reached."""
    entries = found.probes.get("reached", [])
    pairs = [(parse_finite(entry.get(key, entry.get("share"))), parse_finite(entry.get("step"))) for entry in entries]
    return {level: step for level, step in pairs if level is not None and step is not None}


def _format_mean_steps(runs: Sequence[Mapping[float, float]], level: float) -> str:
    return f"{math.fsum(levels[level] for levels in runs) / len(runs):,.0f}"

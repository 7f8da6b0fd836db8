"""Probes that come to one number a run: shuffled patches, equivariance, how soon training was how good."""

import math
from collections.abc import Mapping, Sequence

from ropewalk.lab.metric import ACCURACY, BITS
from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.reading import Found, number
from ropewalk.lab.report.series import lines_of
from ropewalk.lab.report.words import percent

SHUFFLED = "Accuracy, patches shuffled"
ROUNDING = 1e-9
"""Changes below it are those of float64."""
MOVED = "Change of scores for one patch, at worst"


def numbers_of(group: Group) -> dict[str, dict[str, str]]:
    """By label, then by title; titles that no run has are left out."""
    worst = {label: _worst(list(seeds.values())) for label, seeds in group.found.items()}
    columns = {
        SHUFFLED: {label: percent(line[0]) for label, line in lines_of(group, "shuffle", lambda entry: 0).items()},
        MOVED: {label: f"{value:.2g}" if value > ROUNDING else "0" for label, value in worst.items() if value is not None},
        **_reached(group),
    }
    labels = {label: None for column in columns.values() for label in column}
    there = {title: column for title, column in columns.items() if column}
    return {label: {title: column.get(label, "–") for title, column in there.items()} for label in labels}


def _worst(runs: Sequence[Found]) -> float | None:
    """The largest change of scores, over layers, axes and seeds."""
    values = [number(entry.get("worst")) for found in runs for entry in found.probes.get("equivariance", [])]
    return max((value for value in values if value is not None), default=None)


def _reached(group: Group) -> dict[str, dict[str, str]]:
    """Mean steps to the highest level that every run has reached which was asked."""
    key = group.metric.key
    runs = {label: [_levels(found, key) for found in seeds.values()] for label, seeds in group.found.items()}
    asked = {label: [levels for levels in each if levels] for label, each in runs.items() if any(each)}
    every = [set(levels) for each in asked.values() for levels in each]
    common = set.intersection(*every) if every else set()
    if not common:
        return {}
    level = max(common)
    of_what = "" if group.metric in (ACCURACY, BITS) else f" of its last validation {group.metric.name}"
    return {f"Steps to {100 * level:g} %{of_what}": {label: _steps(each, level) for label, each in asked.items()}}


def _levels(found: Found, key: str) -> dict[float, float]:
    """Steps by level, of those that were reached."""
    entries = found.probes.get("reached", [])
    pairs = [(number(entry.get(key, entry.get("share"))), number(entry.get("step"))) for entry in entries]
    return {level: step for level, step in pairs if level is not None and step is not None}


def _steps(runs: Sequence[Mapping[float, float]], level: float) -> str:
    return f"{math.fsum(levels[level] for levels in runs) / len(runs):,.0f}"

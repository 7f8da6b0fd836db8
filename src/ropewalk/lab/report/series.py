"""What probes and metrics have measured, as lines to draw: means over seeds, with intervals from all encodings together."""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.load import LoadedRun, ProbeEntry, parse_finite
from ropewalk.lab.statistics import MeanEstimate, estimate_means

EstimateLines = dict[str, dict[Any, MeanEstimate]]
"""By label, then by place on the axis."""


def collect_lines(
    group: RunGroup, probe: str, place: Callable[[ProbeEntry], Hashable | None], what: str = "accuracy"
) -> EstimateLines:
    """What a probe has at each place, accuracies by default; several entries of a run at one place count as their mean."""
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
    entries: Sequence[ProbeEntry], place: Callable[[ProbeEntry], Hashable | None], what: str
) -> dict[Any, float]:
    at: dict[Any, list[float]] = {}
    for entry in entries:
        where, value = place(entry), parse_finite(entry.get(what))
        if where is not None and value is not None:
            at.setdefault(where, []).append(value)
    return {where: math.fsum(values) / len(values) for where, values in at.items()}


def make_size_key(mode: str) -> Callable[[ProbeEntry], Hashable | None]:
    """The size of an image in one mode, as (area, sides), so that sizes are in order."""

    def place(entry: ProbeEntry) -> Hashable | None:
        size = _parse_finite_list(entry.get("size"))
        return (math.prod(size), *size) if entry.get("mode") == mode and size else None

    return place


def get_offset_deviation(entry: ProbeEntry) -> float | None:
    """By how much positions are moved."""
    return parse_finite(entry.get("rho"))


def get_shift_distance(entry: ProbeEntry) -> float | None:
    """How far content is moved, in pixels."""
    shift = _parse_finite_list(entry.get("shift"))
    return round(math.hypot(*shift), 3) if shift else None


def _parse_finite_list(value: Any) -> list[float]:
    """A list of finite numbers, empty if it is anything else."""
    found = [parse_finite(each) for each in value] if isinstance(value, list) else []
    return [] if None in found else [each for each in found if each is not None]


def collect_frequencies(runs: Sequence[LoadedRun]) -> dict[int, list[float]]:
    """Radians across the image of the planes of each layer, sorted, of all seeds together."""
    layers: dict[int, list[float]] = {}
    for found in runs:
        for entry in found.probes.get("frequencies", []):
            if isinstance(entry.get("layer"), int):
                layers.setdefault(entry["layer"], []).extend(_parse_finite_list(entry.get("radians")))
    return {layer: sorted(values) for layer, values in sorted(layers.items()) if values}


def select_quantiles(values: Sequence[float], most: int = 48) -> list[float]:
    """So many at most: quantiles at equal distances, with both ends."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def get_metric_curve(found: LoadedRun, name: str) -> dict[float, float]:
    """What was measured after each epoch."""
    return {record["epoch"]: record[name] for record in found.metrics if "epoch" in record and name in record}


def average_metric_curve(runs: Sequence[LoadedRun], name: str) -> dict[float, float]:
    """The mean over those runs that are done, at the epochs that all of them have."""
    curves = [get_metric_curve(found, name) for found in runs if found.score is not None]
    epochs = sorted(set.intersection(*map(set, curves))) if curves else []
    return {epoch: math.fsum(each[epoch] for each in curves) / len(curves) for epoch in epochs}

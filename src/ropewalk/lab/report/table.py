"""Probes that come to one number a run: shuffled patches, equivariance, how soon training was how good.

The table: a row for each encoding of a group.
"""

import csv
import io
import itertools
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ropewalk.lab.metrics import BITS_PER_BYTE, TOP1_ACCURACY, RunMetric
from ropewalk.lab.report.format import format_accuracy
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.load import LoadedRun, parse_finite
from ropewalk.lab.report.series import collect_lines
from ropewalk.lab.statistics import MeanEstimate, estimate_differences, estimate_means
from ropewalk.lab.task_types import TASK_TYPES

SHUFFLED_TITLE = "Accuracy, patches shuffled"
SCORE_CHANGE_FLOOR = 1e-9
"""Changes below it are those of float64."""
SCORE_CHANGE_TITLE = "Change of scores for one patch, at worst"


def tabulate_single_numbers(group: RunGroup) -> dict[str, dict[str, str]]:
    """By label, then by title; titles that no run has are left out."""
    worst = {label: _find_worst_change(list(seeds.values())) for label, seeds in group.found.items()}
    columns = {
        SHUFFLED_TITLE: {
            label: format_accuracy(line[0]) for label, line in collect_lines(group, "shuffle", lambda entry: 0).items()
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
    return {label: {title: column.get(label, "–") for title, column in there.items()} for label in labels}


def _find_worst_change(runs: Sequence[LoadedRun]) -> float | None:
    """The largest change of scores, over layers, axes and seeds."""
    values = [parse_finite(entry.get("worst")) for found in runs for entry in found.probes.get("equivariance", [])]
    return max((value for value in values if value is not None), default=None)


def _tabulate_steps(group: RunGroup) -> dict[str, dict[str, str]]:
    """Mean steps to the highest level that every run has reached which was asked."""
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


def _read_levels(found: LoadedRun, key: str) -> dict[float, float]:
    """Steps by level, of those that were reached."""
    entries = found.probes.get("reached", [])
    pairs = [(parse_finite(entry.get(key, entry.get("share"))), parse_finite(entry.get("step"))) for entry in entries]
    return {level: step for level, step in pairs if level is not None and step is not None}


def _format_mean_steps(runs: Sequence[Mapping[float, float]], level: float) -> str:
    return f"{math.fsum(levels[level] for levels in runs) / len(runs):,.0f}"


REPORT_COLUMNS = (
    "group", "label", "encoding", "options", "seeds", "unfinished_seeds", "test_accuracy", "test_accuracy_half",
    "difference", "difference_half", "difference_seeds", "encoding_parameters", "parameters", "seconds",
    "images_per_second", "inference_ratio", "peak_bytes",
)  # fmt: skip

SECONDARY_METRICS = {task.metric.key: dict(task.metric.secondary) for task in TASK_TYPES.values()}
"""What stands beside a metric in a table, by its key: names in results, and titles."""


class TableRow(NamedTuple):
    """One encoding. Numbers are None where no run has them; `score` and `difference` are of the metric, accuracies as shares
    of 1.

    Times are medians over seeds; `inference_ratio` is the time of inference over that of the same model without an encoding.
    """

    label: str
    runs: Mapping[int, LoadedRun]
    score: MeanEstimate | None
    difference: MeanEstimate | None
    encoding_parameters: float | None
    parameters: float | None
    seconds: float | None
    per_second: float | None
    inference_ratio: float | None
    peak_bytes: float | None
    metric: RunMetric = TOP1_ACCURACY

    @property
    def done(self) -> tuple[int, ...]:
        """Seeds that have a result."""
        return tuple(seed for seed, found in self.runs.items() if found.score is not None)

    def beside(self) -> dict[str, float | None]:
        """The mean over seeds of what stands beside the metric, by its name in results."""
        there = {
            name: [found.result.get(name) for found in self.runs.values()]
            for name in SECONDARY_METRICS.get(self.metric.key, {})
        }
        kept = {name: [value for value in values if value is not None] for name, values in there.items()}
        return {name: statistics.fmean(values) if values else None for name, values in kept.items()}

    @property
    def undone(self) -> dict[int, str]:
        """Seeds that have none, and why."""
        return {seed: found.state for seed, found in self.runs.items() if found.score is None}


def build_table_rows(group: RunGroup, baseline: str) -> list[TableRow]:
    """The baseline first, then the best mean first; those without a result last."""
    scores = group.scores()
    middle = estimate_means({label: list(seeds.values()) for label, seeds in scores.items()})
    apart = estimate_differences(scores, baseline) if baseline in scores else {}
    metric = group.metric
    rows = [_build_row(label, runs, middle.get(label), apart.get(label), metric) for label, runs in group.found.items()]

    def place(row: TableRow) -> tuple[bool, float, str]:
        return row.label != baseline, metric.rank(row.score.mean) if row.score else math.inf, row.label

    return sorted(rows, key=place)


def _build_row(
    label: str, runs: Mapping[int, LoadedRun], score: MeanEstimate | None, difference: MeanEstimate | None, metric: RunMetric
) -> TableRow:
    counts = {name: _find_count(runs, name) for name in ("encoding_parameters", "parameters")}
    costs = [entry for found in runs.values() for entry in found.probes.get("cost", [])]
    seconds = _compute_median(found.result.get("seconds") for found in runs.values())
    speed, peak = (_compute_median(entry.get(name) for entry in costs) for name in (metric.throughput_key, "peak_bytes"))
    ratio = _compute_median(_divide(entry.get("without_encoding"), entry.get(metric.throughput_key)) for entry in costs)
    return TableRow(
        label,
        runs,
        score,
        difference,
        **counts,
        seconds=seconds,
        per_second=speed,
        inference_ratio=ratio,
        peak_bytes=peak,
        metric=metric,
    )


def _find_count(runs: Mapping[int, LoadedRun], name: str) -> float | None:
    """A count that all seeds share, from the first result or the first measurement of cost that has it."""
    told = [found.result for found in runs.values()]
    told += [dict(entry) for found in runs.values() for entry in found.probes.get("cost", [])]
    return next((parse_finite(each[name]) for each in told if parse_finite(each.get(name)) is not None), None)


def _compute_median(values: Iterable[object]) -> float | None:
    there = [value for value in map(parse_finite, values) if value is not None]
    return statistics.median(there) if there else None


def _divide(top: object, bottom: object) -> float | None:
    above, below = parse_finite(top), parse_finite(bottom)
    return above / below if above is not None and below else None


def format_csv(groups: Sequence[Sequence[TableRow]]) -> str:
    """All rows as CSV with a header; numbers are not rounded, and a cell without one is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _list_columns(groups), lineterminator="\n")
    writer.writeheader()
    for index, rows in enumerate(groups, start=1):
        writer.writerows({"group": index, **_make_cells(row)} for row in rows)
    return text.getvalue()


def _list_columns(groups: Sequence[Sequence[TableRow]]) -> list[str]:
    """Of all metrics that the rows have: each has columns of its own."""
    metrics = list(dict.fromkeys(row.metric for rows in groups for row in rows)) or [TOP1_ACCURACY]
    own = [[name.replace("test_accuracy", f"test_{each.key}") for name in REPORT_COLUMNS[6:8]] for each in metrics]
    own = [[*names, *SECONDARY_METRICS.get(each.key, {})] for names, each in zip(own, metrics, strict=True)]
    paces = list(dict.fromkeys(each.throughput_key for each in metrics))
    return [*REPORT_COLUMNS[:6], *itertools.chain(*own), *REPORT_COLUMNS[8:14], *paces, *REPORT_COLUMNS[15:]]


def _make_cells(row: TableRow) -> dict[str, object]:
    config = next(iter(row.runs.values())).run.config
    return {
        "label": row.label,
        "encoding": config.encoding,
        "options": json.dumps(config.options, sort_keys=True),
        "seeds": " ".join(map(str, row.done)),
        "unfinished_seeds": " ".join(map(str, row.undone)),
        **_make_estimate_cells(f"test_{row.metric.key}", row.score),
        **row.beside(),
        **_make_estimate_cells("difference", row.difference),
        "difference_seeds": row.difference and row.difference.seeds,
        row.metric.throughput_key: row.per_second,
        **{name: getattr(row, name) for name in (*REPORT_COLUMNS[-6:-3], *REPORT_COLUMNS[-2:])},
    }


def _make_estimate_cells(name: str, estimate: MeanEstimate | None) -> dict[str, float | None]:
    return {} if estimate is None else {name: estimate.mean, f"{name}_half": estimate.half}

"""The table: a row for each encoding of a group."""

import csv
import io
import itertools
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ropewalk.lab.intervals import Estimate, differences, means
from ropewalk.lab.metric import ACCURACY, Metric
from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.reading import Found, number

COLUMNS = (
    "group", "label", "encoding", "options", "seeds", "unfinished_seeds", "test_accuracy", "test_accuracy_half",
    "difference", "difference_half", "difference_seeds", "encoding_parameters", "parameters", "seconds",
    "images_per_second", "inference_ratio", "peak_bytes",
)  # fmt: skip

_PARTS = {"50": "AP50", "75": "AP75", "_small": "AP small", "_medium": "AP medium", "_large": "AP large"}
BESIDE: dict[str, dict[str, str]] = {
    kind: {f"test_{kind}{end}": title for end, title in _PARTS.items()} for kind in ("box_ap", "mask_ap")
}
BESIDE["mask_ap"]["test_box_ap"] = "box AP"
"""What stands beside a metric in a table, by its key: names in results, and titles."""


class Row(NamedTuple):
    """One encoding. Numbers are None where no run has them; `score` and `difference` are of the metric, accuracies as shares
    of 1.

    Times are medians over seeds; `inference_ratio` is the time of inference over that of the same model without an encoding.
    """

    label: str
    runs: Mapping[int, Found]
    score: Estimate | None
    difference: Estimate | None
    encoding_parameters: float | None
    parameters: float | None
    seconds: float | None
    per_second: float | None
    inference_ratio: float | None
    peak_bytes: float | None
    metric: Metric = ACCURACY

    @property
    def done(self) -> tuple[int, ...]:
        """Seeds that have a result."""
        return tuple(seed for seed, found in self.runs.items() if found.score is not None)

    def beside(self) -> dict[str, float | None]:
        """The mean over seeds of what stands beside the metric, by its name in results."""
        there = {name: [found.result.get(name) for found in self.runs.values()] for name in BESIDE.get(self.metric.key, {})}
        kept = {name: [value for value in values if value is not None] for name, values in there.items()}
        return {name: statistics.fmean(values) if values else None for name, values in kept.items()}

    @property
    def undone(self) -> dict[int, str]:
        """Seeds that have none, and why."""
        return {seed: found.state for seed, found in self.runs.items() if found.score is None}


def rows_of(group: Group, baseline: str) -> list[Row]:
    """The baseline first, then the best mean first; those without a result last."""
    scores = group.scores()
    middle = means({label: list(seeds.values()) for label, seeds in scores.items()})
    apart = differences(scores, baseline) if baseline in scores else {}
    metric = group.metric
    rows = [_row(label, runs, middle.get(label), apart.get(label), metric) for label, runs in group.found.items()]

    def place(row: Row) -> tuple[bool, float, str]:
        return row.label != baseline, metric.rank(row.score.mean) if row.score else math.inf, row.label

    return sorted(rows, key=place)


def _row(label: str, runs: Mapping[int, Found], score: Estimate | None, difference: Estimate | None, metric: Metric) -> Row:
    counts = {name: _first(runs, name) for name in ("encoding_parameters", "parameters")}
    costs = [entry for found in runs.values() for entry in found.probes.get("cost", [])]
    seconds = _median(found.result.get("seconds") for found in runs.values())
    speed, peak = (_median(entry.get(name) for entry in costs) for name in (metric.pace, "peak_bytes"))
    ratio = _median(_over(entry.get("without_encoding"), entry.get(metric.pace)) for entry in costs)
    return Row(
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


def _first(runs: Mapping[int, Found], name: str) -> float | None:
    """A count that all seeds share, from the first result or the first measurement of cost that has it."""
    told = [found.result for found in runs.values()]
    told += [dict(entry) for found in runs.values() for entry in found.probes.get("cost", [])]
    return next((number(each[name]) for each in told if number(each.get(name)) is not None), None)


def _median(values: Iterable[object]) -> float | None:
    there = [value for value in map(number, values) if value is not None]
    return statistics.median(there) if there else None


def _over(top: object, bottom: object) -> float | None:
    above, below = number(top), number(bottom)
    return above / below if above is not None and below else None


def spreadsheet(groups: Sequence[Sequence[Row]]) -> str:
    """All rows as CSV with a header; numbers are not rounded, and a cell without one is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _columns(groups), lineterminator="\n")
    writer.writeheader()
    for index, rows in enumerate(groups, start=1):
        writer.writerows({"group": index, **_cells(row)} for row in rows)
    return text.getvalue()


def _columns(groups: Sequence[Sequence[Row]]) -> list[str]:
    """Of all metrics that the rows have: each has columns of its own."""
    metrics = list(dict.fromkeys(row.metric for rows in groups for row in rows)) or [ACCURACY]
    own = [[name.replace("test_accuracy", f"test_{each.key}") for name in COLUMNS[6:8]] for each in metrics]
    own = [[*names, *BESIDE.get(each.key, {})] for names, each in zip(own, metrics, strict=True)]
    paces = list(dict.fromkeys(each.pace for each in metrics))
    return [*COLUMNS[:6], *itertools.chain(*own), *COLUMNS[8:14], *paces, *COLUMNS[15:]]


def _cells(row: Row) -> dict[str, object]:
    config = next(iter(row.runs.values())).run.config
    return {
        "label": row.label,
        "encoding": config.encoding,
        "options": json.dumps(config.options, sort_keys=True),
        "seeds": " ".join(map(str, row.done)),
        "unfinished_seeds": " ".join(map(str, row.undone)),
        **_parts(f"test_{row.metric.key}", row.score),
        **row.beside(),
        **_parts("difference", row.difference),
        "difference_seeds": row.difference and row.difference.seeds,
        row.metric.pace: row.per_second,
        **{name: getattr(row, name) for name in (*COLUMNS[-6:-3], *COLUMNS[-2:])},
    }


def _parts(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    return {} if estimate is None else {name: estimate.mean, f"{name}_half": estimate.half}

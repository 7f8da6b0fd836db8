"""The rows of a table of results: what the runs of each encoding show, over their seeds.

    rows = build_table_rows({"mixed": {0: record, 1: other}}, TOP1_ACCURACY, baseline="none")

Means over seeds have 95 % intervals, and so have differences to the baseline, which are taken seed by seed. Both pool the
variance of all rows; intervals of differences are corrected for the number of rows. With one seed there is no interval.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ropewalk.lab.record import RunRecord
from ropewalk.lab.statistics import MeanEstimate, estimate_differences, estimate_means
from ropewalk.lab.task_types import TOP1_ACCURACY, RunMetric
from ropewalk.validation import parse_finite


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """Results of one encoding. Numbers that no run has are None.

    label       The encoding, as it is named in the table.
    runs        Its runs by seed.
    metric      The metric of their task; `score` and `difference` are in its units, accuracies as fractions of 1.
    score       Mean over seeds on the test set.
    difference  Mean difference to the baseline, over the seeds that both have.
    planned     How many seeds it has or will have.
    baseline    The label of the baseline, if there is one.
    notes       Why runs have no result, and files that cannot be read.
    group       Number of the group of comparable runs, from 1.
    """

    label: str
    runs: Mapping[int, RunRecord] = field(compare=False)
    metric: RunMetric = TOP1_ACCURACY
    score: MeanEstimate | None = None
    difference: MeanEstimate | None = None
    planned: int = 0
    baseline: str | None = None
    notes: tuple[str, ...] = ()
    group: int = 1

    @property
    def done(self) -> tuple[int, ...]:
        """Seeds with a result."""
        return tuple(seed for seed, record in self.runs.items() if record.score is not None)

    @property
    def seeds(self) -> int:
        """How many seeds have a result."""
        return len(self.done)

    @property
    def undone(self) -> dict[int, str]:
        """Seeds without a result, and why."""
        return {seed: describe_state(record) for seed, record in self.runs.items() if record.score is None}

    @property
    def encoding_parameters(self) -> float | None:
        return self._find_count("encoding_parameters")

    @property
    def parameters(self) -> float | None:
        return self._find_count("parameters")

    @property
    def seconds(self) -> float | None:
        """Median time of training over seeds."""
        return _compute_median((record.result or {}).get("seconds") for record in self.runs.values())

    @property
    def per_second(self) -> float | None:
        """Median throughput of inference over seeds, in images or bytes per second."""
        return _compute_median(row.get(self.metric.throughput_key) for row in self._cost_rows)

    @property
    def inference_ratio(self) -> float | None:
        """Median time of inference, divided by that of the same model without an encoding."""
        return _compute_median(self.inference_ratios)

    @property
    def inference_ratios(self) -> list[float]:
        """Time of inference of each seed, divided by that of the same model without an encoding."""
        ratios = (_divide(row.get("without_encoding"), row.get(self.metric.throughput_key)) for row in self._cost_rows)
        return [ratio for ratio in ratios if ratio is not None]

    @property
    def has_encoding(self) -> bool:
        """Whether its runs have an encoding other than none."""
        return any(record.config.encoding != "none" for record in self.runs.values())

    @property
    def peak_bytes(self) -> float | None:
        return _compute_median(row.get("peak_bytes") for row in self._cost_rows)

    def average_result(self, name: str) -> float | None:
        """Mean over seeds of a number of the result."""
        values = [record.result[name] for record in self.runs.values() if record.result and name in record.result]
        return statistics.fmean(values) if values else None

    def _find_count(self, name: str) -> float | None:
        """A count that all seeds share: from a result, or else from the probe of cost."""
        results = [record.result or {} for record in self.runs.values()]
        found = (parse_finite(each.get(name)) for each in [*results, *self._cost_rows])
        return next((value for value in found if value is not None), None)

    @property
    def _cost_rows(self) -> list[Mapping[str, Any]]:
        return [row for record in self.runs.values() for row in record.probes.get("cost", [])]


def describe_state(record: RunRecord) -> str:
    """Whether a run is done, failed and why, or how far it is."""
    if record.score is not None:
        return "done"
    if record.failure:
        return f"failed: {record.failure}"
    if record.result is not None or any("result.json" in each for each in record.problems):
        return "failed: its result.json has no finite test metric"
    epoch = max((int(each["epoch"]) for each in record.metrics if "epoch" in each), default=0)
    return f"not finished: {epoch} of {record.config.epochs} epochs"


def build_table_rows(
    runs: Mapping[str, Mapping[int, RunRecord]],
    metric: RunMetric,
    *,
    baseline: str | None = None,
    planned: int | None = None,
    notes: Mapping[str, Sequence[str]] | None = None,
    group: int = 1,
) -> list[TableRow]:
    """A row for each label, in the given order, with differences to the baseline if one is given.

    `planned` is the number of seeds that each row has or will have; by default, of those that it has.
    """
    scores = {
        label: {seed: each.score for seed, each in seeds.items() if each.score is not None} for label, seeds in runs.items()
    }
    means = estimate_means({label: list(values.values()) for label, values in scores.items() if values})
    differences = estimate_differences(scores, baseline) if baseline is not None and scores.get(baseline) else {}
    return [
        TableRow(
            label=label,
            runs=seeds,
            metric=metric,
            score=means.get(label),
            difference=differences.get(label),
            planned=len(seeds) if planned is None else planned,
            baseline=baseline,
            notes=tuple((notes or {}).get(label, ())),
            group=group,
        )
        for label, seeds in runs.items()
    ]


def sort_table_rows(rows: Iterable[TableRow], *, first: str | None = None) -> list[TableRow]:
    """Rows with the best mean first and those without a result last, after the row labelled `first`."""

    def rank(row: TableRow) -> tuple[bool, float, str]:
        return row.label != first, row.metric.rank(row.score.mean) if row.score else math.inf, row.label

    return sorted(rows, key=rank)


def _compute_median(values: Iterable[object]) -> float | None:
    there = [value for value in map(parse_finite, values) if value is not None]
    return statistics.median(there) if there else None


def _divide(top: object, bottom: object) -> float | None:
    above, below = parse_finite(top), parse_finite(bottom)
    return above / below if above is not None and below else None

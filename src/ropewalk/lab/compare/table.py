"""The table of a comparison, made from the folders of its runs.

Accuracies, or bits per byte of text, are those of the test set: the mean over seeds with its 95 % interval, and the mean of
the differences to the baseline, taken seed by seed. Both intervals pool the variance of all encodings, and those of
differences hold all at once. With one seed there is no interval.
"""

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from ropewalk.lab.compare.plan import Comparison, ComparisonRun
from ropewalk.lab.console import collapse_whitespace
from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.metrics import TOP1_ACCURACY, RunMetric
from ropewalk.lab.run_store import read_json
from ropewalk.lab.statistics import MeanEstimate, estimate_differences, estimate_means

CSV_COLUMNS = (
    "label", "seeds", "planned", "test_{key}", "test_{key}_half", "difference", "difference_half",
    "encoding_parameters", "{pace}", "notes",
)  # fmt: skip
"""Of the CSV, `key` and `pace` those of the metric. Accuracies and their differences are shares of one; a half is that of a
95 % interval."""


class ComparisonRow(NamedTuple):
    """One encoding: how many seeds are done of those planned, and what is known so far; None is what is not."""

    label: str
    seeds: int
    planned: int
    score: MeanEstimate | None
    difference: MeanEstimate | None
    encoding_parameters: int | None
    per_second: float | None
    notes: tuple[str, ...]
    metric: RunMetric = TOP1_ACCURACY


def tabulate_comparison(comparison: Comparison) -> list[ComparisonRow]:
    """A row for each encoding, in the order in which they were given. Runs that are not done are told in notes."""
    seen = {each.label: EncodingResults() for each in comparison.entries}
    for member in comparison.members:
        seen[member.label].add(comparison, member)
    mean = estimate_means({label: list(each.score.values()) for label, each in seen.items() if each.score})
    above = estimate_differences({label: each.score for label, each in seen.items()}, comparison.baseline)
    planned = len(comparison.seeds)
    rows = [each.row(label, planned, mean.get(label), above.get(label)) for label, each in seen.items()]
    return [row._replace(metric=comparison.metric) for row in rows]


@dataclass
class EncodingResults:
    """What the runs of one encoding came to."""

    score: dict[int, float] = field(default_factory=dict)
    parameters: int | None = None
    costs: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, comparison: Comparison, member: ComparisonRun) -> None:
        """Look at one run."""
        result, note = comparison.outcome(member)
        if result is None:
            return self.notes.append(f"seed {member.seed} {note}")
        key = f"test_{comparison.metric.key}"
        if key not in result:
            return self.notes.append(f"seed {member.seed} failed: its result.json has no {key}")
        self.score[member.seed], self.parameters = result[key], result["encoding_parameters"]
        try:
            self.costs += _read_costs(comparison, member)
        except DamagedFileError as error:
            self.notes.append(f"seed {member.seed}: {collapse_whitespace(error)}")

    def row(self, label: str, planned: int, mean: MeanEstimate | None, above: MeanEstimate | None) -> ComparisonRow:
        """With the intervals, which all encodings make together."""
        speed = statistics.median(self.costs) if self.costs else None
        return ComparisonRow(label, len(self.score), planned, mean, above, self.parameters, speed, tuple(self.notes))


def _read_costs(comparison: Comparison, member: ComparisonRun) -> list[float]:
    """Images or bytes per second, as probed, if they were."""
    pace = comparison.metric.throughput_key
    path = comparison.runs / member.name / "probes.json"
    cost = read_json(path).get("cost", []) if path.exists() else []
    try:
        return [float(each[pace]) for each in cost]
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{path} must have {pace} in cost, got {cost!r}") from error


def render_comparison(rows: Sequence[ComparisonRow]) -> Table:
    """For a terminal: accuracies in percent and their differences in percent points, or bits."""
    metric = rows[0].metric if rows else TOP1_ACCURACY
    made = Table("encoding", box=box.SIMPLE_HEAD)
    for title in ("seeds", f"test {metric.title}", "difference", "parameters", f"{metric.things}/s"):
        made.add_column(title, justify="right")
    noted = any(row.notes for row in rows)
    if noted:
        made.add_column("")
    for row in rows:
        cells = [*_format_cells(row), "; ".join(row.notes)] if noted else _format_cells(row)
        made.add_row(*map(Text, cells))
    return made


def _format_cells(row: ComparisonRow) -> list[str]:
    seeds = str(row.seeds) if row.seeds == row.planned else f"{row.seeds} of {row.planned}"
    parameters = "" if row.encoding_parameters is None else f"{row.encoding_parameters:,}"
    speed = "" if row.per_second is None else f"{row.per_second:,.0f}"
    return [
        row.label,
        seeds,
        _format_estimate(row, row.score),
        _format_estimate(row, row.difference, sign="+"),
        parameters,
        speed,
    ]


def _format_estimate(row: ComparisonRow, estimate: MeanEstimate | None, *, sign: str = "") -> str:
    """A mean with its interval, with one digit more than a run is told with."""
    return "" if estimate is None else row.metric.number(estimate.mean, estimate.half, sign=sign, more=1)


def format_comparison_csv(rows: Sequence[ComparisonRow]) -> str:
    """With a line of titles; numbers in full, and nothing where nothing is known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    metric = rows[0].metric if rows else TOP1_ACCURACY
    writer.writerow([name.format(key=metric.key, pace=metric.throughput_key) for name in CSV_COLUMNS])
    for row in rows:
        known = (
            *_format_csv_estimate(row.score),
            *_format_csv_estimate(row.difference),
            row.encoding_parameters,
            row.per_second,
        )
        cells = ["" if value is None else value for value in known]
        writer.writerow([row.label, row.seeds, row.planned, *cells, "; ".join(row.notes)])
    return out.getvalue()


def _format_csv_estimate(estimate: MeanEstimate | None) -> tuple[float | None, float | None]:
    return (None, None) if estimate is None else (estimate.mean, estimate.half)

"""The table of results: a row for each encoding, whose columns are declared once in `COLUMNS`.

    rows = build_table_rows({"mixed": {0: record, 1: other}}, TOP1_ACCURACY, baseline="none")
    format_csv([rows], "comparison.csv")

A column says what it holds, what its title is, and in which tables it stands. `make_rich_table`, `format_csv`,
`make_table_cells`, `format_text_table` and `format_markdown_table` render it for terminals, files, the page of a report and
the documentation. To add a column, add an entry to `COLUMNS`.

Means over seeds have 95 % intervals, and so have differences to the baseline, which are taken seed by seed. Both pool the
variance of all rows; intervals of differences are corrected for the number of rows. With one seed there is no interval.
"""

import csv
import io
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from ropewalk.lab.record import RunRecord
from ropewalk.lab.statistics import MeanEstimate, estimate_differences, estimate_means
from ropewalk.lab.task_types import TASK_TYPES, TOP1_ACCURACY, RunMetric
from ropewalk.validation import parse_finite

MISSING_CELL = "–"
MINUS_SIGN = "−"


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
        return _compute_median(
            _divide(row.get("without_encoding"), row.get(self.metric.throughput_key)) for row in self._cost_rows
        )

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


# Numbers as text


def format_score(estimate: MeanEstimate | None, metric: RunMetric, *, more_digits: int = 0) -> str:
    """67.5 ± 3.2 %, without the interval where there is none."""
    if estimate is None:
        return MISSING_CELL
    return f"{metric.number(estimate.mean, estimate.half, more=more_digits)} {metric.unit}".rstrip()


def format_difference(estimate: MeanEstimate | None, metric: RunMetric, *, more_digits: int = 0) -> str:
    """+4.1 ± 1.0, in percentage points or in the units of the metric."""
    if estimate is None:
        return MISSING_CELL
    return metric.number(estimate.mean, estimate.half, sign="+", more=more_digits).replace("-", MINUS_SIGN)


def format_amount(value: float | None) -> str:
    """1,024 or 0.125: at least three significant digits."""
    if value is None:
        return MISSING_CELL
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def format_percentage(value: float | None) -> str:
    return MISSING_CELL if value is None else f"{100 * value:.1f} %"


# Columns

TABLES = ("terminal", "comparison.csv", "report.csv", "page", "study")
"""The terminal after `compare`, the CSV of a comparison, that of a report, the page of a report, and the tables of studies,
in the terminal and in the documentation."""


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """One column. In `key` and `title`, {metric.key}, {points} and the like stand for those of the rows.

    compute          The value of a row, or None.
    key              Its name in CSV; None: it is not in CSV.
    title            Its heading for people, who do not see it where no row has a value; None: it is in CSV alone.
    format           The value for people.
    format_estimate  The same if it is a MeanEstimate, which has a second column in CSV, for half of its interval.
    tables           Where it stands.
    metrics          Keys of the metrics whose tables have it; None: all.
    """

    compute: Callable[[TableRow], Any]
    key: str | None = None
    title: str | None = None
    format: Callable[[Any], str] = str
    format_estimate: Callable[..., str] | None = None
    tables: tuple[str, ...] = TABLES
    metrics: tuple[str, ...] | None = None

    def is_in(self, table: str, metric: RunMetric) -> bool:
        return table in self.tables and (self.metrics is None or metric.key in self.metrics)


def _make_secondary_column(name: str, title: str, metric: RunMetric) -> TableColumn:
    """Mean over seeds of another number of the result, which is a fraction of 1."""
    return TableColumn(
        compute=lambda row: row.average_result(name),
        key=name,
        title=title,
        format=format_percentage,
        tables=("report.csv", "page"),
        metrics=(metric.key,),
    )


COLUMNS: tuple[TableColumn, ...] = (
    TableColumn(compute=lambda row: row.group, key="group", tables=("report.csv",)),
    TableColumn(compute=lambda row: row.label, key="label", title="Encoding"),
    TableColumn(compute=lambda row: _get_config(row).encoding, key="encoding", tables=("report.csv",)),
    TableColumn(
        compute=lambda row: json.dumps(_get_config(row).options, sort_keys=True), key="options", tables=("report.csv",)
    ),
    TableColumn(
        compute=lambda row: str(row.seeds) if row.seeds == row.planned else f"{row.seeds} of {row.planned}", title="Seeds"
    ),
    TableColumn(compute=lambda row: row.seeds, key="seeds", tables=("comparison.csv",)),
    TableColumn(compute=lambda row: row.planned, key="planned", tables=("comparison.csv",)),
    TableColumn(compute=lambda row: " ".join(map(str, row.done)), key="seeds", tables=("report.csv",)),
    TableColumn(compute=lambda row: " ".join(map(str, row.undone)), key="unfinished_seeds", tables=("report.csv",)),
    TableColumn(
        compute=lambda row: row.score, key="test_{metric.key}", title="Test {metric.name}", format_estimate=format_score
    ),
    *(
        _make_secondary_column(name, title, task.metric)
        for task in TASK_TYPES.values()
        for name, title in task.metric.secondary
    ),
    TableColumn(
        compute=lambda row: row.difference,
        key="difference",
        title="{points} above {baseline}",
        format_estimate=format_difference,
    ),
    TableColumn(compute=lambda row: row.difference and row.difference.seeds, key="difference_seeds", tables=("report.csv",)),
    TableColumn(
        compute=lambda row: row.encoding_parameters,
        key="encoding_parameters",
        title="Parameters of encoding",
        format=format_amount,
    ),
    TableColumn(
        compute=lambda row: row.parameters,
        key="parameters",
        title="Parameters of model",
        format=format_amount,
        tables=("report.csv", "page"),
    ),
    TableColumn(
        compute=lambda row: row.seconds,
        key="seconds",
        title="Training, s",
        format=format_amount,
        tables=("report.csv", "page"),
    ),
    TableColumn(
        compute=lambda row: row.per_second,
        key="{metric.throughput_key}",
        title="{things} per second",
        format=format_amount,
        tables=("terminal", "comparison.csv", "report.csv", "page"),
    ),
    TableColumn(
        compute=lambda row: row.inference_ratio,
        key="inference_ratio",
        title="Inference, × without",
        format=format_amount,
        tables=("report.csv", "page"),
    ),
    TableColumn(
        compute=lambda row: row.peak_bytes,
        key="peak_bytes",
        title="Peak memory, MiB",
        format=lambda value: format_amount(value / 2**20),
        tables=("report.csv", "page"),
    ),
    TableColumn(
        compute=lambda row: "; ".join(row.notes) or None, key="notes", title="Notes", tables=("terminal", "comparison.csv")
    ),
)


class TableCell(NamedTuple):
    """A cell for people: its text, the value that it sorts by, and the key of its column."""

    text: str
    value: float | str | None
    key: str | None


class FormattedTable(NamedTuple):
    """A table for people: its titles, and the cells of each row in their order."""

    titles: list[str]
    rows: list[list[TableCell]]


def make_table_cells(
    rows: Sequence[TableRow], table: str, *, more_columns: Sequence[TableColumn] = (), more_digits: int = 0
) -> FormattedTable:
    """Format the columns of a table that have a title and, in some row, a value."""
    if not rows:
        return FormattedTable([], [])
    metric = rows[0].metric
    titles, body = list[str](), [list[TableCell]() for _ in rows]
    for column in (*COLUMNS, *more_columns):
        if column.title is None or not column.is_in(table, metric):
            continue
        values = [column.compute(row) for row in rows]
        if all(value is None for value in values):
            continue
        titles.append(_fill_names(column.title, metric, rows[0].baseline))
        for cells, value in zip(body, values, strict=True):
            cells.append(TableCell(_format_value(column, value, metric, more_digits), _get_sort_value(value), column.key))
    return FormattedTable(titles, body)


def _format_value(column: TableColumn, value: Any, metric: RunMetric, more_digits: int) -> str:
    if value is None:
        return MISSING_CELL
    if column.format_estimate is not None:
        return column.format_estimate(value, metric, more_digits=more_digits)
    return column.format(value)


def _get_sort_value(value: Any) -> float | str | None:
    return value.mean if isinstance(value, MeanEstimate) else value


def _fill_names(text: str, metric: RunMetric, baseline: str | None) -> str:
    return text.format(
        metric=metric, points=metric.points.capitalize(), things=metric.things.capitalize(), baseline=baseline
    )


def _get_config(row: TableRow) -> Any:
    return next(iter(row.runs.values())).config


def _compute_median(values: Iterable[object]) -> float | None:
    there = [value for value in map(parse_finite, values) if value is not None]
    return statistics.median(there) if there else None


def _divide(top: object, bottom: object) -> float | None:
    above, below = parse_finite(top), parse_finite(bottom)
    return above / below if above is not None and below else None


# Renderers


def make_rich_table(rows: Sequence[TableRow]) -> Table:
    """For a terminal."""
    formatted = make_table_cells(rows, "terminal", more_digits=1)
    made = Table(box=box.SIMPLE_HEAD)
    for title in formatted.titles:
        made.add_column(title, justify="left" if title in ("Encoding", "Notes") else "right")
    for cells in formatted.rows:
        made.add_row(*(Text("" if cell.text == MISSING_CELL else cell.text) for cell in cells))
    return made


def format_csv(groups: Sequence[Sequence[TableRow]], table: str) -> str:
    """All rows under one header. Numbers are not rounded; cells without a value are empty."""
    metrics = list(dict.fromkeys(row.metric for rows in groups for row in rows)) or [TOP1_ACCURACY]
    names = [name for each in COLUMNS for metric in metrics for name in _list_csv_names(each, table, metric)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(names)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_make_csv_cells(row, table) for rows in groups for row in rows)
    return text.getvalue()


def _list_csv_names(column: TableColumn, table: str, metric: RunMetric) -> list[str]:
    if column.key is None or not column.is_in(table, metric):
        return []
    name = column.key.format(metric=metric)
    return [name] if column.format_estimate is None else [name, f"{name}_half"]


def _make_csv_cells(row: TableRow, table: str) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for column in COLUMNS:
        if names := _list_csv_names(column, table, row.metric):
            value = column.compute(row)
            cells |= zip(names, value[:2] if isinstance(value, MeanEstimate) else [value] * len(names), strict=True)
    return cells


def format_text_table(rows: Sequence[TableRow]) -> list[str]:
    """Lines of aligned text."""
    if not rows:
        return []
    formatted = make_table_cells(rows, "study", more_digits=1)
    lines = [formatted.titles, *([cell.text for cell in cells] for cells in formatted.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(f"{text:{width}}" for text, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def format_markdown_table(rows: Sequence[TableRow], more_columns: Sequence[TableColumn] = ()) -> str:
    """For the documentation; `more_columns` follow those of `COLUMNS`."""
    formatted = make_table_cells(rows, "study", more_columns=more_columns)
    lines = [formatted.titles, ["---"] * len(formatted.titles)]
    lines += [[cell.text for cell in cells] for cells in formatted.rows]
    return "\n".join(f"| {' | '.join(text.replace('|', '&#124;') for text in line)} |" for line in lines)

"""The table of results: a row for each encoding, whose columns are declared once in `COLUMNS`.

    rows = build_table_rows({"mixed": {0: record, 1: other}}, TOP1_ACCURACY, baseline="none")
    format_csv([rows], "comparison.csv")

A column says what it holds, what its title is, and in which tables it stands. `make_rich_table`, `format_csv`,
`make_table_cells`, `format_text_table` and `format_markdown_table` render it for terminals, files, the page of a report and
the documentation. To add a column, add an entry to `COLUMNS`.
"""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from ropewalk.lab.config import Config
from ropewalk.lab.console import align_columns
from ropewalk.lab.result_rows import TableRow
from ropewalk.lab.statistics import MeanEstimate
from ropewalk.lab.task_types import TASK_TYPES, TOP1_ACCURACY, RunMetric

MISSING_CELL = "–"
MINUS_SIGN = "−"


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


_COMPARISON, _REPORT, _FULL = ("comparison.csv",), ("report.csv",), ("report.csv", "page")

COLUMNS: tuple[TableColumn, ...] = (
    TableColumn(compute=lambda row: row.group, key="group", tables=_REPORT),
    TableColumn(compute=lambda row: row.label, key="label", title="Encoding"),
    TableColumn(compute=lambda row: _get_config(row).encoding, key="encoding", tables=_REPORT),
    TableColumn(compute=lambda row: json.dumps(_get_config(row).options, sort_keys=True), key="options", tables=_REPORT),
    TableColumn(compute=lambda row: _format_fraction(row.seeds, row.planned), title="Seeds"),
    TableColumn(compute=lambda row: row.seeds, key="seeds", tables=_COMPARISON),
    TableColumn(compute=lambda row: row.planned, key="planned", tables=_COMPARISON),
    TableColumn(compute=lambda row: " ".join(map(str, row.done)), key="seeds", tables=_REPORT),
    TableColumn(compute=lambda row: " ".join(map(str, row.undone)), key="unfinished_seeds", tables=_REPORT),
    TableColumn(
        compute=lambda row: row.score, key="test_{metric.key}", title="Test {metric.name}", format_estimate=format_score
    ),
    *(_make_secondary_column(*each, task.metric) for task in TASK_TYPES.values() for each in task.metric.secondary),
    TableColumn(
        compute=lambda row: row.difference,
        key="difference",
        title="{points} above {baseline}",
        format_estimate=format_difference,
    ),
    TableColumn(compute=lambda row: row.difference and row.difference.seeds, key="difference_seeds", tables=_REPORT),
    TableColumn(
        compute=lambda row: row.encoding_parameters,
        key="encoding_parameters",
        title="Parameters of encoding",
        format=format_amount,
    ),
    TableColumn(
        compute=lambda row: row.parameters, key="parameters", title="Parameters of model", format=format_amount, tables=_FULL
    ),
    TableColumn(compute=lambda row: row.seconds, key="seconds", title="Training, s", format=format_amount, tables=_FULL),
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
        tables=_FULL,
    ),
    TableColumn(
        compute=lambda row: row.peak_bytes,
        key="peak_bytes",
        title="Peak memory, MiB",
        format=lambda value: format_amount(value / 2**20),
        tables=_FULL,
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


def _get_config(row: TableRow) -> Config:
    return next(iter(row.runs.values())).config


def _format_fraction(count: int, planned: int) -> str:
    return str(count) if count == planned else f"{count} of {planned}"


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
    return align_columns([formatted.titles, *([cell.text for cell in cells] for cells in formatted.rows)])


def format_markdown_table(rows: Sequence[TableRow], more_columns: Sequence[TableColumn] = ()) -> str:
    """For the documentation; `more_columns` follow those of `COLUMNS`."""
    formatted = make_table_cells(rows, "study", more_columns=more_columns)
    lines = [formatted.titles, ["---"] * len(formatted.titles)]
    lines += [[cell.text for cell in cells] for cells in formatted.rows]
    return "\n".join(f"| {' | '.join(text.replace('|', '&#124;') for text in line)} |" for line in lines)

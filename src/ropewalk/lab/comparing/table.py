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

from ropewalk.lab.comparing.plan import Comparison, Member
from ropewalk.lab.intervals import Estimate, differences, means
from ropewalk.lab.metric import ACCURACY, Metric
from ropewalk.lab.store import Damaged, read
from ropewalk.lab.verdicts import one_line

COLUMNS = (
    "label", "seeds", "planned", "test_{key}", "test_{key}_half", "difference", "difference_half",
    "encoding_parameters", "{pace}", "notes",
)  # fmt: skip
"""Of the CSV, `key` and `pace` those of the metric. Accuracies and their differences are shares of one; a half is that of a
95 % interval."""


class Row(NamedTuple):
    """One encoding: how many seeds are done of those planned, and what is known so far; None is what is not."""

    label: str
    seeds: int
    planned: int
    score: Estimate | None
    difference: Estimate | None
    encoding_parameters: int | None
    per_second: float | None
    notes: tuple[str, ...]
    metric: Metric = ACCURACY


def table(comparison: Comparison) -> list[Row]:
    """A row for each encoding, in the order in which they were given. Runs that are not done are told in notes."""
    seen = {each.label: Seen() for each in comparison.entries}
    for member in comparison.members:
        seen[member.label].add(comparison, member)
    mean = means({label: list(each.score.values()) for label, each in seen.items() if each.score})
    above = differences({label: each.score for label, each in seen.items()}, comparison.baseline)
    planned = len(comparison.seeds)
    rows = [each.row(label, planned, mean.get(label), above.get(label)) for label, each in seen.items()]
    return [row._replace(metric=comparison.metric) for row in rows]


@dataclass
class Seen:
    """What the runs of one encoding came to."""

    score: dict[int, float] = field(default_factory=dict)
    parameters: int | None = None
    costs: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, comparison: Comparison, member: Member) -> None:
        """Look at one run."""
        result, note = comparison.outcome(member)
        if result is None:
            return self.notes.append(f"seed {member.seed} {note}")
        key = f"test_{comparison.metric.key}"
        if key not in result:
            return self.notes.append(f"seed {member.seed} failed: its result.json has no {key}")
        self.score[member.seed], self.parameters = result[key], result["encoding_parameters"]
        try:
            self.costs += _costs(comparison, member)
        except Damaged as error:
            self.notes.append(f"seed {member.seed}: {one_line(error)}")

    def row(self, label: str, planned: int, mean: Estimate | None, above: Estimate | None) -> Row:
        """With the intervals, which all encodings make together."""
        speed = statistics.median(self.costs) if self.costs else None
        return Row(label, len(self.score), planned, mean, above, self.parameters, speed, tuple(self.notes))


def _costs(comparison: Comparison, member: Member) -> list[float]:
    """Images or bytes per second, as probed, if they were."""
    pace = comparison.metric.pace
    path = comparison.runs / member.name / "probes.json"
    cost = read(path).get("cost", []) if path.exists() else []
    try:
        return [float(each[pace]) for each in cost]
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{path} must have {pace} in cost, got {cost!r}") from error


def rendered(rows: Sequence[Row]) -> Table:
    """For a terminal: accuracies in percent and their differences in percent points, or bits."""
    metric = rows[0].metric if rows else ACCURACY
    made = Table("encoding", box=box.SIMPLE_HEAD)
    for title in ("seeds", f"test {metric.title}", "difference", "parameters", f"{metric.things}/s"):
        made.add_column(title, justify="right")
    noted = any(row.notes for row in rows)
    if noted:
        made.add_column("")
    for row in rows:
        cells = [*_cells(row), "; ".join(row.notes)] if noted else _cells(row)
        made.add_row(*map(Text, cells))
    return made


def _cells(row: Row) -> list[str]:
    seeds = str(row.seeds) if row.seeds == row.planned else f"{row.seeds} of {row.planned}"
    parameters = "" if row.encoding_parameters is None else f"{row.encoding_parameters:,}"
    speed = "" if row.per_second is None else f"{row.per_second:,.0f}"
    return [row.label, seeds, _told(row, row.score), _told(row, row.difference, sign="+"), parameters, speed]


def _told(row: Row, estimate: Estimate | None, *, sign: str = "") -> str:
    """A mean with its interval, with one digit more than a run is told with."""
    return "" if estimate is None else row.metric.number(estimate.mean, estimate.half, sign=sign, more=1)


def as_csv(rows: Sequence[Row]) -> str:
    """With a line of titles; numbers in full, and nothing where nothing is known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    metric = rows[0].metric if rows else ACCURACY
    writer.writerow([name.format(key=metric.key, pace=metric.pace) for name in COLUMNS])
    for row in rows:
        known = (*_halves(row.score), *_halves(row.difference), row.encoding_parameters, row.per_second)
        cells = ["" if value is None else value for value in known]
        writer.writerow([row.label, row.seeds, row.planned, *cells, "; ".join(row.notes)])
    return out.getvalue()


def _halves(estimate: Estimate | None) -> tuple[float | None, float | None]:
    return (None, None) if estimate is None else (estimate.mean, estimate.half)

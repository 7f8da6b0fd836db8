"""The table of a comparison, made from the folders of its runs.

Accuracies are those of the test set: the mean over seeds with its 95 % interval, and the mean of the differences to the
baseline, taken seed by seed. Both intervals pool the variance of all encodings, and those of differences hold all at once.
With one seed there is no interval.
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
from ropewalk.lab.store import Damaged, read
from ropewalk.lab.verdicts import one_line

COLUMNS = (
    "label", "seeds", "planned", "test_accuracy", "test_accuracy_half", "difference", "difference_half",
    "encoding_parameters", "images_per_second", "notes",
)  # fmt: skip
"""Of the CSV. Accuracies and differences are shares of one; a half is that of a 95 % interval."""


class Row(NamedTuple):
    """One encoding: how many seeds are done of those planned, and what is known so far; None is what is not."""

    label: str
    seeds: int
    planned: int
    accuracy: Estimate | None
    difference: Estimate | None
    encoding_parameters: int | None
    images_per_second: float | None
    notes: tuple[str, ...]


def table(comparison: Comparison) -> list[Row]:
    """A row for each encoding, in the order in which they were given. Runs that are not done are told in notes."""
    seen = {each.label: Seen() for each in comparison.entries}
    for member in comparison.members:
        seen[member.label].add(comparison, member)
    mean = means({label: list(each.accuracy.values()) for label, each in seen.items() if each.accuracy})
    above = differences({label: each.accuracy for label, each in seen.items()}, comparison.baseline)
    planned = len(comparison.seeds)
    return [each.row(label, planned, mean.get(label), above.get(label)) for label, each in seen.items()]


@dataclass
class Seen:
    """What the runs of one encoding came to."""

    accuracy: dict[int, float] = field(default_factory=dict)
    parameters: int | None = None
    costs: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, comparison: Comparison, member: Member) -> None:
        """Look at one run."""
        result, note = comparison.outcome(member)
        if result is None:
            return self.notes.append(f"seed {member.seed} {note}")
        self.accuracy[member.seed], self.parameters = result["test_accuracy"], result["encoding_parameters"]
        try:
            self.costs += _costs(comparison, member)
        except Damaged as error:
            self.notes.append(f"seed {member.seed}: {one_line(error)}")

    def row(self, label: str, planned: int, mean: Estimate | None, above: Estimate | None) -> Row:
        """With the intervals, which all encodings make together."""
        speed = statistics.median(self.costs) if self.costs else None
        return Row(label, len(self.accuracy), planned, mean, above, self.parameters, speed, tuple(self.notes))


def _costs(comparison: Comparison, member: Member) -> list[float]:
    """Images per second, as probed, if they were."""
    path = comparison.runs / member.name / "probes.json"
    cost = read(path).get("cost", []) if path.exists() else []
    try:
        return [float(each["images_per_second"]) for each in cost]
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{path} must have images_per_second in cost, got {cost!r}") from error


def rendered(rows: Sequence[Row]) -> Table:
    """For a terminal: accuracies in percent, differences in percent points."""
    made = Table("encoding", box=box.SIMPLE_HEAD)
    for title in ("seeds", "test accuracy, %", "difference", "parameters", "images/s"):
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
    speed = "" if row.images_per_second is None else f"{row.images_per_second:,.0f}"
    return [row.label, seeds, percent(row.accuracy), percent(row.difference, sign="+"), parameters, speed]


def percent(estimate: Estimate | None, *, sign: str = "") -> str:
    """A mean with its interval, times a hundred."""
    if estimate is None:
        return ""
    half = "" if estimate.half is None else f" ± {100 * estimate.half:.2f}"
    return f"{100 * estimate.mean:{sign}.2f}{half}"


def as_csv(rows: Sequence[Row]) -> str:
    """With a line of titles; numbers in full, and nothing where nothing is known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        known = (*_halves(row.accuracy), *_halves(row.difference), row.encoding_parameters, row.images_per_second)
        cells = ["" if value is None else value for value in known]
        writer.writerow([row.label, row.seeds, row.planned, *cells, "; ".join(row.notes)])
    return out.getvalue()


def _halves(estimate: Estimate | None) -> tuple[float | None, float | None]:
    return (None, None) if estimate is None else (estimate.mean, estimate.half)

"""A probe: a measurement on a trained model, and how the report draws it.

A probe is one file, and an entry in `ropewalk.lab.probes`. If it declares a `curve`, the report draws it without more code.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.lab.inspect.code_structure import ensure_on_cpu

ProbeRow = dict[str, Any]
ProbeRows = Iterable[ProbeRow]


@dataclass(frozen=True, kw_only=True)
class ProbeCurve:
    """A line chart of a probe's rows: one line for each encoding, means over seeds with confidence intervals.

    title    Heading of the figure.
    caption  What was done and how to read it, in one to three sentences.
    x        Column of the rows, or a function of a row; rows for which it is None are left out.
    x_label  Label of the x axis, with its unit.
    y        Column of the rows; None is the metric of the task.
    y_label  Label of the y axis; None is the title of the metric.
    panels   Panel titles by value of `panel_column`; a panel for each that occurs. Empty: one panel.
    """

    title: str
    caption: str
    x: str | Callable[[ProbeRow], float | None]
    x_label: str
    y: str | None = None
    y_label: str | None = None
    panel_column: str | None = None
    panels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A measurement on a trained model.

    name     Its name on the command line and in probes.json.
    summary  What it measures, in one sentence.
    measure  Takes a run that was opened by its task (`Task.open_trained`) and yields rows; a row with "why" is a refusal.
    tasks    Names of the tasks whose runs it can measure; empty: all tasks.
    curve    How the report draws it; None if the report has code of its own for it, or does not show it.
    """

    name: str
    summary: str
    measure: Callable[[Any], ProbeRows]
    tasks: tuple[str, ...] = ()
    curve: ProbeCurve | None = None

    def supports(self, task: str) -> bool:
        """Whether it can measure runs of a task."""
        return not self.tasks or task in self.tasks


def find_refusal(encoding: Encoding, positions: Tensor) -> str | None:
    """Why an encoding refuses these positions, in its own words; None if it takes them."""
    try:
        ensure_on_cpu(encoding)(positions.cpu())  # values are checked on a CPU only
    except ValueError as error:
        return str(error)
    return None

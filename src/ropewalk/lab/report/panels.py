"""Single pictures of a report: narrow enough that their words, of 9 points, can be read on a phone."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ropewalk.lab.figures.figure_layout import LABEL_SIZE, style_axes
from ropewalk.lab.metrics import TOP1_ACCURACY, RunMetric
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.series import EstimateLines, average_metric_curve, get_metric_curve
from ropewalk.lab.report.theme import LIGHT_THEME, EncodingStyle
from ropewalk.lab.results_table import TableRow
from ropewalk.lab.statistics import MeanEstimate

PANEL_WIDTH, PANEL_HEIGHT = 4.0, 2.7  # inches

EXTENSION_PATTERN = re.compile(r'extension=\{[^{}]*"rope_type": "([\w-]+)"[^{}]*\}')
PART_NAME_PATTERN = re.compile(r'"name": "([\w-]+)"')

StyleMap = Mapping[str, EncodingStyle]


def shorten_label(label: str, most: int = 24) -> str:
    """A label that has room in a figure: a rule by its name, a chain by those of its parts."""
    plain = EXTENSION_PATTERN.sub(r"\1", " ".join(label.split()))
    if plain.startswith("chain:parts="):
        plain = " + ".join(PART_NAME_PATTERN.findall(plain)) or plain
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def make_canvas(title: str, height: float = PANEL_HEIGHT, **grid: Any) -> tuple[Figure, Any]:
    """A figure with axes in it."""
    figure = Figure(figsize=(PANEL_WIDTH, height), facecolor="none")
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05))
    axes = figure.subplots(**grid)
    for each in np.ravel(axes):
        style_axes(each, LIGHT_THEME)
        each.tick_params(labelsize=LABEL_SIZE)
    figure.suptitle(title, fontsize=LABEL_SIZE + 1, color=LIGHT_THEME.ink, x=0.02, ha="left")
    return figure, axes


def format_axis_units(axis: Any, metric: RunMetric = TOP1_ACCURACY) -> None:
    """Shares of 1 are read as per cent, bits as they are."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{metric.scale * value:.3g}".replace("-", "−")))


def add_horizontal_grid(axes: Axes) -> None:
    """Faint lines to read heights by."""
    axes.grid(axis="y", color=LIGHT_THEME.line, linewidth=0.5)
    axes.set_axisbelow(True)


def plot_estimates(rows: Sequence[TableRow], styles: StyleMap, title: str, *, against: str = "") -> Figure:
    """A dot with its interval for each encoding, and its seeds; or, against a baseline, its paired difference."""
    shown = [row for row in rows if (row.difference if against else row.score)]
    figure, axes = make_canvas(title, 0.9 + 0.3 * len(shown))
    for place, row in enumerate(shown):
        estimate, style = row.difference if against else row.score, styles[row.label]
        assert estimate is not None
        if not against:
            seeds = [found.score for found in row.runs.values() if found.score is not None]
            axes.plot(seeds, [place] * len(seeds), "|", color=style.colour, alpha=0.6, markersize=9)
        axes.errorbar(estimate.mean, place, xerr=estimate.half, fmt=style.mark, color=style.colour, markersize=6, capsize=3)
    if against:
        axes.axvline(0, color=LIGHT_THEME.faint, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(shown)), [shorten_label(row.label) for row in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(axis="x", color=LIGHT_THEME.line, linewidth=0.5)
    axes.set_axisbelow(True)
    metric = rows[0].metric
    axes.set_xlabel(f"{metric.points} above {shorten_label(against)}" if against else f"test {metric.title}")
    format_axis_units(axes.xaxis, metric)
    return figure


def plot_learning_curves(group: RunGroup, styles: StyleMap, name: str, title: str, *, metric: RunMetric | None) -> Figure:
    """What was measured over the epochs: the mean of the seeds that are done, and every seed faintly."""
    figure, axes = make_canvas(title)
    for label, seeds in group.found.items():
        style = styles[label]
        for found in seeds.values():
            each = get_metric_curve(found, name)
            axes.plot(each.keys(), each.values(), color=style.colour, linewidth=0.7, alpha=0.3)
        mean = average_metric_curve(list(seeds.values()), name)
        axes.plot(mean.keys(), mean.values(), style.dash, color=style.colour, linewidth=1.6)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_horizontal_grid(axes)
    if metric is not None:
        format_axis_units(axes.yaxis, metric)
    return figure


def plot_accuracy_lines(
    lines: EstimateLines, styles: StyleMap, title: str, *, ticks: Mapping[Any, str], xlabel: str
) -> Figure:
    """Accuracy at places that are set out at equal distances; intervals stand beside one another."""
    figure, axes = make_canvas(title)
    order = {where: i for i, where in enumerate(ticks)}
    for i, (label, line) in enumerate(lines.items()):
        style, beside = styles[label], (i - (len(lines) - 1) / 2) * min(0.07, 0.5 / len(lines))
        x = [order[where] + beside for where in line]
        look: dict[str, Any] = {"fmt": style.mark, "linestyle": style.dash, "color": style.colour, "elinewidth": 0.8}
        _, _, bars = axes.errorbar(x, *_split_estimates(line), markersize=4, linewidth=1.4, **look)
        bars[0].set_alpha(0.45)
    crowded = sum(map(len, ticks.values())) > 34
    axes.set_xticks(range(len(ticks)), list(ticks.values()), rotation=45 if crowded else 0)
    axes.set_xlabel(xlabel)
    format_axis_units(axes.yaxis)
    add_horizontal_grid(axes)
    return figure


def _split_estimates(line: Mapping[Any, MeanEstimate]) -> tuple[list[float], list[float]]:
    return [each.mean for each in line.values()], [each.half or 0.0 for each in line.values()]


def plot_cost_scatter(rows: Sequence[TableRow], styles: StyleMap, title: str, *, what: str, xlabel: str) -> Figure:
    """Accuracy against what it costs."""
    figure, axes = make_canvas(title)
    for row in rows:
        style = styles[row.label]
        assert row.score is not None
        at = (getattr(row, what), row.score.mean)
        axes.errorbar(*at, yerr=row.score.half, fmt=style.mark, color=style.colour, markersize=6, capsize=3)
    axes.margins(x=0.15)
    axes.set_xlabel(xlabel)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))
    format_axis_units(axes.yaxis, rows[0].metric)
    add_horizontal_grid(axes)
    return figure

"""Single pictures of a report: narrow enough that their words, of 9 points, can be read on a phone."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ropewalk.lab.intervals import Estimate
from ropewalk.lab.metric import ACCURACY, Metric
from ropewalk.lab.plots.page import LABEL, plain
from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.rows import Row
from ropewalk.lab.report.series import Lines, curve, mean_curve
from ropewalk.lab.report.styles import LIGHT, Style

WIDTH, HEIGHT = 4.0, 2.7  # inches

RULE = re.compile(r'extension=\{[^{}]*"rope_type": "([\w-]+)"[^{}]*\}')
NAME = re.compile(r'"name": "([\w-]+)"')

Styles = Mapping[str, Style]


def short(label: str, most: int = 24) -> str:
    """A label that has room in a figure: a rule by its name, a chain by those of its parts."""
    plain = RULE.sub(r"\1", " ".join(label.split()))
    if plain.startswith("chain:parts="):
        plain = " + ".join(NAME.findall(plain)) or plain
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def canvas(title: str, height: float = HEIGHT, **grid: Any) -> tuple[Figure, Any]:
    """A figure with axes in it."""
    figure = Figure(figsize=(WIDTH, height), facecolor="none")
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05))
    axes = figure.subplots(**grid)
    for each in np.ravel(axes):
        plain(each, LIGHT)
        each.tick_params(labelsize=LABEL)
    figure.suptitle(title, fontsize=LABEL + 1, color=LIGHT.ink, x=0.02, ha="left")
    return figure, axes


def in_units(axis: Any, metric: Metric = ACCURACY) -> None:
    """Shares of 1 are read as per cent, bits as they are."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{metric.scale * value:.3g}".replace("-", "−")))


def across(axes: Axes) -> None:
    """Faint lines to read heights by."""
    axes.grid(axis="y", color=LIGHT.line, linewidth=0.5)
    axes.set_axisbelow(True)


def dots(rows: Sequence[Row], styles: Styles, title: str, *, against: str = "") -> Figure:
    """A dot with its interval for each encoding, and its seeds; or, against a baseline, its paired difference."""
    shown = [row for row in rows if (row.difference if against else row.score)]
    figure, axes = canvas(title, 0.9 + 0.3 * len(shown))
    for place, row in enumerate(shown):
        estimate, style = row.difference if against else row.score, styles[row.label]
        assert estimate is not None
        if not against:
            seeds = [found.score for found in row.runs.values() if found.score is not None]
            axes.plot(seeds, [place] * len(seeds), "|", color=style.colour, alpha=0.6, markersize=9)
        axes.errorbar(estimate.mean, place, xerr=estimate.half, fmt=style.mark, color=style.colour, markersize=6, capsize=3)
    if against:
        axes.axvline(0, color=LIGHT.faint, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(shown)), [short(row.label) for row in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(axis="x", color=LIGHT.line, linewidth=0.5)
    axes.set_axisbelow(True)
    metric = rows[0].metric
    axes.set_xlabel(f"{metric.points} above {short(against)}" if against else f"test {metric.title}")
    in_units(axes.xaxis, metric)
    return figure


def learning(group: Group, styles: Styles, name: str, title: str, *, metric: Metric | None) -> Figure:
    """What was measured over the epochs: the mean of the seeds that are done, and every seed faintly."""
    figure, axes = canvas(title)
    for label, seeds in group.found.items():
        style = styles[label]
        for found in seeds.values():
            each = curve(found, name)
            axes.plot(each.keys(), each.values(), color=style.colour, linewidth=0.7, alpha=0.3)
        mean = mean_curve(list(seeds.values()), name)
        axes.plot(mean.keys(), mean.values(), style.dash, color=style.colour, linewidth=1.6)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    across(axes)
    if metric is not None:
        in_units(axes.yaxis, metric)
    return figure


def places(lines: Lines, styles: Styles, title: str, *, ticks: Mapping[Any, str], xlabel: str) -> Figure:
    """Accuracy at places that are set out at equal distances; intervals stand beside one another."""
    figure, axes = canvas(title)
    order = {where: i for i, where in enumerate(ticks)}
    for i, (label, line) in enumerate(lines.items()):
        style, beside = styles[label], (i - (len(lines) - 1) / 2) * min(0.07, 0.5 / len(lines))
        x = [order[where] + beside for where in line]
        look: dict[str, Any] = {"fmt": style.mark, "linestyle": style.dash, "color": style.colour, "elinewidth": 0.8}
        _, _, bars = axes.errorbar(x, *_bars(line), markersize=4, linewidth=1.4, **look)
        bars[0].set_alpha(0.45)
    crowded = sum(map(len, ticks.values())) > 34
    axes.set_xticks(range(len(ticks)), list(ticks.values()), rotation=45 if crowded else 0)
    axes.set_xlabel(xlabel)
    in_units(axes.yaxis)
    across(axes)
    return figure


def _bars(line: Mapping[Any, Estimate]) -> tuple[list[float], list[float]]:
    return [each.mean for each in line.values()], [each.half or 0.0 for each in line.values()]


def costs(rows: Sequence[Row], styles: Styles, title: str, *, what: str, xlabel: str) -> Figure:
    """Accuracy against what it costs."""
    figure, axes = canvas(title)
    for row in rows:
        style = styles[row.label]
        assert row.score is not None
        at = (getattr(row, what), row.score.mean)
        axes.errorbar(*at, yerr=row.score.half, fmt=style.mark, color=style.colour, markersize=6, capsize=3)
    axes.margins(x=0.15)
    axes.set_xlabel(xlabel)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))
    in_units(axes.yaxis, rows[0].metric)
    across(axes)
    return figure

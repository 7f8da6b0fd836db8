"""Figures of studies: probes by size, learned frequencies by layer, and curves of training with the test results beside."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropewalk.lab.figures.figure_layout import create_figure_page, get_legend_style, style_axes
from ropewalk.lab.figures.theme import FIGURE_THEMES, FigureTheme
from ropewalk.lab.probes.resolution import RESOLUTION_MODES
from ropewalk.lab.record import RunRecord
from ropewalk.lab.report.theme import BASELINE_COLORS, ENCODING_PALETTE

STYLED_NAMES = (
    "none", "learned-ape", "axial", "mixed", "spherical", "spherical-symmetric", "liere-8", "comrope-ld-8", "mrope"
)  # fmt: skip
"""The index of a name decides its color and dashes in the figures of all studies; other names follow in their order."""
DASHES = ("-", "--", "-.", ":")
BAR_OFFSET = 0.12
"""Distance between the bars of two encodings at one size, in units of the x axis, so that none hides another."""

Records = Sequence[RunRecord]
BySeed = Mapping[int, Mapping[int, float]]
"""Values of an encoding by x and seed."""


def get_style(name: str, look: FigureTheme, names: Sequence[str] = ()) -> dict[str, Any]:
    """The color and dashes of an encoding; `names` are all that are drawn."""
    known = [*STYLED_NAMES, *(each for each in names if each not in STYLED_NAMES)]
    i = known.index(name)
    pair = BASELINE_COLORS if i == 0 else ENCODING_PALETTE[(i - 1) % len(ENCODING_PALETTE)]
    return {"color": pair[look is FIGURE_THEMES["dark"]], "linestyle": DASHES[i % len(DASHES)], "linewidth": 1.6}


def collect_accuracies(records: Records, name: str, mode: str) -> dict[int, dict[int, float]]:
    """The accuracy of an encoding in per cent, by the side of images or volumes and by seed."""
    return _collect_points(
        (record, row["size"][0], row["accuracy"])
        for record in records
        for row in record.probes.get("resolution", [])
        if record.name == name and row["mode"] == mode and "accuracy" in row
    )


def collect_curves(records: Records, name: str, metric: str) -> dict[int, dict[int, float]]:
    """A validation metric in points, by epoch and seed; the last epoch is always validated."""
    return _collect_points(
        (record, min(i * record.config.every, record.config.epochs), value)
        for record in records
        for i, value in enumerate(record.list_metric(f"validation_{metric}"), 1)
        if record.name == name
    )


def _collect_points(values: Iterable[tuple[RunRecord, int, float]]) -> dict[int, dict[int, float]]:
    found: dict[int, dict[int, float]] = {}
    for record, x, value in values:
        found.setdefault(x, {})[record.config.seed] = 100 * value
    return dict(sorted(found.items()))


def subtract_values(own: BySeed, base: BySeed) -> dict[int, dict[int, float]]:
    """Differences seed by seed, where both have a value."""
    found = {
        side: {seed: value - base[side][seed] for seed, value in each.items() if seed in base[side]}
        for side, each in own.items()
        if side in base
    }
    return {side: each for side, each in found.items() if each}


def average_seeds(values: BySeed) -> list[float]:
    return [math.fsum(each.values()) / len(each) for each in values.values()]


def draw_sizes(
    look: FigureTheme,
    records: Records,
    names: Sequence[str],
    *,
    title: str,
    unit: str,
    below: str,
    note: str = "",
    trained: int | None = None,
    base: str | None = None,
    limit: float = 12,
    beside: bool = False,
) -> Figure:
    """Validation accuracy by size in each mode, with bars from the lowest to the highest seed.

    `base` adds a row with differences to this encoding, up to `limit` points; `trained` marks a size; `beside` draws the
    bars of one size side by side.
    """
    page = create_figure_page(7.4, 4.2 if base is None else 5.6, look, title=title, below=below, note=note)
    grid = page.figure.subplots(1 if base is None else 2, 2, sharey="row", sharex=base is not None, squeeze=False)
    for column, mode in enumerate(RESOLUTION_MODES):
        values = {name: collect_accuracies(records, name, mode) for name in names}
        _draw_bars(grid[0][column], values, look, beside=beside)
        grid[0][column].set_title(mode, color=look.ink, fontsize=9, loc="left")
        if base is None:
            grid[0][column].set_xticks(sorted({side for each in values.values() for side in each}))
        else:
            less = {name: subtract_values(each, values[base]) for name, each in values.items()}
            _draw_bars(grid[1][column], less, look, beside=beside)
            grid[1][column].set_ylim(-limit, limit)
        grid[-1][column].set_xlabel(unit)
    grid[0][0].set_ylabel("accuracy, %")
    if base is not None:
        grid[1][0].set_ylabel(f"above {base}, points")
    for axes in grid.flat:
        style_axes(axes, look)
        if trained is not None:
            axes.axvline(trained, color=look.line, linewidth=1, zorder=0)
    grid[0][1].legend(loc="upper left", bbox_to_anchor=(1, 1), **get_legend_style(look))
    return page.figure


def _draw_bars(axes: Axes, values: Mapping[str, BySeed], look: FigureTheme, *, beside: bool) -> None:
    for i, (name, each) in enumerate(values.items()):
        if each:
            middle, offset = average_seeds(each), BAR_OFFSET * (i - (len(values) - 1) / 2) * beside
            pairs = zip(middle, each.values(), strict=True)
            ends = [(mean - min(seeds.values()), max(seeds.values()) - mean) for mean, seeds in pairs]
            style: dict[str, Any] = {"capsize": 2, "elinewidth": 0.8, **get_style(name, look, list(values))}
            axes.errorbar([side + offset for side in each], middle, yerr=list(zip(*ends, strict=True)), label=name, **style)


def draw_frequencies(look: FigureTheme, records: Records, names: Sequence[str]) -> Figure:
    """The distribution of frequencies in each layer of the first seed: quartiles and median of all pairs or triplets."""
    below = "Radians across the image of all pairs or triplets of a layer after training: middle half and median, first seed"
    page = create_figure_page(7.4, 2.6, look, title="What layers learn", below=below)
    for axes, name in zip(page.figure.subplots(1, len(names), sharey=True), names, strict=True):
        for record in (record for record in records if record.name == name and record.config.seed == 0):
            rows = record.probes.get("frequencies", [])
            ordered, layers = [sorted(row["radians"]) for row in rows], [row["layer"] + 1 for row in rows]
            low, middle, high = ([each[int(share * (len(each) - 1))] for each in ordered] for share in (0.25, 0.5, 0.75))
            axes.fill_between(layers, low, high, color=look.get_axis_color("row"), alpha=0.3, linewidth=0)
            axes.plot(layers, middle, color=look.get_axis_color("row"), linewidth=1.7)
        axes.set_title(name, color=look.ink, fontsize=9, loc="left")
        axes.set(xlabel="layer", ylabel="radians" if name == names[0] else "")
        style_axes(axes, look)
    return page.figure


def draw_training(
    look: FigureTheme, records: Records, names: Sequence[str], *, metric: str, title: str, unit: str
) -> Figure:
    """A metric of the validation set by epoch, the mean over seeds, and beside it that of the test set, a dot a seed."""
    below = "Validation during training, means of as many seeds as an encoding has dots, and one test in the end"
    page = create_figure_page(7.4, 4.2, look, title=title, below=below)
    left, right = page.figure.subplots(1, 2, width_ratios=(5, 3))
    for row, name in enumerate(names):
        values, style = collect_curves(records, name, metric), get_style(name, look, names)
        left.plot(list(values), average_seeds(values), label=name, **style)
        tests = [100 * record.result[f"test_{metric}"] for record in records if record.name == name and record.result]
        right.plot(tests, [row] * len(tests), "o", color=style["color"], markersize=5, alpha=0.8)
    left.set(xlabel="epoch", ylabel=unit)
    left.legend(loc="lower right", **get_legend_style(look))
    right.set(xlabel=unit, yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5))
    right.grid(axis="y", color=look.line, linewidth=0.6)
    right.set_axisbelow(True)
    for axes, heading in ((left, "validation"), (right, "test, a dot for each seed")):
        axes.set_title(heading, color=look.ink, fontsize=9, loc="left")
        style_axes(axes, look)
    return page.figure

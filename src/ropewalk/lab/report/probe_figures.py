"""Figures of what probes measured on images: curves as probes declare them, frequencies, and attention patterns."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from ropewalk.lab.config import Config
from ropewalk.lab.probes.attention import measure_attention_weights
from ropewalk.lab.probes.probe import ProbeCurve, ProbeRow
from ropewalk.lab.report.format import format_record_error, join_words
from ropewalk.lab.report.panels import (
    PANEL_WIDTH,
    FigurePanel,
    FigureSources,
    ReportFigure,
    add_grid_lines,
    compute_error_lengths,
    describe_error_bars,
    draw_error_bars,
    format_metric_axis,
    get_metric_bounds,
    make_canvas,
    shorten_label,
)
from ropewalk.lab.report.series import EstimateLines, collect_frequencies, collect_lines, select_quantiles
from ropewalk.lab.report.theme import LIGHT_THEME, EncodingStyle, StyleMap
from ropewalk.lab.results_table import format_score
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.task_types import RunMetric
from ropewalk.validation import parse_finite

# Curves

LOG_SCALE_RATIO = 16
"""Ratio of the largest x to the smallest from which on the axis is logarithmic."""
MIN_TICK_DISTANCE = 0.07
"""Between labels of ticks, as a share of the axis."""


def draw_probe_curve(of: FigureSources, name: str, curve: ProbeCurve) -> ReportFigure | str:
    """Draw the rows of a probe as its curve declares: a line for each encoding, a panel for each title that has rows."""
    metric = of.group.metric if curve.y is None else None
    ylabel = curve.y_label or (f"Validation {metric.title}" if metric else str(curve.y))
    panels, legend, lines_drawn = list[FigurePanel](), dict[str, None](), list[EstimateLines]()
    for value, title in curve.panels or (("", ylabel),):
        lines = collect_lines(of.group, name, _make_place(curve, value), curve.y or of.group.metric.key)
        if not lines:
            continue
        file = f"{name}-{value}" if curve.panels else name
        ends = "; ".join(f"{label} {_describe_ends(line, metric)}" for label, line in lines.items())
        heading = f"{title}; " if curve.panels else ""
        alt = f"{heading}{ylabel.removesuffix(', %')} by {curve.x_label}: {ends}"
        options: dict[str, Any] = {"xlabel": curve.x_label, "ylabel": ylabel if curve.panels else "", "metric": metric}
        panels.append(of.draw_panel(file, alt, list(lines), plot_curves, lines, of.styles, title, **options))
        legend |= dict.fromkeys(lines)
        lines_drawn.append(lines)
    if not panels:
        return f"No run was probed for {name}."
    estimates = (each for lines in lines_drawn for line in lines.values() for each in line.values())
    caption = f"{curve.caption} {describe_error_bars(estimates)}"
    return ReportFigure(name, curve.title, caption, panels, [label for label in of.group.found if label in legend])


def _make_place(curve: ProbeCurve, value: str) -> Callable[[ProbeRow], float | None]:
    """The x of a row, or None if it is of another panel or damaged."""

    def place(row: ProbeRow) -> float | None:
        if curve.panels and row.get(str(curve.panel_column)) != value:
            return None
        try:
            return parse_finite(curve.x(row) if callable(curve.x) else row.get(curve.x))
        except (LookupError, TypeError, ValueError, ArithmeticError):
            return None

    return place


def _describe_ends(line: Mapping[float, Any], metric: RunMetric | None) -> str:
    """The values of a line at its first and last x."""
    ends = [next(iter(line)), next(reversed(line))] if len(line) > 1 else [*line]
    return ", ".join(
        f"{format_score(line[x], metric) if metric else format(line[x].mean, '.3g')} at {round(x, 2):g}" for x in ends
    )


def plot_curves(
    lines: EstimateLines, styles: StyleMap, title: str, *, xlabel: str, ylabel: str, metric: RunMetric | None
) -> Figure:
    """Lines of means with confidence intervals; ticks of the x axis are where values were measured."""
    figure, axes = make_canvas(title)
    bounds = get_metric_bounds(metric) if metric else (-math.inf, math.inf)
    for label, line in lines.items():
        style, means = styles[label], [each.mean for each in line.values()]
        bars = compute_error_lengths(line.values(), bounds) if any(each.half for each in line.values()) else None
        look: dict[str, Any] = {
            "linestyle": style.dash,
            "markersize": 4,
            "linewidth": 1.4,
            "elinewidth": 0.8,
            "bar_alpha": 0.5,
        }
        draw_error_bars(axes, label, list(line), means, bars, style=style, **look)
    set_measured_ticks(axes, sorted({x for line in lines.values() for x in line}))
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if metric:
        format_metric_axis(axes.yaxis, metric)
    add_grid_lines(axes)
    return figure


def set_measured_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Put ticks where values were measured, and leave out labels that would overlap."""
    logarithmic = values[0] > 0 and values[-1] >= LOG_SCALE_RATIO * values[0]
    if logarithmic:
        axes.set_xscale("log", base=2)
    scaled = [math.log(value) for value in values] if logarithmic else list(values)
    span = (scaled[-1] - scaled[0]) or 1.0
    kept = [len(values) - 1]
    for i in range(len(values) - 2, -1, -1):
        if scaled[kept[-1]] - scaled[i] >= MIN_TICK_DISTANCE * span:
            kept.append(i)
    axes.set_xticks(values, [f"{round(value, 2):g}" if i in kept else "" for i, value in enumerate(values)])
    axes.xaxis.set_minor_locator(NullLocator())


# Frequencies


def make_frequencies_figure(of: FigureSources) -> ReportFigure | str:
    """Draw the trained frequencies of each layer, a panel for each encoding."""
    found = {label: collect_frequencies(list(seeds.values())) for label, seeds in of.group.found.items()}
    there = {label: layers for label, layers in found.items() if layers}
    if not there:
        return "No run was probed for frequencies."
    reach = 1.3 * max(values[-1] for layers in there.values() for values in layers.values()) + 0.01
    panels = [_draw_spectrum_panel(of, f"frequencies-{i}", *each, reach) for i, each in enumerate(there.items(), start=1)]
    caption = (
        "Angle by which trained channels rotate from one side of the image to the other. Each tick is a channel pair, of "
        "all heads and seeds (quantiles if there are more than 48); the marker is the median. Encodings whose axes commute "
        "have one wave vector per pair, and its length is drawn; others have one tick per axis. Scales are equal, and "
        "linear below 0.1."
    )
    return ReportFigure("frequencies", "Frequencies of each layer", caption, panels, [])


def _draw_spectrum_panel(
    of: FigureSources, name: str, label: str, layers: Mapping[int, Sequence[float]], reach: float
) -> FigurePanel:
    medians = (f"layer {layer + 1}: {values[len(values) // 2]:.3g}" for layer, values in layers.items())
    alt = f"Radians across the image of {label}, medians: {'; '.join(medians)}"
    title = shorten_label(label, 40)
    drawn = (plot_layer_frequencies, layers, of.styles[label], title)
    return of.draw_panel(name, alt, [], *drawn, encoding=label, reach=reach)


def plot_layer_frequencies(
    layers: Mapping[int, Sequence[float]], style: EncodingStyle, title: str, *, reach: float
) -> Figure:
    """A row of ticks for each layer, with a marker at the median."""
    figure, axes = make_canvas(title, 0.9 + max(0.22 * len(layers), 0.5))
    for layer, radians in layers.items():
        some = select_quantiles(radians)
        axes.plot(some, [layer + 1] * len(some), "|", color=style.colour, alpha=0.55, markersize=10)
        axes.plot(radians[len(radians) // 2], layer + 1, style.mark, color=style.colour, markersize=5)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xlim(0, reach)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(max(layers) + 1.6, min(layers) + 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="radians across the image", ylabel="layer")
    return figure


# Attention patterns

ATTENTION_COLOR = "#d9570c"
"""Color of attention weights, with their size as opacity; visible in both themes."""
MAX_HEADS = 6


def make_attention_figure(of: FigureSources) -> ReportFigure | str:
    """Draw the attention patterns of trained heads, computed from checkpoints."""
    panels, unreadable, without = list[FigurePanel](), list[str](), list[str]()
    for i, (label, seeds) in enumerate(of.group.found.items(), start=1):
        for record in [each for each in seeds.values() if each.score is not None][:1]:
            if record.location is None:
                without.append(label)
                continue
            folder = Path(record.location)
            try:
                panels.append(_draw_attention_panel(of, f"attention-{i}", label, _load_patterns(record.config, folder)))
            except (ValueError, RuntimeError, OSError) as error:
                if (folder / "checkpoint.safetensors").is_file():
                    unreadable.append(f"{label}: {format_record_error(record, error)}.")
                else:
                    without.append(label)
    missing = [*unreadable, *([f"No checkpoint of {join_words(without)}."] if without else [])]
    if not panels:
        return " ".join(["No finished run has weights to compute attention patterns from.", *missing])
    caption = (
        "Attention weights of a query in the middle of the image (the cross) on all patches, averaged over validation "
        f"images. Heads are columns{_describe_selection(of)}; first finished seed. Each is scaled to its own maximum."
    )
    return ReportFigure("attention", "Attention patterns", " ".join([caption, *missing]), panels, [])


def _describe_selection(of: FigureSources) -> str:
    depth, heads = of.group.settings["depth"], of.group.settings["heads"]
    some = f", the first {MAX_HEADS} of {heads}" if heads > MAX_HEADS else ""
    return f"{some}{', of the first and last layer' if depth > 2 else ''}"


def _draw_attention_panel(of: FigureSources, name: str, label: str, patterns: Mapping[int, Any]) -> FigurePanel:
    layers = " and ".join(str(layer + 1) for layer in patterns)
    alt = f"Mean attention of a query in the middle of the image, heads of {label}, layer {layers}"
    return of.draw_panel(name, alt, [], plot_attention_heads, patterns, shorten_label(label, 40), encoding=label)


def _load_patterns(config: Config, folder: Path) -> dict[int, Any]:
    """Patterns (heads h w) of the first and last layer; the middle frame of a video."""
    found = measure_attention_weights(RunFolder.at(folder), sorted({0, config.depth - 1}))
    patterns = {layer: np.asarray(each)[:MAX_HEADS] for layer, each in found.items()}
    return {layer: each if each.ndim == 3 else each[:, each.shape[1] // 2] for layer, each in patterns.items()}


def plot_attention_heads(patterns: Mapping[int, NDArray[np.float64]], title: str) -> Figure:
    """Attention weights (heads h w), a row for each layer, each pattern from 0 to its maximum."""
    columns = max(4, *(len(weights) for weights in patterns.values()))
    height = 0.45 + len(patterns) * (PANEL_WIDTH - 0.3) / columns
    figure, grid = make_canvas(title, height, nrows=len(patterns), ncols=columns, squeeze=False)
    for line, (layer, weights) in zip(grid, patterns.items(), strict=True):
        for axes in line:
            axes.set(xticks=[], yticks=[])
            axes.spines[["left", "bottom"]].set_visible(False)
        for axes, one in zip(line, weights, strict=False):
            color = np.broadcast_to(to_rgba(ATTENTION_COLOR), (*one.shape, 4)).copy()
            color[..., 3] = one / max(one.max(), 1e-12)
            axes.imshow(color, interpolation="nearest")
            axes.plot(one.shape[1] // 2, one.shape[0] // 2, "+", color=LIGHT_THEME.ink, markersize=5)
        line[0].set_ylabel(f"layer {layer + 1}")
    return figure

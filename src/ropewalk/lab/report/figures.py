"""The figures of a report by name, and those of the metric: scores, learning curves, cost and predictions."""

import base64
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from markupsafe import escape
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from ropewalk.lab.file_gate import read_file_bytes
from ropewalk.lab.probes import PROBES
from ropewalk.lab.record import RunRecord
from ropewalk.lab.report.format import format_record_error
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.panels import (
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
    mark_encoding,
    shorten_label,
)
from ropewalk.lab.report.probe_figures import (
    draw_probe_curve,
    make_attention_figure,
    make_frequencies_figure,
)
from ropewalk.lab.report.series import average_metric_curve, get_metric_curve
from ropewalk.lab.report.text_figures import make_extensions_figure, make_passkey_figure, make_positions_figure
from ropewalk.lab.report.theme import LIGHT_THEME, StyleMap
from ropewalk.lab.result_rows import TableRow
from ropewalk.lab.results_table import format_difference, format_score
from ropewalk.lab.run_store import PREDICTIONS_FILE
from ropewalk.lab.task_types import RunMetric, TaskType, find_task

# Scores


def make_accuracy_figure(of: FigureSources) -> ReportFigure | str:
    """Draw mean scores, and differences to the baseline."""
    if not of.done:
        return "No run is finished, so there are no scores to draw."
    metric = of.group.metric
    alt = f"Test {metric.name}: " + "; ".join(f"{row.label} {format_score(row.score, metric)}" for row in of.done)
    panels = [of.draw_panel("accuracy", alt, [], plot_estimates, of.done, of.styles, f"Test {metric.title}")]
    bars = describe_error_bars(row.score for row in of.done)
    caption = f"Test {metric.name}, mean over seeds; small ticks are single seeds. {bars}"
    if compared := [row for row in of.done if row.difference]:
        points = metric.points.capitalize()
        values = "; ".join(f"{row.label} {format_difference(row.difference, metric)}" for row in compared)
        alt, title = f"{points} above {of.baseline}: {values}", f"{points} above {shorten_label(of.baseline)}, seed by seed"
        panels.append(of.draw_panel("difference", alt, [], plot_estimates, compared, of.styles, title, against=of.baseline))
        if any(row.difference and row.difference.half is not None for row in compared):
            corrected = ", corrected for multiple comparisons" if len(compared) > 1 else ""
            caption += (
                f" Intervals of differences are 95 %{corrected}: a difference is significant if its bar excludes zero."
            )
    return ReportFigure("accuracy", metric.capitalized_name, caption, panels, [])


def plot_estimates(rows: Sequence[TableRow], styles: StyleMap, title: str, *, against: str = "") -> Figure:
    """A mean with its confidence interval for each encoding and its single seeds; or its difference to a baseline."""
    figure, axes = make_canvas(title, 0.9 + 0.3 * len(rows))
    metric = rows[0].metric
    low, high = get_metric_bounds(metric)
    bounds = (low - high, high - low) if against else (low, high)
    for place, row in enumerate(rows):
        estimate, style = row.difference if against else row.score, styles[row.label]
        assert estimate is not None
        if not against:
            seeds = [found.score for found in row.runs.values() if found.score is not None]
            ticks = axes.plot(seeds, [place] * len(seeds), "|", color=style.colour, alpha=0.6, markersize=9)
            mark_encoding(row.label, *ticks)
        bars = None if estimate.half is None else compute_error_lengths([estimate], bounds)
        draw_error_bars(axes, row.label, estimate.mean, place, bars, style=style, across=True, markersize=6, capsize=3)
    if against:
        axes.axvline(0, color=LIGHT_THEME.faint, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(rows)), [shorten_label(row.label) for row in rows])
    for row, name in zip(rows, axes.get_yticklabels(), strict=True):
        mark_encoding(row.label, name)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    add_grid_lines(axes, "x")
    axes.set_xlabel(f"{metric.points} above {shorten_label(against)}" if against else f"test {metric.title}")
    format_metric_axis(axes.xaxis, metric)
    return figure


# Learning curves


def make_learning_figure(of: FigureSources) -> ReportFigure | str:
    """Draw the training loss and the validation score over the epochs."""
    metric, logged = of.group.metric, of.group.logged_names
    score = f"validation_{metric.key}"
    columns = {"loss": ("Training loss", None), score: (f"Validation {metric.title}", metric)}
    labels = [label for label, seeds in of.group.found.items() if any(found.metrics for found in seeds.values())]
    panels = [_draw_learning_panel(of, labels, name, *columns[name]) for name in columns if name in logged and labels]
    if not panels:
        return "No run has metrics, so there are no learning curves."
    caption = "Thick lines are means over finished seeds, thin lines single seeds."
    return ReportFigure("learning", "Learning curves", caption, panels, labels)


def _draw_learning_panel(
    of: FigureSources, labels: Sequence[str], name: str, title: str, metric: RunMetric | None
) -> FigurePanel:
    lines = {label: average_metric_curve(list(of.group.found[label].values()), name) for label in labels}
    last = {label: list(line.values())[-1] for label, line in lines.items() if line}
    values = "; ".join(f"{label} {_format_value(value, metric)}" for label, value in last.items())
    alt = f"{title.removesuffix(', %')} over epochs, at the end: {values or 'no run is finished'}"
    file = f"learning-{name.replace('_', '-')}"
    return of.draw_panel(file, alt, labels, plot_learning_curves, of.group, of.styles, name, title, metric=metric)


def _format_value(value: float, metric: RunMetric | None) -> str:
    return f"{value:.3g}" if metric is None else f"{metric.number(value)} {metric.unit}".rstrip()


def plot_learning_curves(group: RunGroup, styles: StyleMap, name: str, title: str, *, metric: RunMetric | None) -> Figure:
    """A metric over the epochs: the mean over finished seeds, and each seed."""
    figure, axes = make_canvas(title)
    for label, seeds in group.found.items():
        style, runs = styles[label], list(seeds.values())
        for curve in [get_metric_curve(found, name) for found in runs]:
            mark_encoding(label, *axes.plot(curve.keys(), curve.values(), color=style.colour, linewidth=0.7, alpha=0.3))
        mean = average_metric_curve(runs, name)
        mark_encoding(label, *axes.plot(mean.keys(), mean.values(), style.dash, color=style.colour, linewidth=1.6))
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_grid_lines(axes)
    if metric is not None:
        format_metric_axis(axes.yaxis, metric)
    return figure


# Cost

COST_COLUMNS = {
    "inference_ratio": (
        "inference time, × that without an encoding",
        "Inference time is relative to the same model without an encoding, timed in alternation: the fastest round of each, "
        "median over seeds.",
    ),
    "per_second": ("{things} per second in inference", "Throughput is the median over seeds."),
    "seconds": ("training time, seconds", "Training time excludes validation and is the median over seeds."),
}
"""Columns of the table that measure cost, the most reliable first: the label of the axis, and how it was measured."""


def make_cost_figure(of: FigureSources) -> ReportFigure | str:
    """Draw the score against inference time, or against training time where that was not measured."""
    metric = of.group.metric
    for column, (template, measured) in COST_COLUMNS.items():
        if rows := [row for row in of.done if getattr(row, column) is not None]:
            xlabel = template.format(things=metric.things)
            values = (f"{row.label} {format_score(row.score, metric)} at {getattr(row, column):,.3g}" for row in rows)
            alt, legend = f"Test {metric.name} against {xlabel}: {'; '.join(values)}", [row.label for row in rows]
            options = {"column": column, "xlabel": xlabel}
            panel = of.draw_panel("cost", alt, legend, plot_cost_scatter, rows, of.styles, f"Test {metric.title}", **options)
            corner = f"{'upper' if metric.higher else 'lower'} {'right' if column == 'per_second' else 'left'}"
            caption = f"Better is towards the {corner}. {measured}"
            return ReportFigure("cost", f"Cost against {metric.name}", caption, [panel], legend)
    return "No finished run has a recorded cost."


def plot_cost_scatter(rows: Sequence[TableRow], styles: StyleMap, title: str, *, column: str, xlabel: str) -> Figure:
    """Score against cost."""
    figure, axes = make_canvas(title)
    bounds = get_metric_bounds(rows[0].metric)
    for row in rows:
        assert row.score is not None
        bars = None if row.score.half is None else compute_error_lengths([row.score], bounds)
        place = (getattr(row, column), row.score.mean, bars)
        draw_error_bars(axes, row.label, *place, style=styles[row.label], markersize=6, capsize=3)
    axes.margins(x=0.15)
    axes.set_xlabel(xlabel)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))
    format_metric_axis(axes.yaxis, rows[0].metric)
    add_grid_lines(axes)
    return figure


# Predictions


def make_predictions_figure(of: FigureSources) -> ReportFigure | str:
    """Show the predictions on test images that runs drew when they finished, of the first seed of each encoding."""
    panels, unreadable = list[FigurePanel](), list[str]()
    for i, (label, seeds) in enumerate(of.group.found.items(), start=1):
        pictures = {seed: path for seed, record in seeds.items() if (path := _find_picture(record)) is not None}
        for seed, path in list(pictures.items())[:1]:
            try:
                panels.append(_embed_image(f"found-{i}{of.suffix}", label, read_file_bytes(path)))
            except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
                unreadable.append(f"{label}: its {path.name} cannot be read ({format_record_error(seeds[seed], error)}).")
    if not panels:
        return " ".join(["No finished run has a picture of its predictions.", *unreadable])
    about = find_task(of.group.settings).picture_caption
    caption = f"The same test images for each encoding, first finished seed. {about}"
    return ReportFigure("found", "Predictions", " ".join([caption, *unreadable]), panels, [])


def _find_picture(record: RunRecord) -> Path | None:
    """The picture of the predictions of a finished run, if its directory has one."""
    if record.score is None or record.location is None:
        return None
    path = Path(record.location) / PREDICTIONS_FILE
    return path if path.is_file() else None


def _embed_image(name: str, label: str, data: bytes) -> FigurePanel:
    """Embed a PNG under the label of its encoding; raises an error if it is none."""
    with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
        width, height = picture.size
        picture.verify()
    line = width // 16
    style = f'x="0" y="{0.6 * line:g}" font-size="{line / 2:g}" fill="currentColor"'
    title = f"<text {style}>{escape(shorten_label(label, 40))}</text>"
    address = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    image = f'<image y="{line}" width="{width}" height="{height}" href="{address}"/>'
    svg = f'viewBox="0 0 {width} {height + line}">{title}{image}</svg>'
    return FigurePanel(name, f"Test images with the predictions of {label}", svg, data, label)


# The registry

FIGURES: dict[str, Callable[[FigureSources], ReportFigure | str]] = {
    "accuracy": make_accuracy_figure,
    "learning": make_learning_figure,
    "positions": make_positions_figure,
    "extensions": make_extensions_figure,
    "passkey": make_passkey_figure,
    "frequencies": make_frequencies_figure,
    "attention": make_attention_figure,
    "predictions": make_predictions_figure,
    "cost": make_cost_figure,
}
"""Figures with code of their own, by name. Other names are of probes, which are drawn as their curves declare."""


def make_figures(of: FigureSources) -> list[ReportFigure | str]:
    """Draw all figures of a group; a string gives the reason why one is missing."""
    return [_make_figure(of, name) for name in list_figure_names(find_task(of.group.settings))]


def list_figure_names(task: TaskType) -> list[str]:
    """The figures that a task names, and the curves of all other probes that support it."""
    curves = [name for name, probe in PROBES.items() if probe.curve is not None and probe.supports(task.name)]
    return list(dict.fromkeys((*task.figures, *curves)))


def _make_figure(of: FigureSources, name: str) -> ReportFigure | str:
    if name in FIGURES:
        return FIGURES[name](of)
    curve = PROBES[name].curve
    if curve is None:
        raise ValueError(f"The report cannot draw {name!r}; expected a name in FIGURES, or a probe with a curve")
    return draw_probe_curve(of, name, curve)

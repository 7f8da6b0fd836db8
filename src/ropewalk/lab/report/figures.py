"""Figures as SVG inside a page, and as PNG beside it. The same figure gives the same bytes.

The figures of a group, each with a caption and its words for those who do not see it; or why one is not there.

The figure of what was found in images of the test set: the pictures that runs drew when they were done, as they are.
"""

import base64
import io
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from ropewalk.lab.figures.figure_layout import get_legend_style
from ropewalk.lab.metrics import RunMetric
from ropewalk.lab.report.format import format_difference, format_score, make_html_tag
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.panels import StyleMap, plot_cost_scatter, plot_estimates, plot_learning_curves, shorten_label
from ropewalk.lab.report.series import average_metric_curve
from ropewalk.lab.report.table import TableRow
from ropewalk.lab.report.theme import LIGHT_THEME, EncodingStyle, use_css_variables
from ropewalk.lab.run_store import PREDICTIONS_FILE
from ropewalk.lab.statistics import MeanEstimate
from ropewalk.lab.task_types import find_task

PNG_DPI = 160  # an inch


@contextmanager
def use_plain_text(salt: str) -> Iterator[None]:
    """Words are words, not formulas, and stay words in SVG; ids are those of this figure alone."""
    settings: Any = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": salt}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def render_svg(figure: Figure) -> str:
    """An element for a page: without fonts, ids, styles and addresses of its own, its colours variables of the page."""
    text = io.StringIO()
    figure.savefig(text, format="svg")
    _, _, body = text.getvalue().partition("<svg ")
    for pattern in (r"<metadata>.*?</metadata>", r'<style type="text/css">.*?</style>', r"<!--.*?-->"):
        body = re.sub(pattern, "", body, flags=re.DOTALL)
    body = re.sub(r'(<(?:g|image)\b[^>]*?) id="[^"]*"', r"\1", body)
    body = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", body)
    box = re.search(r'viewBox="[^"]*"', body)
    assert box is not None
    return f"<svg {box[0]}>{use_css_variables(body.partition('>')[2]).strip()}"


def render_png(figure: Figure, styles: StyleMap, labels: Collection[str]) -> bytes:
    """A picture that stands alone: with a legend below, for which the figure grows."""
    if labels:
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.1 + 0.19 * -(-len(labels) // 2))
        handles = [_make_legend_handle(styles[label]) for label in labels]
        words = [shorten_label(label) for label in labels]
        figure.legend(handles, words, loc="outside lower left", ncols=2, **get_legend_style(LIGHT_THEME))
    else:
        figure.set_layout_engine("none")  # all has its place since it was drawn as SVG
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=PNG_DPI, facecolor=LIGHT_THEME.paper, metadata={"Software": None})
    return data.getvalue()


def _make_legend_handle(style: EncodingStyle) -> Line2D:
    look: dict[str, Any] = {"color": style.colour, "marker": style.mark, "linestyle": style.dash, "markersize": 4}
    return Line2D([], [], **look)


INTERVALS_CAPTION = (
    "Marks are means over seeds; bars are 95 % intervals from the variance of all encodings together, one at a time."
)
TIMING_CAPTIONS = {
    "inference_ratio": "Batches went in turn through the model and through the same without an encoding, on the machine of "
    "the probe: the fastest round of each counts, and the median over seeds. How far a model without an encoding is from 1 "
    "tells how busy the machine was with other things.",
    "per_second": "Times are medians over seeds, on the machine of the probe.",
    "seconds": "Times are medians over seeds of what training took, without validation, on the machine of the run.",
}
"""How costs were measured."""
SINGLE_SEED_CAPTION = "There is one seed of each, so that there are no intervals."


def describe_error_bars(estimates: Iterable[MeanEstimate | None]) -> str:
    """What the bars of a figure are, if it has any."""
    return (
        INTERVALS_CAPTION if any(each is not None and each.half is not None for each in estimates) else SINGLE_SEED_CAPTION
    )


class FigurePanel(NamedTuple):
    """One picture: its name, what it shows in words, and its two forms."""

    name: str
    alt: str
    svg: str
    png: bytes


class ReportFigure(NamedTuple):
    """A figure: pictures with one title, one caption and one legend, which may be empty."""

    name: str
    title: str
    caption: str
    panels: list[FigurePanel]
    legend: list[str]


class FigureSources(NamedTuple):
    """What figures are made from; `mark` tells the files of one group from those of another."""

    group: RunGroup
    rows: list[TableRow]
    styles: StyleMap
    baseline: str
    mark: str

    @property
    def done(self) -> list[TableRow]:
        """Rows with a result."""
        return [row for row in self.rows if row.score]

    def panel(
        self, name: str, alt: str, legend: Sequence[str], draw: Callable[..., Figure], *given: Any, **options: Any
    ) -> FigurePanel:
        """Draw."""
        name = f"{name}{self.mark}"
        with use_plain_text(name):
            figure = draw(*given, **options)
            return FigurePanel(name, alt, render_svg(figure), render_png(figure, self.styles, legend))


def make_accuracy_figure(of: FigureSources) -> ReportFigure | str:
    """Means with intervals, and differences to the baseline."""
    if not of.done:
        return "No run is done: there is no accuracy to draw."
    metric = of.group.metric
    alt = f"Test {metric.name}: " + "; ".join(f"{row.label} {format_score(row.score, metric)}" for row in of.done)
    shown = [of.panel("accuracy", alt, [], plot_estimates, of.done, of.styles, f"Test {metric.title}")]
    caption = f"{describe_error_bars(row.score for row in of.done)} Small ticks are single seeds."
    if compared := [row for row in of.done if row.difference]:
        points = metric.points.capitalize()
        said = "; ".join(f"{row.label} {format_difference(row.difference, metric)}" for row in compared)
        alt, title = f"{points} above {of.baseline}: {said}", f"{points} above {shorten_label(of.baseline)}, seed by seed"
        shown.append(of.panel("difference", alt, [], plot_estimates, compared, of.styles, title, against=of.baseline))
        if any(row.difference and row.difference.half is not None for row in compared):
            several = ", all of them at once" if len(compared) > 1 else ""
            caption += (
                f" Bars of differences are 95 % intervals{several}: where one crosses the dashed line, the encoding is not "
                f"told apart from {of.baseline}."
            )
    return ReportFigure("accuracy", metric.capitalized_name, caption, shown, [])


def make_learning_figure(of: FigureSources) -> ReportFigure | str:
    """Loss in training and accuracy in validation over the epochs."""
    labels = [label for label, seeds in of.group.found.items() if any(found.metrics for found in seeds.values())]
    if not labels or of.group.logged_names.isdisjoint(("loss", f"validation_{of.group.metric.key}")):
        return "No run has metrics: there are no learning curves."
    metric, logged = of.group.metric, of.group.logged_names
    shown, said = list[FigurePanel](), list[str]()
    if "loss" in logged:
        shown.append(_make_curves_panel(of, labels, "loss", "Training loss", None))
        said.append("the mean loss of the steps of each")
    if f"validation_{metric.key}" in logged:
        shown.append(_make_curves_panel(of, labels, f"validation_{metric.key}", f"Validation {metric.title}", metric))
        said.append(f"the {metric.name} on {'images that are' if metric.higher else 'text that is'} not trained on")
    seeds = "Thick lines are means over the seeds that are done; thin lines are single seeds."
    return ReportFigure("learning", "Learning curves", f"Over the epochs, {', and '.join(said)}. {seeds}", shown, labels)


def _make_curves_panel(
    of: FigureSources, labels: Sequence[str], name: str, title: str, metric: RunMetric | None
) -> FigurePanel:
    """One thing that was measured over the epochs."""
    lines = {label: average_metric_curve(list(of.group.found[label].values()), name) for label in labels}
    last = {label: list(line.values())[-1] for label, line in lines.items() if line}
    said = "; ".join(f"{label} {_format_last_value(value, metric)}" for label, value in last.items())
    alt = f"{title.removesuffix(', %')} over epochs, at the end: {said or 'no run is done'}"
    file = f"learning-{name.replace('_', '-')}"
    return of.panel(file, alt, labels, plot_learning_curves, of.group, of.styles, name, title, metric=metric)


def _format_last_value(value: float, metric: RunMetric | None) -> str:
    return f"{value:.3g}" if metric is None else f"{metric.number(value)} {metric.unit}".rstrip()


def make_cost_figure(of: FigureSources) -> ReportFigure | str:
    """Accuracy against inference beside the model without an encoding; or against training, where that was not measured."""
    metric = of.group.metric
    words = {
        "inference_ratio": "time of inference, × that without an encoding",
        "per_second": f"{metric.things} per second in inference",
        "seconds": "seconds of training",
    }
    for what, xlabel in words.items():
        if there := [row for row in of.done if getattr(row, what) is not None]:
            said = "; ".join(f"{row.label} {format_score(row.score, metric)} at {getattr(row, what):,.3g}" for row in there)
            alt, legend = f"Test {metric.name} against {xlabel}: {said}", [row.label for row in there]
            options = {"what": what, "xlabel": xlabel}
            made = of.panel("cost", alt, legend, plot_cost_scatter, there, of.styles, f"Test {metric.title}", **options)
            side = "right" if what == "per_second" else "left"
            caption = f"The {'upper' if metric.higher else 'lower'} {side} is better. {TIMING_CAPTIONS[what]}"
            return ReportFigure("cost", f"Cost against {metric.name}", caption, [made], legend)
    return "No run that is done says what it cost."


def make_predictions_figure(of: FigureSources) -> ReportFigure | str:
    """A picture for each encoding, of its first seed that is done and has one."""
    shown, refused = list[FigurePanel](), list[str]()
    for i, (label, seeds) in enumerate(of.group.found.items(), start=1):
        there = [each for each in seeds.values() if each.score is not None and (each.run.path / PREDICTIONS_FILE).is_file()]
        for found in there[:1]:
            try:
                shown.append(
                    _make_picture_panel(f"found-{i}{of.mark}", label, (found.run.path / PREDICTIONS_FILE).read_bytes())
                )
            except (OSError, ValueError, SyntaxError) as error:
                refused.append(f"{label}: its picture cannot be read ({found.format_error(error)}).")
    if not shown:
        return " ".join(["No run that is done has a picture of what it found.", *refused])
    about = find_task(of.group.settings).picture_caption
    caption = f"The same images of the test set for each encoding, of its first seed that is done. {about}"
    return ReportFigure("found", "What was found", " ".join([caption, *refused]), shown, [])


def _make_picture_panel(name: str, label: str, data: bytes) -> FigurePanel:
    """The bytes of a picture, if they are one, under the name of the encoding."""
    with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
        width, height = picture.size
        picture.verify()
    line = width // 16
    title = make_html_tag(
        "text", shorten_label(label, 40), x="0", y=f"{0.6 * line:g}", font_size=f"{line / 2:g}", fill="currentColor"
    )
    held = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    image = f'<image y="{line}" width="{width}" height="{height}" href="{held}"/>'
    svg = f'<svg viewBox="0 0 {width} {height + line}">{title}{image}</svg>'
    return FigurePanel(name, f"Images of the test set with what {label} found", svg, data)

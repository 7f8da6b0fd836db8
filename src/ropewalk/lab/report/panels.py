"""The parts of a report's figures: panels drawn by matplotlib, as SVG in the page and as PNG beside it.

A panel is narrow enough for its text, of 9 points, to be legible on a phone. What is drawn for one encoding carries its
label as `data-encoding`, by which the page highlights it. Equal figures give equal bytes.
"""

import io
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from ropewalk.lab.figures.figure_layout import LABEL_SIZE, get_legend_style, style_axes
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.theme import LIGHT_THEME, EncodingStyle, StyleMap, use_css_variables
from ropewalk.lab.result_rows import TableRow
from ropewalk.lab.statistics import MeanEstimate
from ropewalk.lab.task_types import RunMetric

PANEL_WIDTH, PANEL_HEIGHT = 4.0, 2.7  # inches
PNG_DPI = 160

EXTENSION_PATTERN = re.compile(r'extension=\{[^{}]*"rope_type": "([\w-]+)"[^{}]*\}')
PART_NAME_PATTERN = re.compile(r'"name": "([\w-]+)"')

ENCODING_ID = "encoding "
"""Prefix of the ids of SVG groups that hold one encoding; the rest is its label."""


class FigurePanel(NamedTuple):
    """One plot: its file name, a description in words, both its forms, and the encoding if it shows one alone."""

    name: str
    alt: str
    svg: str
    png: bytes
    encoding: str | None = None


class ReportFigure(NamedTuple):
    """Panels with a common title, caption and legend, which may be empty."""

    name: str
    title: str
    caption: str
    panels: list[FigurePanel]
    legend: list[str]


class FigureSources(NamedTuple):
    """What figures are made from. `suffix` distinguishes the files of several groups."""

    group: RunGroup
    rows: list[TableRow]
    styles: StyleMap
    baseline: str
    suffix: str

    @property
    def done(self) -> list[TableRow]:
        """Rows with a score."""
        return [row for row in self.rows if row.score]

    def draw_panel(
        self,
        name: str,
        alt: str,
        legend: Sequence[str],
        draw: Callable[..., Figure],
        *given: Any,
        encoding: str | None = None,
        **options: Any,
    ) -> FigurePanel:
        """Draw a panel, with a legend in its PNG alone."""
        name = f"{name}{self.suffix}"
        with use_plain_text(name):
            figure = draw(*given, **options)
            return FigurePanel(name, alt, render_svg(figure), render_png(figure, self.styles, legend), encoding)


def shorten_label(label: str, most: int = 24) -> str:
    """Shorten a label for a figure: a context extension becomes its type, a chain the names of its parts."""
    plain = EXTENSION_PATTERN.sub(r"\1", " ".join(label.split()))
    if plain.startswith("chain:parts="):
        plain = " + ".join(PART_NAME_PATTERN.findall(plain)) or plain
    return plain if len(plain) <= most else plain[: most - 1] + "…"


# Drawing


def make_canvas(title: str, height: float = PANEL_HEIGHT, **grid: Any) -> tuple[Figure, Any]:
    """Create a figure with axes."""
    figure = Figure(figsize=(PANEL_WIDTH, height), facecolor="none")
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05))
    axes = figure.subplots(**grid)
    for each in np.ravel(axes):
        style_axes(each, LIGHT_THEME)
        each.tick_params(labelsize=LABEL_SIZE)
    figure.suptitle(title, fontsize=LABEL_SIZE + 1, color=LIGHT_THEME.ink, x=0.02, ha="left")
    return figure, axes


def mark_encoding(label: str, *artists: Artist) -> None:
    """Mark what belongs to one encoding."""
    for artist in artists:
        artist.set_gid(f"{ENCODING_ID}{label}")


def draw_error_bars(
    axes: Axes,
    encoding: str | None,
    x: Any,
    y: Any,
    bars: Any,
    *,
    style: EncodingStyle,
    across: bool = False,
    bar_alpha: float = 1.0,
    **options: Any,
) -> None:
    """Means with error bars in a style; `bars` may be None, `bar_alpha` is their opacity."""
    look = {"marker": style.mark, "color": style.colour, "linestyle": "none", **options}
    drawn = axes.errorbar(x, y, **{"xerr" if across else "yerr": bars}, **look)
    for bar in drawn.lines[2]:
        bar.set_alpha(bar_alpha)
    if encoding is not None:
        mark_encoding(encoding, *drawn.get_children())


def compute_error_lengths(estimates: Iterable[MeanEstimate], bounds: tuple[float, float]) -> list[list[float]]:
    """Compute the lengths of error bars below and above the means; bars end where values do."""
    low, high = bounds
    pairs = [(each.mean, each.half or 0.0) for each in estimates]
    return [
        [min(half, max(mean - low, 0.0)) for mean, half in pairs],
        [min(half, max(high - mean, 0.0)) for mean, half in pairs],
    ]


def get_metric_bounds(metric: RunMetric) -> tuple[float, float]:
    """The range of values that a metric can have."""
    return (0.0, 1.0) if metric.scale == 100 else (0.0, float("inf"))


def format_metric_axis(axis: Any, metric: RunMetric) -> None:
    """Label ticks in the unit of a metric."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{metric.scale * value:.3g}".replace("-", "−")))


def add_grid_lines(axes: Axes, which: str = "y") -> None:
    """Add faint lines behind the data."""
    axes.grid(axis=which, color=LIGHT_THEME.line, linewidth=0.5)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def describe_error_bars(estimates: Iterable[MeanEstimate | None]) -> str:
    """Describe error bars in a caption."""
    halves = [each.half for each in estimates if each]
    if any(half is not None for half in halves):
        return "Bars are 95 % confidence intervals."
    return "There is one seed of each encoding, so there are no confidence intervals." if halves else ""


# Output


@contextmanager
def use_plain_text(salt: str) -> Iterator[None]:
    """Draw text as text, never as formulas or outlines, with ids that are derived from `salt`."""
    settings: Any = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": salt}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def render_svg(figure: Figure) -> str:
    """Render the inside of an `svg` element for the page, from its viewBox on: without fonts, metadata and ids."""
    text = io.StringIO()
    figure.savefig(text, format="svg")
    _, _, body = text.getvalue().partition("<svg ")
    for pattern in (r"<metadata>.*?</metadata>", r'<style type="text/css">.*?</style>', r"<!--.*?-->"):
        body = re.sub(pattern, "", body, flags=re.DOTALL)
    body = re.sub(rf' id="{ENCODING_ID}([^"]*)"', r' data-encoding="\1"', body)
    body = re.sub(r'(<(?:g|image)\b[^>]*?) id="[^"]*"', r"\1", body)
    body = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", body)
    box = re.search(r'viewBox="[^"]*"', body)
    assert box is not None
    return f"{box[0]}>{use_css_variables(body.partition('>')[2]).strip()}"


def render_png(figure: Figure, styles: StyleMap, labels: Collection[str]) -> bytes:
    """Render a PNG with a legend below the plot, for which the figure grows."""
    if labels:
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.1 + 0.19 * -(-len(labels) // 2))
        handles = [_make_legend_handle(styles[label]) for label in labels]
        names = [shorten_label(label) for label in labels]
        figure.legend(handles, names, loc="outside lower left", ncols=2, **get_legend_style(LIGHT_THEME))
    else:
        figure.set_layout_engine("none")  # keep the layout of the SVG
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=PNG_DPI, facecolor=LIGHT_THEME.paper, metadata={"Software": None})
    return data.getvalue()


def _make_legend_handle(style: EncodingStyle) -> Line2D:
    look: dict[str, Any] = {"color": style.colour, "marker": style.mark, "linestyle": style.dash, "markersize": 4}
    return Line2D([], [], **look)

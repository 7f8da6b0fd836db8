"""Figures as SVG inside a page, and as PNG beside it. The same figure gives the same bytes."""

import io
import re
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ropewalk.lab.plots.page import legend_style
from ropewalk.lab.report.panels import Styles, short
from ropewalk.lab.report.styles import LIGHT, Style, themed

DOTS = 160  # an inch


@contextmanager
def plainly(salt: str) -> Iterator[None]:
    """Words are words, not formulas, and stay words in SVG; ids are those of this figure alone."""
    settings: Any = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": salt}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def svg(figure: Figure) -> str:
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
    return f"<svg {box[0]}>{themed(body.partition('>')[2]).strip()}"


def png(figure: Figure, styles: Styles, labels: Collection[str]) -> bytes:
    """A picture that stands alone: with a legend below, for which the figure grows."""
    if labels:
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.1 + 0.19 * -(-len(labels) // 2))
        handles = [_line(styles[label]) for label in labels]
        words = [short(label) for label in labels]
        figure.legend(handles, words, loc="outside lower left", ncols=2, **legend_style(LIGHT))
    else:
        figure.set_layout_engine("none")  # all has its place since it was drawn as SVG
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=DOTS, facecolor=LIGHT.paper, metadata={"Software": None})
    return data.getvalue()


def _line(style: Style) -> Line2D:
    look: dict[str, Any] = {"color": style.colour, "marker": style.mark, "linestyle": style.dash, "markersize": 4}
    return Line2D([], [], **look)

"""Pages and axes: where the words of a figure stand, and how they look."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FuncFormatter, NullFormatter

from ropewalk.encoding import Encoding
from ropewalk.lab.figures.theme import FigureTheme
from ropewalk.lab.inspect.figure_grid import format_grid_size

TITLE_SIZE, LABEL_SIZE, SMALL_LABEL_SIZE = 11, 9, 8  # points
PAGE_MARGIN = 0.12  # inches
LINE_SPACING = 1.45 / 72
MAX_TEXT_LINES = 4  # lines of a title or note


class FigurePage(NamedTuple):
    """A figure with its title above and a note below, and the part of it that is left, from bottom to top, of 1."""

    figure: Figure
    bottom: float
    top: float


class TextLine(NamedTuple):
    """A line of words."""

    text: str
    size: float
    colour: str


def create_figure_page(
    width: float, height: float, look: FigureTheme, *, title: str, below: str, note: str = ""
) -> FigurePage:
    """A page whose free part is so large, in inches, and makes room by itself for the words around its pictures."""
    lines = _wrap_text(title, width, TITLE_SIZE, look.ink) + _wrap_text(below, width, LABEL_SIZE, look.faint)
    notes = _wrap_text(note, width, SMALL_LABEL_SIZE, look.faint)
    above, under = (PAGE_MARGIN + sum(LINE_SPACING * line.size for line in words) for words in (lines, notes))
    above += PAGE_MARGIN / 2
    total = above + height + under
    free = FigurePage(Figure(figsize=(width, total), facecolor=look.paper), under / total, 1 - above / total)
    room = (0, free.bottom, 1, free.top - free.bottom)
    free.figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06, rect=room))
    for edge, words in ((total - PAGE_MARGIN, lines), (under - PAGE_MARGIN / 4, notes)):
        for line in words:
            edge -= LINE_SPACING * line.size
            free.figure.text(
                PAGE_MARGIN / width, edge / total, line.text, color=line.colour, fontsize=line.size, va="bottom"
            )
    return free


def _wrap_text(text: str, width: float, size: float, colour: str) -> list[TextLine]:
    """Words in lines no wider than a page of so many inches, four at most; on screen they are a little wider than here."""
    font, room, lines = FontProperties(size=size), (width - 2 * PAGE_MARGIN) * 68, [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_to_path.get_text_width_height_descent(longer, font, ismath=False)[0] > room:
            lines.append(word)
        else:
            lines[-1] = longer
    if len(lines) > MAX_TEXT_LINES:
        lines[MAX_TEXT_LINES - 1 :] = [f"{lines[MAX_TEXT_LINES - 1]} …"]
    return [TextLine(line, size, colour) for line in lines if line]


def format_figure_subtitle(encoding: Encoding, size: Sequence[int], layer: int = 0) -> str:
    """What a figure shows: on how many patches, and which encoding."""
    which = f"layer {layer + 1} of " if encoding.layers is not None else ""
    return f"On {format_grid_size(size)}: {which}{repr(encoding).partition('  #')[0]}"


def style_axes(axes: Axes, look: FigureTheme) -> None:
    """Colour the frame, ticks and labels of axes, and leave out what no one needs."""
    axes.set_facecolor(look.paper)
    axes.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(look.line)
    axes.tick_params(color=look.line, labelcolor=look.faint, labelsize=SMALL_LABEL_SIZE, which="both")
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=look.faint, fontsize=LABEL_SIZE)


def add_second_scale(
    axes: Axes, side: str, label: str, forth: Callable[..., Any], back: Callable[..., Any], look: FigureTheme
) -> None:
    """Another scale at the top or right; both are logarithmic, and have the numbers of their decades alone."""
    across = side == "top"
    both = (forth, back)
    other: Any = axes.secondary_xaxis("top", both) if across else axes.secondary_yaxis("right", both)
    other.set(**{"xlabel" if across else "ylabel": label})
    style_axes(other, look)
    for each in (axes, other):
        axis = each.xaxis if across else each.yaxis
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def add_outlined_text(axes: Axes, x: float, y: float, words: str, look: FigureTheme, **style: Any) -> None:
    """Small words that may cross lines: they have an edge in the colour of the paper."""
    edge = [withStroke(linewidth=3, foreground=look.paper)]
    axes.text(x, y, words, color=look.faint, fontsize=SMALL_LABEL_SIZE, path_effects=edge, **style)


def get_legend_style(look: FigureTheme) -> dict[str, Any]:
    """How a legend is written."""
    return {"fontsize": SMALL_LABEL_SIZE, "labelcolor": look.faint, "frameon": False}


def add_heads_legend(axes: Axes, look: FigureTheme, heads: int) -> None:
    """A legend of the colours of heads, at most eight of them, at the right of the axes."""
    dot: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 4}
    shown = range(0, heads, -(-heads // 8))
    handles = [Line2D([], [], color=look.get_head_color(i, heads), label=f"head {i + 1}", **dot) for i in shown]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), handletextpad=0, **get_legend_style(look))

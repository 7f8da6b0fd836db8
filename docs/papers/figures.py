"""Figures in the colours of a theme, without global state."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from ropewalk.lab.figures.theme import FIGURE_THEMES

Theme = type(FIGURE_THEMES["light"])


def sheet(look: Theme, *, width: float = 7.4, height: float = 3.0, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure and its axes, one or several side by side."""
    figure = Figure(figsize=(width, height), facecolor=look.paper, layout="constrained")
    axes = figure.subplots(1, columns, **options)
    figure.get_layout_engine().set(w_pad=0.07, h_pad=0.07)
    for one in [axes] if columns == 1 else axes:
        _dress(one, look)
    return figure, axes


def cool(look: Theme) -> str:
    """The colour of the first of two things."""
    return look.scale[1]


def warm(look: Theme) -> str:
    """The colour of the second of two things."""
    return look.scale[5]


def label(axes: Axes, look: Theme, *, x: str = "", y: str = "", title: str = "") -> None:
    """Words at the axes and above them."""
    axes.set_xlabel(x, color=look.ink, fontsize=9)
    axes.set_ylabel(y, color=look.ink, fontsize=9)
    axes.set_title(title, color=look.ink, fontsize=9.5)


def legend(axes: Axes, look: Theme, **options: Any) -> None:
    """The key of the lines drawn, without a frame."""
    axes.legend(frameon=False, labelcolor=look.ink, fontsize=8.5, **options)


def note(
    axes: Axes, look: Theme, words: str, at: tuple[float, float], *, shift: tuple[float, float], **options: Any
) -> None:
    """Words beside a point, legible over lines."""
    halo = [withStroke(linewidth=3, foreground=look.paper)]
    options = {"color": look.ink, "fontsize": 8.5, "path_effects": halo} | options
    axes.annotate(words, at, shift, textcoords="offset points", **options)


def _dress(axes: Axes, look: Theme) -> None:
    axes.set_facecolor(look.paper)
    axes.tick_params(which="both", colors=look.faint, labelsize=8.5)
    for side, spine in axes.spines.items():
        spine.set_color(look.faint)
        spine.set_visible(side in ("left", "bottom"))

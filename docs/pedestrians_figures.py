"""The figure of the study of pedestrians: how boxes become better in training, and how good they are in the end."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import studied
import study_figures
from ropewalk.lab.figures.figure_layout import create_figure_page, get_legend_style, style_axes
from ropewalk.lab.figures.theme import FigureTheme
from ropewalk.lab.studies import ALL_STUDIES
from studied import ResultLine

FIGURES = {"boxes": "Box AP on the validation set during training, and on the test set in the end, seed by seed"}
DRAWN = ALL_STUDIES["pedestrians"].parts["masks"].encodings


def draw(folder: Path, lines: Sequence[ResultLine]) -> None:
    """The figure, light and dark, into the folder's images; none before the runs that it shows are made."""
    study_figures.write(folder, "pedestrians", {"boxes": boxes}, studied.of("masks", lines))


def boxes(look: FigureTheme, lines: Sequence[ResultLine]) -> Figure:
    """Box AP by epoch, and beside it that of the test set."""
    below = "Validation during training, means of as many seeds as an encoding has dots, and one test in the end"
    free = create_figure_page(7.4, 4.2, look, title="Boxes of pedestrians", below=below)
    left, right = free.figure.subplots(1, 2, width_ratios=(5, 3))
    _curves(left, lines, look)
    _dots(right, lines, look)
    for axes, title in ((left, "validation"), (right, "test, a dot for each seed")):
        axes.set_title(title, color=look.ink, fontsize=9, loc="left")
        style_axes(axes, look)
    return free.figure


def curves(lines: Sequence[ResultLine], name: str) -> dict[int, dict[int, float]]:
    """Box AP of an encoding on the validation set in points, by epoch and seed; the last epoch is always validated."""
    found: dict[int, dict[int, float]] = {}
    for line in (line for line in lines if line["name"] == name):
        for i, value in enumerate(line["box_curve"], 1):
            epoch = min(i * line["settings"]["every"], line["epochs"])
            found.setdefault(epoch, {})[line["seed"]] = 100 * value
    return dict(sorted(found.items()))


def _curves(axes: Axes, lines: Sequence[ResultLine], look: FigureTheme) -> None:
    for name in DRAWN:
        values = curves(lines, name)
        axes.plot(list(values), study_figures.means(values), label=name, **study_figures.style(name, look))
    axes.set(xlabel="epoch", ylabel="box AP, points")
    axes.legend(loc="lower right", **get_legend_style(look))


def _dots(axes: Axes, lines: Sequence[ResultLine], look: FigureTheme) -> None:
    values = studied.by_name(lines, studied.points("box_ap"))
    for row, name in enumerate(DRAWN):
        some = list(values.get(name, {}).values())
        axes.plot(some, [row] * len(some), "o", color=study_figures.style(name, look)["color"], markersize=5, alpha=0.8)
    axes.set(xlabel="box AP, points", yticks=range(len(DRAWN)), yticklabels=DRAWN, ylim=(len(DRAWN) - 0.5, -0.5))
    axes.grid(axis="y", color=look.line, linewidth=0.6)
    axes.set_axisbelow(True)

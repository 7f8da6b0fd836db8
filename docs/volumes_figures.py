"""The figure of the study of volumes: accuracy on coarser and finer grids than that of training."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import studied
import study_figures
from ropewalk.lab.figures.figure_layout import create_figure_page, get_legend_style, style_axes
from ropewalk.lab.figures.theme import FigureTheme
from ropewalk.lab.probes.resolution import RESOLUTION_MODES
from ropewalk.lab.studies import ALL_STUDIES
from studied import ResultLine

FIGURES = {"grids": "Accuracy on coarser and finer grids than that of training, in two ways of placing the patches"}
DRAWN = ALL_STUDIES["volumes"].parts["half"].encodings
TRAINED = 15
"""Voxels a side in training."""
APART = 0.12
"""Voxels between the bars of two encodings on one grid, which would hide each other."""


def draw(folder: Path, lines: Sequence[ResultLine]) -> None:
    """The figure, light and dark, into the folder's images; none before the runs that it shows are made."""
    study_figures.write(folder, "volumes", {"grids": grids}, studied.of("half", lines))


def grids(look: FigureTheme, lines: Sequence[ResultLine]) -> Figure:
    """Accuracy by the fineness of the grid, in both ways to place its patches."""
    below = f"Validation accuracy after training at {TRAINED}³; bars are from the lowest to the highest seed"
    note = (
        "Lines are drawn a little beside each other, so that no bar hides another. Left, a learned table ends with its grid."
    )
    free = create_figure_page(7.4, 4.2, look, title="Coarser and finer grids", below=below, note=note)
    both = free.figure.subplots(1, 2, sharey=True)
    for axes, mode in zip(both, RESOLUTION_MODES, strict=True):
        axes.axvline(TRAINED, color=look.line, linewidth=1, zorder=0)
        _lines(axes, lines, mode, look)
        axes.set_title(mode, color=look.ink, fontsize=9, loc="left")
        style_axes(axes, look)
    both[0].set_ylabel("accuracy, %")
    both[1].legend(loc="upper left", bbox_to_anchor=(1, 1), **get_legend_style(look))
    return free.figure


def _lines(axes: Axes, lines: Sequence[ResultLine], mode: str, look: FigureTheme) -> None:
    values = {name: study_figures.accuracies(lines, name, mode) for name in DRAWN}
    for i, (name, each) in enumerate(values.items()):
        study_figures.bars(axes, each, name, look, aside=APART * (i - (len(DRAWN) - 1) / 2))
    axes.set(xlabel="voxels a side", xticks=sorted({side for each in values.values() for side in each}))

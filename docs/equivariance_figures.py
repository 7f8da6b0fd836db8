"""Figures of the study of equivariance, in the manner of those of arXiv 2511.08368."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import study_figures
from ropewalk.lab.figures.figure_layout import create_figure_page, get_legend_style, style_axes
from ropewalk.lab.figures.theme import FigureTheme
from ropewalk.lab.probes.resolution import RESOLUTION_MODES
from studied import ResultLine
from study_figures import BySeed, accuracies, bars

FIGURES = {
    "sizes": "Accuracy at other image sizes, in two ways of placing the patches, and the same less that of axial RoPE",
    "frequencies": "The spread of learned frequencies in each layer, for four encodings",
}
DRAWN = ("none", "learned-ape", "axial", "mixed", "spherical", "spherical-symmetric", "liere-8", "comrope-ld-8")
BASE = "axial"
LEARNED = ("learned-axial", "mixed", "learned-spherical", "comrope-ld-8")
NEAR = 12
"""Points above and below the base that are shown; what is farther off is seen above."""


def draw(folder: Path, lines: Sequence[ResultLine]) -> None:
    """Both figures, light and dark, into the folder's images; none before the runs that they show are made."""
    some = [line for line in lines if line["part"] == "main"]
    study_figures.write(folder, "equivariance", {"sizes": sizes, "frequencies": frequencies}, some)


def sizes(look: FigureTheme, lines: Sequence[ResultLine]) -> Figure:
    """Accuracy by the size of images, in both ways to place their patches; below, what is above or below axial RoPE."""
    below = "Validation accuracy at other sizes than that of training; bars are from the lowest to the highest seed"
    note = f"Below, what is more than {NEAR} points from {BASE} is cut off. Left, a learned table ends with its grid."
    free = create_figure_page(7.4, 5.6, look, title="Images of other sizes", below=below, note=note)
    rows = free.figure.subplots(2, 2, sharey="row", sharex=True)
    for column, mode in enumerate(RESOLUTION_MODES):
        base = accuracies(lines, BASE, mode)
        for name in DRAWN:
            own = accuracies(lines, name, mode)
            bars(rows[0][column], own, name, look)
            bars(rows[1][column], less(own, base), name, look)
        rows[0][column].set_title(mode, color=look.ink, fontsize=9, loc="left")
        rows[1][column].set(xlabel="pixels a side", ylim=(-NEAR, NEAR))
    rows[0][0].set_ylabel("accuracy, %")
    rows[1][0].set_ylabel(f"above {BASE}, points")
    for axes in rows.flat:
        style_axes(axes, look)
    rows[0][1].legend(loc="upper left", bbox_to_anchor=(1, 1), **get_legend_style(look))
    return free.figure


def less(own: BySeed, base: BySeed) -> dict[int, dict[int, float]]:
    """Differences, seed by seed, at sizes and with seeds that both have."""
    found = {
        side: {seed: value - base[side][seed] for seed, value in each.items() if seed in base[side]}
        for side, each in own.items()
        if side in base
    }
    return {side: each for side, each in found.items() if each}


def frequencies(look: FigureTheme, lines: Sequence[ResultLine]) -> Figure:
    """The spread of frequencies of each layer: quarters and middle of all pairs or triplets of one seed."""
    below = "Radians across the image of all pairs or triplets of a layer after training: middle half and median, first seed"
    free = create_figure_page(7.4, 2.6, look, title="What layers learn", below=below)
    for axes, name in zip(free.figure.subplots(1, len(LEARNED), sharey=True), LEARNED, strict=True):
        for line in (line for line in lines if line["name"] == name and line["seed"] == 0):
            _spread(axes, line["probes"].get("frequencies", []), look)
        axes.set_title(name, color=look.ink, fontsize=9, loc="left")
        axes.set(xlabel="layer", ylabel="radians" if name == LEARNED[0] else "")
        style_axes(axes, look)
    return free.figure


def _spread(axes: Axes, rows: Sequence[Mapping[str, Any]], look: FigureTheme) -> None:
    ordered = [sorted(row["radians"]) for row in rows]
    quarter, half, three = ([each[int(share * (len(each) - 1))] for each in ordered] for share in (0.25, 0.5, 0.75))
    layers = [row["layer"] + 1 for row in rows]
    axes.fill_between(layers, quarter, three, color=look.get_axis_color("row"), alpha=0.3, linewidth=0)
    axes.plot(layers, half, color=look.get_axis_color("row"), linewidth=1.7)

"""Figures of the study of equivariance, in the manner of those of arXiv 2511.08368."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropewalk.lab.plots import THEMES
from ropewalk.lab.plots.page import legend_style, page, plain
from ropewalk.lab.plots.theme import Theme
from ropewalk.lab.report.styles import PALETTE, PLAIN
from ropewalk.lab.studies.claims import Line

FIGURES = {
    "sizes": "Accuracy at other image sizes, in two ways of placing the patches, and the same less that of axial RoPE",
    "frequencies": "The spread of learned frequencies in each layer, for four encodings",
}
DRAWN = ("none", "learned-ape", "axial", "mixed", "spherical", "spherical-symmetric", "liere-8", "comrope-ld-8")
BASE = "axial"
LEARNED = ("learned-axial", "mixed", "learned-spherical", "comrope-ld-8")
STYLES = ("-", "--", "-.", ":")
NEAR = 12
"""Points above and below the base that are shown; what is farther off is seen above."""


def draw(folder: Path, lines: Sequence[Line]) -> None:
    """Both figures, light and dark, into the folder's images; none before the runs that they show are made."""
    some = [line for line in lines if line["part"] == "main"]
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for theme, look in THEMES.items() if some else ():
        sizes(look, some).savefig(folder / "images" / f"equivariance-sizes-{theme}.png", dpi=160)
        frequencies(look, some).savefig(folder / "images" / f"equivariance-frequencies-{theme}.png", dpi=160)


def sizes(look: Theme, lines: Sequence[Line]) -> Figure:
    """Accuracy by the size of images, in both ways to place their patches; below, what is above or below axial RoPE."""
    below = "Validation accuracy at other sizes than that of training; bars are from the lowest to the highest seed"
    free = page(7.4, 5.6, look, title="Images of other sizes", below=below)
    rows = free.figure.subplots(2, 2, sharey="row", sharex=True)
    for column, mode in enumerate(("extrapolate", "rescale")):
        base = accuracies(lines, BASE, mode)
        for i, name in enumerate(DRAWN):
            own, style = accuracies(lines, name, mode), _style(i, look)
            _bars(rows[0][column], own, name, style)
            _bars(rows[1][column], less(own, base), name, style)
        rows[0][column].set_title(mode, color=look.ink, fontsize=9, loc="left")
        rows[1][column].set(xlabel="pixels a side", ylim=(-NEAR, NEAR))
    rows[0][0].set_ylabel("accuracy, %")
    rows[1][0].set_ylabel(f"above {BASE}, points")
    for axes in rows.flat:
        plain(axes, look)
    rows[0][1].legend(loc="upper left", bbox_to_anchor=(1, 1), **legend_style(look))
    return free.figure


def accuracies(lines: Sequence[Line], name: str, mode: str) -> dict[int, dict[int, float]]:
    """Of an encoding in per cent, by the side of images and by seed."""
    found: dict[int, dict[int, float]] = {}
    for line in (line for line in lines if line["name"] == name):
        for row in (row for row in line["probes"].get("resolution", []) if row["mode"] == mode and "accuracy" in row):
            found.setdefault(row["size"][0], {})[line["seed"]] = 100 * row["accuracy"]
    return found


def less(own: Mapping[int, Mapping[int, float]], base: Mapping[int, Mapping[int, float]]) -> dict[int, dict[int, float]]:
    """Differences, seed by seed, at sizes and with seeds that both have."""
    found = {
        side: {seed: value - base[side][seed] for seed, value in each.items() if seed in base[side]}
        for side, each in own.items()
        if side in base
    }
    return {side: each for side, each in found.items() if each}


def _bars(axes: Axes, values: Mapping[int, Mapping[int, float]], name: str, style: dict[str, Any]) -> None:
    if not values:
        return
    each = [list(some.values()) for some in values.values()]
    middle = [math.fsum(some) / len(some) for some in each]
    ends = [[m - min(some), max(some) - m] for m, some in zip(middle, each, strict=True)]
    axes.errorbar(list(values), middle, yerr=list(zip(*ends, strict=True)), label=name, capsize=2, elinewidth=0.8, **style)


def frequencies(look: Theme, lines: Sequence[Line]) -> Figure:
    """The spread of frequencies of each layer: quarters and middle of all planes of one seed."""
    below = "Radians across the image of all planes of a layer after training: middle half and median, first seed"
    free = page(7.4, 2.6, look, title="What layers learn", below=below)
    for axes, name in zip(free.figure.subplots(1, len(LEARNED), sharey=True), LEARNED, strict=True):
        for line in (line for line in lines if line["name"] == name and line["seed"] == 0):
            _spread(axes, line["probes"].get("frequencies", []), look)
        axes.set_title(name, color=look.ink, fontsize=9, loc="left")
        axes.set(xlabel="layer", ylabel="radians" if name == LEARNED[0] else "")
        plain(axes, look)
    return free.figure


def _spread(axes: Axes, rows: Sequence[Mapping[str, Any]], look: Theme) -> None:
    ordered = [sorted(row["radians"]) for row in rows]
    quarter, half, three = ([each[int(share * (len(each) - 1))] for each in ordered] for share in (0.25, 0.5, 0.75))
    layers = [row["layer"] + 1 for row in rows]
    axes.fill_between(layers, quarter, three, color=look.of_axis("row"), alpha=0.3, linewidth=0)
    axes.plot(layers, half, color=look.of_axis("row"), linewidth=1.7)


def _style(i: int, look: Theme) -> dict[str, Any]:
    pair = PLAIN if i == 0 else PALETTE[(i - 1) % len(PALETTE)]
    return {"color": pair[look is THEMES["dark"]], "linestyle": STYLES[i % len(STYLES)], "linewidth": 1.6}

"""What figures of studies have in common: numbers by size and seed, one look for each encoding, files for both themes."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropewalk.lab.figures.theme import FIGURE_THEMES, FigureTheme
from ropewalk.lab.report.theme import BASELINE_COLORS, ENCODING_PALETTE
from studied import ResultLine

NAMES = ("none", "learned-ape", "axial", "mixed", "spherical", "spherical-symmetric", "liere-8", "comrope-ld-8", "mrope")
"""Encodings that are drawn; the place of one here decides how it looks, in the figures of all studies."""
STYLES = ("-", "--", "-.", ":")
BySeed = Mapping[int, Mapping[int, float]]
"""Numbers of an encoding by size, or whatever else lies on the axis, and by seed."""


def write(
    folder: Path,
    study: str,
    figures: Mapping[str, Callable[[FigureTheme, Sequence[ResultLine]], Figure]],
    lines: Sequence[ResultLine],
) -> None:
    """Figures of these lines, light and dark, into the folder's images; none where there are no lines."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for theme, look in FIGURE_THEMES.items() if lines else ():
        for name, figure in figures.items():
            figure(look, lines).savefig(folder / "images" / f"{study}-{name}-{theme}.png", dpi=160)


def style(name: str, look: FigureTheme) -> dict[str, Any]:
    """The line of an encoding: its colour on this paper, and its dashes."""
    i = NAMES.index(name)
    pair = BASELINE_COLORS if i == 0 else ENCODING_PALETTE[(i - 1) % len(ENCODING_PALETTE)]
    return {"color": pair[look is FIGURE_THEMES["dark"]], "linestyle": STYLES[i % len(STYLES)], "linewidth": 1.6}


def accuracies(lines: Sequence[ResultLine], name: str, mode: str) -> dict[int, dict[int, float]]:
    """Of an encoding in per cent, by the side of images or volumes and by seed."""
    found: dict[int, dict[int, float]] = {}
    for line in (line for line in lines if line["name"] == name):
        for row in (row for row in line["probes"].get("resolution", []) if row["mode"] == mode and "accuracy" in row):
            found.setdefault(row["size"][0], {})[line["seed"]] = 100 * row["accuracy"]
    return dict(sorted(found.items()))


def means(values: BySeed) -> list[float]:
    """Over seeds."""
    return [math.fsum(each.values()) / len(each) for each in values.values()]


def bars(axes: Axes, values: BySeed, name: str, look: FigureTheme, *, aside: float = 0.0) -> None:
    """The line of an encoding through the means, with bars from the lowest to the highest seed, so far to the right."""
    if not values:
        return
    middle = means(values)
    ends = [[m - min(each.values()), max(each.values()) - m] for m, each in zip(middle, values.values(), strict=True)]
    places, whole = [size + aside for size in values], list(zip(*ends, strict=True))
    axes.errorbar(places, middle, yerr=whole, label=name, capsize=2, elinewidth=0.8, **style(name, look))

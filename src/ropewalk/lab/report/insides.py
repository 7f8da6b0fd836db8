"""Pictures of what was learned: frequencies of layers, and where heads look."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from ropewalk.lab.report.panels import WIDTH, canvas
from ropewalk.lab.report.series import thinned
from ropewalk.lab.report.styles import LIGHT, Style

GLOW = "#d9570c"
"""The colour of weights, more or less of it: it can be seen on light and on dark paper."""


def spectra(layers: Mapping[int, Sequence[float]], style: Style, title: str, *, reach: float) -> Figure:
    """A row of ticks for each layer: how far its planes turn across the image; the median has a mark."""
    figure, axes = canvas(title, 0.9 + max(0.22 * len(layers), 0.5))
    for layer, radians in layers.items():
        some = thinned(radians)
        axes.plot(some, [layer + 1] * len(some), "|", color=style.colour, alpha=0.55, markersize=10)
        axes.plot(radians[len(radians) // 2], layer + 1, style.mark, color=style.colour, markersize=5)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xlim(0, reach)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(max(layers) + 1.6, min(layers) + 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="radians across the image", ylabel="layer")
    return figure


def heads(pictures: Mapping[int, NDArray[np.float64]], title: str) -> Figure:
    """Attention weights (heads h w), a row for each layer, each from nothing to its highest; the query has a cross."""
    columns = max(4, *(len(weights) for weights in pictures.values()))
    height = 0.45 + len(pictures) * (WIDTH - 0.3) / columns
    figure, grid = canvas(title, height, nrows=len(pictures), ncols=columns, squeeze=False)
    for line, (layer, weights) in zip(grid, pictures.items(), strict=True):
        for axes in line:
            axes.set(xticks=[], yticks=[])
            axes.spines[["left", "bottom"]].set_visible(False)
        for axes, one in zip(line, weights, strict=False):
            colour = np.broadcast_to(to_rgba(GLOW), (*one.shape, 4)).copy()
            colour[..., 3] = one / max(one.max(), 1e-12)
            axes.imshow(colour, interpolation="nearest")
            axes.plot(one.shape[1] // 2, one.shape[0] // 2, "+", color=LIGHT.ink, markersize=5)
        line[0].set_ylabel(f"layer {layer + 1}")
    return figure

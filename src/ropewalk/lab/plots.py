"""Figures: data in, `matplotlib.figure.Figure` out, no global state."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from ropewalk.encoding import Encoding, one_of
from ropewalk.lab.patterns import Panel, panels


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of a figure: background, words, lesser words, and a scale from the lowest over zero to the highest."""

    paper: str
    ink: str
    faint: str
    scale: tuple[str, ...]

    def colours(self) -> LinearSegmentedColormap:
        """The scale as a colour map: an odd number of steps, so that zero has one of its own."""
        return LinearSegmentedColormap.from_list("scores", self.scale, N=127)


THEMES = {
    "light": Theme(
        paper="#ffffff",
        ink="#1f2328",
        faint="#59636e",
        scale=("#08306b", "#2f7fc1", "#a9d0ea", "#ffffff", "#fbc69c", "#dd6b20", "#7f2704"),
    ),
    "dark": Theme(
        paper="#0d1117",
        ink="#e6edf3",
        faint="#9198a1",
        scale=("#c6ecff", "#4aa8e8", "#17507f", "#0d1117", "#7f3a12", "#f08a3c", "#ffe3c2"),
    ),
}


def attention_patterns(
    encodings: Mapping[str, Encoding],
    *,
    sizes: tuple[int, int] = (48, 64),
    groups: int = 3,
    heads: int = 2,
    seed: int = 0,
    theme: str = "light",
) -> Figure:
    """Scores of a random query in the middle of an image with a random key, which visits every place of the image.

    A row for each encoding, beside its label: single groups of channels (pairs, triplets, blocks) of the first head, then
    whole heads. An encoding without groups shows more heads in their place. Each picture has a scale of its own, symmetric
    about zero; a cross marks the query. `sizes` is how finely the image is sampled, rows by columns.
    """
    colours = THEMES[one_of("theme", theme, THEMES)]
    grid = _page(len(encodings), groups, heads, sizes[0] / sizes[1], colours)
    for row, (label, encoding) in enumerate(encodings.items()):
        drawn = panels(encoding, sizes=sizes, groups=groups, heads=heads, seed=seed)
        for column, panel in enumerate(drawn):
            axes = grid.figure.add_subplot(grid[row, column if column < groups else column + 1])
            _draw(axes, panel, colours)
        _beside(grid, row, label, colours)
    return grid.figure


def _page(rows: int, groups: int, heads: int, aspect: float, theme: Theme) -> GridSpec:
    """An empty page, in inches: room for labels at the left, headings above, the key below, a gap before whole heads."""
    width, gap, left, right, above, below = 1.5, 0.27, 1.35, 0.12, 0.52, 0.62
    columns = groups + heads
    across = left + width * (1.07 * columns + 0.14) + right
    down = above + rows * (width * aspect + gap) - gap + below
    figure = Figure(figsize=(across, down), facecolor=theme.paper)
    ratios = [1.0] * groups + [0.07] + [1.0] * heads
    edges = {"left": left / across, "right": 1 - right / across, "top": 1 - above / down, "bottom": below / down}
    grid = GridSpec(rows, columns + 1, figure, width_ratios=ratios, wspace=0.08, hspace=gap / (width * aspect), **edges)
    for part, heading in ((grid[0, :groups], "single groups of channels"), (grid[0, groups + 1 :], "whole heads")):
        middle = sum(part.get_position(figure).intervalx) / 2
        figure.text(middle, 1 - 0.2 / down, heading, ha="center", va="center", color=theme.ink, fontsize=11)
    _key(figure, across, down, theme)
    return grid


def _key(figure: Figure, across: float, down: float, theme: Theme) -> None:
    axes = figure.add_axes((1.35 / across, 0.34 / down, 1.5 / across, 0.1 / down))
    scale = ScalarMappable(Normalize(-1, 1), theme.colours())
    bar = figure.colorbar(scale, cax=axes, orientation="horizontal", ticks=[-1, 0, 1])
    bar.ax.set_xticklabels(["−", "0", "+"])
    bar.ax.tick_params(length=0, pad=3, colors=theme.faint, labelsize=9)
    bar.outline.set_visible(False)
    words = "score of one query (+, in the middle) with one key, wherever the key stands; each picture on its own scale"
    figure.text(3.0 / across, 0.39 / down, words, va="center", color=theme.faint, fontsize=9)


def _beside(grid: GridSpec, row: int, label: str, theme: Theme) -> None:
    place = grid[row, 0].get_position(grid.figure)
    figure = grid.figure
    figure.text(place.x0 - 0.13 / figure.get_figwidth(), sum(place.intervaly) / 2, label, ha="right", va="center", color=theme.ink, fontsize=12)


def _draw(axes: Axes, panel: Panel, theme: Theme) -> None:
    rows, columns = panel.scores.shape
    limit = max(panel.scores.abs().max().item(), 1e-9)
    norm = Normalize(-limit, limit)
    axes.imshow(panel.scores.numpy(), cmap=theme.colours(), norm=norm, interpolation="bicubic", interpolation_stage="data")
    axes.plot((columns - 1) / 2, (rows - 1) / 2, "+", color=theme.ink, markersize=5, markeredgewidth=0.9)
    axes.set_title(panel.title, color=theme.faint, fontsize=8.5, pad=3)
    axes.set_axis_off()

"""Figures: data in, `matplotlib.figure.Figure` out, no global state."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec, SubplotSpec
from matplotlib.patheffects import withStroke

from ropewalk.encoding import Encoding, one_of, positive
from ropewalk.lab.patterns import Panel, patterns


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
    whole heads. Each picture has a scale of its own, symmetric about zero, and a cross where the query stands. `sizes` is
    how finely the image is sampled, rows by columns.
    """
    look = THEMES[one_of("theme", theme, THEMES)]
    if not encodings:
        raise ValueError("attention patterns want at least one encoding, got none")
    figure, page = _page(len(encodings), positive("groups", groups), positive("heads", heads), sizes[0] / sizes[1], look)
    for row, (label, encoding) in enumerate(encodings.items()):
        drawn = patterns(encoding, sizes=sizes, groups=groups, heads=heads, seed=seed)
        _write(figure, page[row, 0], label, look.ink, side="left", size=12)
        if not drawn.groups:
            _write(figure, page[row, :groups], "turns no channels", look.faint, side="middle", size=9)
        for first, panels in ((0, drawn.groups), (groups + 1, drawn.heads)):
            for column, panel in enumerate(panels, start=first):
                _draw(figure.add_subplot(page[row, column]), panel, look)
    return figure


def _page(rows: int, groups: int, heads: int, aspect: float, look: Theme) -> tuple[Figure, GridSpec]:
    """Places for pictures, laid out in inches: labels at the left, headings above, the key below, a gap before heads."""
    width, between, left, right, above, below = 1.5, 0.27, 1.35, 0.12, 0.52, 0.62
    height = width * aspect
    across = left + width * (1.08 * (groups + heads) + 0.15) + right
    down = above + rows * (height + between) - between + below
    figure = Figure(figsize=(across, down), facecolor=look.paper)
    edges = {"left": left / across, "right": 1 - right / across, "top": 1 - above / down, "bottom": below / down}
    ratios = [1.0] * groups + [0.07] + [1.0] * heads
    page = GridSpec(rows, len(ratios), figure, width_ratios=ratios, wspace=0.08, hspace=between / height, **edges)
    _write(figure, page[0, :groups], "single groups of channels", look.ink, side="top", size=11)
    _write(figure, page[0, groups + 1 :], "whole heads", look.ink, side="top", size=11)
    _key(figure.add_axes((left / across, 0.34 / down, width / across, 0.1 / down)), look)
    return figure, page


def _key(axes: Axes, look: Theme) -> None:
    axes.imshow([[i / 63 - 1 for i in range(127)]], cmap=look.colours(), aspect="auto", extent=(-1, 1, 0, 1))
    axes.set_frame_on(False)
    axes.set_yticks([])
    axes.set_xticks([-1, 0, 1], ["low", "0", "high"], color=look.faint, fontsize=9)
    axes.tick_params(length=0, pad=3)
    words = "score of one query (at the cross) with one key, wherever the key stands; each picture has its own scale"
    axes.annotate(words, (1, 0.5), (16, 0), "axes fraction", "offset points", va="center", color=look.faint, fontsize=9)


def _write(figure: Figure, part: SubplotSpec, words: str, colour: str, *, side: str, size: float) -> None:
    """Words at the left of a part of the page, on top of it or in its middle."""
    place = part.get_position(figure)
    x, y = (place.x0 + place.x1) / 2, (place.y0 + place.y1) / 2
    if side == "left":
        x = place.x0 - 0.13 / figure.get_figwidth()
    elif side == "top":
        y = place.y1 + 0.32 / figure.get_figheight()
    figure.text(x, y, words, va="center", ha="right" if side == "left" else "center", color=colour, fontsize=size)


def _draw(axes: Axes, panel: Panel, look: Theme) -> None:
    rows, columns = panel.scores.shape
    limit = max(panel.scores.abs().max().item(), 1e-9)
    norm = Normalize(-limit, limit)
    axes.imshow(panel.scores.numpy(), cmap=look.colours(), norm=norm, interpolation="bicubic", interpolation_stage="data")
    halo = [withStroke(linewidth=2.5, foreground=look.paper)]
    axes.plot((columns - 1) / 2, (rows - 1) / 2, "+", color=look.ink, markersize=5, markeredgewidth=1, path_effects=halo)
    axes.set_title(panel.title, color=look.faint, fontsize=8.5, pad=3)
    axes.set_axis_off()

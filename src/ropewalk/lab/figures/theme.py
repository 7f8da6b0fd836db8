"""The colours of figures, light and dark."""

from dataclasses import dataclass

import matplotlib
from matplotlib.colors import LinearSegmentedColormap, to_hex

from ropewalk.arguments import one_of
from ropewalk.lab.inspect.terminal_sketch import COLOR_SCALES


@dataclass(frozen=True, kw_only=True)
class FigureTheme:
    """Colours of a figure: background, text, secondary text, lines, a scale from the lowest value over zero to the highest,
    one colour for each axis by name, and the part of a colour map from which heads have their colours."""

    paper: str
    ink: str
    faint: str
    line: str
    scale: tuple[str, ...]
    axis: dict[str, str]
    heads: tuple[float, float]

    def colours(self) -> LinearSegmentedColormap:
        """The scale as a colour map: an odd number of steps, so that zero has one of its own."""
        return LinearSegmentedColormap.from_list("scores", self.scale, N=127)

    def get_axis_color(self, name: str) -> str:
        """The colour of an axis; those without a name of their own take turns."""
        others = list(self.axis.values())
        return self.axis.get(name) or others[sum(map(ord, name)) % len(others)]

    def get_head_color(self, head: int, heads: int) -> str:
        """The colour of a head among so many."""
        low, high = self.heads
        return to_hex(matplotlib.colormaps["plasma"](low + (high - low) * head / max(heads - 1, 1)))


FIGURE_THEMES = {
    "light": FigureTheme(
        paper="#ffffff",
        scale=COLOR_SCALES["light"],
        ink="#1f2328",
        faint="#59636e",
        line="#d1d9e0",
        axis={"row": "#0b6bcb", "column": "#d9570c", "frame": "#1f883d", "position": "#8250df"},
        heads=(0.0, 0.85),
    ),
    "dark": FigureTheme(
        paper="#0d1117",
        scale=COLOR_SCALES["dark"],
        ink="#e6edf3",
        faint="#9198a1",
        line="#30363d",
        axis={"row": "#58a6ff", "column": "#f0883e", "frame": "#3fb950", "position": "#a371f7"},
        heads=(0.4, 1.0),
    ),
}


def get_figure_theme(theme: str) -> FigureTheme:
    """The theme of that name."""
    return FIGURE_THEMES[one_of("theme", theme, FIGURE_THEMES)]

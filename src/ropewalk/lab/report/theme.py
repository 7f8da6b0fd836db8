"""Colors, markers and line styles: each encoding has the same ones in every figure and table of a page.

Figures are drawn in the light theme. In the page each of its colors is a CSS variable, with another value where the reader's
screen is dark. Colors have a contrast of at least 3 to the background in both themes.
"""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ropewalk.lab.figures.theme import FIGURE_THEMES

LIGHT_THEME, DARK_THEME = FIGURE_THEMES["light"], FIGURE_THEMES["dark"]
EXTRA_COLORS = (
    ("#bf3989", "#f778ba"),
    ("#1b7c83", "#39c5cf"),
    ("#9a6700", "#d29922"),
    ("#cf222e", "#ff7b72"),
    ("#57606a", "#b1bac4"),
)
ENCODING_PALETTE = (*zip(LIGHT_THEME.axis.values(), DARK_THEME.axis.values(), strict=True), *EXTRA_COLORS[:-1])
"""Pairs of colors, in the light and the dark theme."""
BASELINE_COLORS = EXTRA_COLORS[-1]
MARKER_SHAPES = {
    "o": "<circle cx='8' cy='8' r='4.5'/>",
    "s": "<rect x='4' y='4' width='8' height='8'/>",
    "^": "<path d='M8 3 13 12H3z'/>",
    "D": "<path d='M8 2.5 13.5 8 8 13.5 2.5 8z'/>",
    "v": "<path d='M8 13 3 4h10z'/>",
}
"""Matplotlib's markers as SVG, in a square of 16."""
LINE_DASHES = {"-": "none", "--": "6 3", ":": "2 3", "-.": "7 3 2 3"}
"""Matplotlib's line styles as SVG dash arrays."""


class EncodingStyle(NamedTuple):
    """How an encoding is drawn: its color in the light theme, the CSS variable of it, marker and line style."""

    colour: str
    variable: str
    mark: str
    dash: str


StyleMap = Mapping[str, EncodingStyle]


def assign_styles(labels: Collection[str], baseline: str) -> dict[str, EncodingStyle]:
    """Assign a style to each label. The baseline is grey and dashed; a repeated color has another marker and line."""
    others = sorted(set(labels) - {baseline})
    markers, colors = list(MARKER_SHAPES), len(ENCODING_PALETTE)
    found = {
        label: EncodingStyle(
            ENCODING_PALETTE[i % colors][0],
            f"--c{i % colors}",
            markers[(i + i // colors) % len(markers)],
            ("-", ":", "-.")[i // colors % 3],
        )
        for i, label in enumerate(others)
    }
    return {baseline: EncodingStyle(BASELINE_COLORS[0], "--base", "o", "--"), **found} if baseline in labels else found


def format_css_variables(*, dark: bool) -> str:
    """Format all colors of a theme as CSS variables."""
    look = DARK_THEME if dark else LIGHT_THEME
    named = {f"--{name}": getattr(look, name) for name in ("paper", "ink", "faint", "line")}
    named |= {f"--c{i}": pair[dark] for i, pair in enumerate(ENCODING_PALETTE)} | {"--base": BASELINE_COLORS[dark]}
    return "".join(f"{name}:{value};" for name, value in named.items())


_COLOR_VARIABLES = {
    **{getattr(LIGHT_THEME, name): f"--{name}" for name in ("paper", "ink", "faint", "line")},
    **{pair[0]: f"--c{i}" for i, pair in enumerate(ENCODING_PALETTE)},
    BASELINE_COLORS[0]: "--base",
}


def use_css_variables(svg: str) -> str:
    """Replace the colors of the light theme by CSS variables."""
    return re.sub(
        r"(fill|stroke): (#[0-9a-f]{6})\b",
        lambda found: f"{found[1]}: var({_COLOR_VARIABLES[found[2]]})" if found[2] in _COLOR_VARIABLES else found[0],
        svg,
    )

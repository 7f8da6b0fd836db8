"""One colour and one mark for each encoding, the same in all figures of a page.

Figures are drawn in the light theme. On the page every colour is a variable that has another value where the reader's
screen is dark; colours are chosen to have a contrast of at least 3 to the paper in both.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

from ropewalk.lab.plots.theme import THEMES

LIGHT, DARK = THEMES["light"], THEMES["dark"]
OTHERS = (
    ("#bf3989", "#f778ba"),
    ("#1b7c83", "#39c5cf"),
    ("#9a6700", "#d29922"),
    ("#cf222e", "#ff7b72"),
    ("#57606a", "#b1bac4"),
)
PALETTE = (*zip(LIGHT.axis.values(), DARK.axis.values(), strict=True), *OTHERS[:-1])
"""Pairs of colours on light and on dark paper."""
PLAIN = OTHERS[-1]
"""The baseline's."""
MARKS = {
    "o": "<circle cx='8' cy='8' r='4.5'/>",
    "s": "<rect x='4' y='4' width='8' height='8'/>",
    "^": "<path d='M8 3 13 12H3z'/>",
    "D": "<path d='M8 2.5 13.5 8 8 13.5 2.5 8z'/>",
    "v": "<path d='M8 13 3 4h10z'/>",
}
"""Marks of matplotlib, and as shapes of SVG in a square of 16."""

DASHES = {"-": "none", "--": "6 3", ":": "2 3", "-.": "7 3 2 3"}
"""Lines of matplotlib, and as dashes of SVG."""


class Style(NamedTuple):
    """How an encoding is drawn: the colour on light paper, its variable, its mark, and its line."""

    colour: str
    variable: str
    mark: str
    dash: str


def styles_of(labels: Collection[str], baseline: str) -> dict[str, Style]:
    """A style for each label; the baseline's is grey and dashed, and colours that come again have another mark and line."""
    others = sorted(set(labels) - {baseline})
    marks = list(MARKS)
    found = {
        label: Style(PALETTE[i % len(PALETTE)][0], f"--c{i % len(PALETTE)}", marks[(i + i // len(PALETTE)) % 5], _dash(i))
        for i, label in enumerate(others)
    }
    return {baseline: Style(PLAIN[0], "--base", "o", "--"), **found} if baseline in labels else found


def _dash(i: int) -> str:
    return ("-", ":", "-.")[i // len(PALETTE) % 3]


def variables(dark: bool) -> str:
    """All colours as variables of CSS."""
    look = DARK if dark else LIGHT
    named = {f"--{name}": getattr(look, name) for name in ("paper", "ink", "faint", "line")}
    named |= {f"--c{i}": pair[dark] for i, pair in enumerate(PALETTE)} | {"--base": PLAIN[dark]}
    return "".join(f"{name}:{value};" for name, value in named.items())


_NAMES = {
    **{getattr(LIGHT, name): f"--{name}" for name in ("paper", "ink", "faint", "line")},
    **{pair[0]: f"--c{i}" for i, pair in enumerate(PALETTE)},
    PLAIN[0]: "--base",
}


def themed(svg: str) -> str:
    """A drawing in the light theme whose colours are variables."""
    return re.sub(
        r"(fill|stroke): (#[0-9a-f]{6})\b",
        lambda found: f"{found[1]}: var({_NAMES[found[2]]})" if found[2] in _NAMES else found[0],
        svg,
    )

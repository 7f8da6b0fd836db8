"""Attention patterns in a terminal, two pixels a character: the upper one is its text colour, the lower one its background.

The colour scales of scores, from the lowest over zero, which has the colour of the paper, to the highest, are here because
they need no matplotlib.
"""

from typing import TYPE_CHECKING

import torch.nn.functional as F

from ropewalk.encoding import Encoding
from ropewalk.lab.inspect.attention_scores import ScorePanel, compute_attention_patterns, describe_attention_patterns
from ropewalk.lab.inspect.figure_grid import resolve_grid_size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


COLOR_SCALES = {
    "light": ("#08306b", "#2f7fc1", "#a9d0ea", "#ffffff", "#fbc69c", "#dd6b20", "#7f2704"),
    "dark": ("#c6ecff", "#4aa8e8", "#17507f", "#0d1117", "#7f3a12", "#f08a3c", "#ffe3c2"),
}


def interpolate_color(value: float, scale: tuple[str, ...]) -> str:
    """The colour of a value from -1 to 1."""
    place = (value + 1) / 2 * (len(scale) - 1)
    first = min(int(place), len(scale) - 2)
    low, high = (_parse_rgb(scale[i]) for i in (first, first + 1))
    return "#" + "".join(f"{round(a + (b - a) * (place - first)):02x}" for a, b in zip(low, high, strict=True))


def _parse_rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


SKETCH_PIXELS, SKETCH_GAP, UPPER_HALF_BLOCK = 20, 3, "▀"


def can_draw_sketch(console: "Console") -> bool:
    """Whether it is a terminal with many colours and with that character. What is no terminal has no colours."""
    many = console.color_system in ("256", "truecolor") and not console.no_color
    return many and console.encoding.lower().startswith("utf")


def draw_terminal_sketch(encoding: Encoding, *, width: int) -> "Text":
    """Small pictures side by side, as many as fit into so many columns: two groups of channels at most, then heads."""
    from rich.text import Text

    size = (min(resolve_grid_size(encoding)[0], SKETCH_PIXELS),) if encoding.axes == 1 else None
    drawn = compute_attention_patterns(encoding, size=size, groups=2, heads=4)
    panels = [*drawn.groups, *drawn.heads][: max((width + SKETCH_GAP) // (SKETCH_PIXELS + SKETCH_GAP), 1)]
    rows, columns = drawn.size
    tall = max(round(SKETCH_PIXELS * rows / columns / 2), 1) * 2
    shown = Text((" " * SKETCH_GAP).join(panel.title.ljust(SKETCH_PIXELS) for panel in panels).rstrip())
    pixels = [_make_pixels(panel, (tall, SKETCH_PIXELS)) for panel in panels]
    for line in range(0, tall, 2):
        shown.append("\n")
        for place, picture in enumerate(pixels):
            shown.append(" " * SKETCH_GAP if place else "")
            for upper, lower in zip(picture[line], picture[line + 1], strict=True):
                shown.append(UPPER_HALF_BLOCK, style=f"{upper} on {lower}")
    return shown.append(f"\n{describe_attention_patterns([drawn], query='in the middle')}")


def _make_pixels(panel: ScorePanel, shape: tuple[int, int]) -> list[list[str]]:
    values = F.interpolate(panel.scores[None, None], shape, mode="area")[0, 0]
    limit = values.abs().max().item() or 1.0
    return [[interpolate_color(value, COLOR_SCALES["light"]) for value in row] for row in (values / limit).tolist()]

"""Attention patterns in a terminal: two pixels a character, the upper half's colour on the lower half's."""

from typing import TYPE_CHECKING

import torch.nn.functional as F

from ropewalk.encoding import Encoding
from ropewalk.lab.colours import SCALES, colour
from ropewalk.lab.patterns import Panel, note, patterns
from ropewalk.lab.places import size_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PIXELS, BETWEEN, HALF = 20, 3, "▀"


def can_draw(console: "Console") -> bool:
    """Whether it is a terminal with many colours and with that character. What is no terminal has no colours."""
    many = console.color_system in ("256", "truecolor") and not console.no_color
    return many and console.encoding.lower().startswith("utf")


def sketch(encoding: Encoding, *, width: int) -> "Text":
    """Small pictures side by side, as many as fit into so many columns: two groups of channels at most, then heads."""
    from rich.text import Text

    size = (min(size_of(encoding)[0], PIXELS),) if encoding.axes == 1 else None
    drawn = patterns(encoding, size=size, groups=2, heads=4)
    panels = [*drawn.groups, *drawn.heads][: max((width + BETWEEN) // (PIXELS + BETWEEN), 1)]
    rows, columns = drawn.size
    tall = max(round(PIXELS * rows / columns / 2), 1) * 2
    shown = Text((" " * BETWEEN).join(panel.title.ljust(PIXELS) for panel in panels).rstrip())
    pixels = [_pixels(panel, (tall, PIXELS)) for panel in panels]
    for line in range(0, tall, 2):
        shown.append("\n")
        for place, picture in enumerate(pixels):
            shown.append(" " * BETWEEN if place else "")
            for upper, lower in zip(picture[line], picture[line + 1], strict=True):
                shown.append(HALF, style=f"{upper} on {lower}")
    return shown.append(f"\n{note([drawn], query='in the middle')}")


def _pixels(panel: Panel, shape: tuple[int, int]) -> list[list[str]]:
    values = F.interpolate(panel.scores[None, None], shape, mode="area")[0, 0]
    limit = values.abs().max().item() or 1.0
    return [[colour(value, SCALES["light"]) for value in row] for row in (values / limit).tolist()]

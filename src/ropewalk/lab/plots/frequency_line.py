"""The frequencies of an encoding of one axis, on a line."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.lab.places import size_of
from ropewalk.lab.plots.page import page, plain, second_scale, subtitle, write
from ropewalk.lab.plots.theme import Theme
from ropewalk.lab.spectrum import spectrum

PLACES = 2048


def frequency_line(encoding: Encoding, look: Theme, size: Sequence[int] | None, layer: int) -> Figure:
    """A point for each frequency, in radians a place on a logarithmic scale, in a row for each head that has its own."""
    size = size_of(encoding, size, places=PLACES)
    found = spectrum(encoding, size, layer=layer)
    step = found.radians.flatten(1).abs() / max(size[0] - 1, 1)  # radians a place
    title, below = f"{encoding.name}: frequencies", subtitle(encoding, size, layer)
    free = page(7.0, 1.3 + 0.22 * len(step), look, title=title, below=below, note=_note(step))
    axes = free.figure.add_subplot()
    _rows(axes, step, look)
    for x, words, style in ((math.pi, "π a place", ":"), (2 * math.pi / max(size[0] - 1, 1), "a turn", "--")):
        axes.axvline(x, color=look.faint, linestyle=style, linewidth=1)
        write(axes, x, 0.25, f"{words} ", look, va="top", ha="right")
    plain(axes, look)
    second_scale(axes, "top", "period (places)", _other, _other, look)
    return free.figure


def _note(step: Tensor) -> str:
    still = int((step == 0).sum(1).max())
    words = f"{int((step > 0).sum(1).max())} frequencies a head; left of the dashed line, less than a turn in the whole text"
    return f"{words}; {still} that do not turn are left out." if still else f"{words}."


def _rows(axes: Axes, step: Tensor, look: Theme) -> None:
    heads = len(step)
    for head, frequencies in enumerate(step):
        moving = frequencies[frequencies > 0]
        style: dict[str, Any] = {"color": look.of_head(head, heads), "markersize": 11, "markeredgewidth": 1.3}
        axes.plot(moving, torch.full_like(moving, head + 1), "|", **style)
    axes.set(xscale="log", ylim=(heads + 0.8, 0.2), xlabel="frequency (radians a place)")
    axes.set_yticks(range(1, heads + 1), [f"head {i + 1}" if heads > 1 else "all heads" for i in range(heads)])


def _other(x: Any) -> Any:
    """Period from frequency and back; matplotlib asks for that of 0 too."""
    return 2 * math.pi / (x + 1e-12)

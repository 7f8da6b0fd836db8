"""How far channels turn across the image."""

import math
from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.lab.places import axis_names, size_of
from ropewalk.lab.plots.page import legend_style, page, plain, second_scale, subtitle, write
from ropewalk.lab.plots.theme import Theme, look_of
from ropewalk.lab.spectrum import Spectrum, spectrum

PLACES = 2048


def turns(encoding: Encoding, *, theme: str = "light", size: Sequence[int] | None = None, layer: int = 0) -> Figure:
    """Radians that each group of channels turns from one side of the image to the other, along each axis.

    Groups are in the order of the channels. Heads that differ are drawn over each other, the first one strongest. Below
    the line at 2π a group makes less than a turn; above the line at π a patch, it cannot be told from a slower one.
    """
    look, size = look_of(theme), size_of(encoding, size, places=PLACES)
    found = spectrum(encoding, size, layer=layer)
    whole = "the text" if encoding.axes == 1 else "the image"
    title = f"{encoding.name}: how far each {found.noun} turns across {whole}"
    below = subtitle(encoding, size, layer)
    free = page(7.0, 3.4, look, title=title, below=below, note=_note(found))
    axes = free.figure.add_subplot()
    axes.set(yscale="log", xlabel=f"{found.noun}, in the order of channels", ylabel=f"radians across {whole}")
    axes.set_xlim(0.3, found.radians.shape[1] + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    plain(axes, look)
    names = axis_names(encoding.axes)
    for axis, name in enumerate(names):
        _points(axes, found.radians[..., axis].abs(), _aside(axis, len(names)), look.of_axis(name), name)
    _lines(axes, size, look)
    second_scale(axes, "right", "turns", lambda y: y / (2 * math.pi), lambda y: y * (2 * math.pi), look)
    if len(names) > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(names), borderpad=0, **legend_style(look))
    return free.figure


def _note(found: Spectrum) -> str:
    heads, _, waves, _ = found.radians.shape
    words = [f"Each block has {waves} frequencies"] * (waves > 1)
    words += [f"Head 1 in front, {heads - 1} others behind it"] * (heads > 1)
    still = int((found.radians == 0).all(-1).all(-1)[0].sum())
    words += [f"{still} {found.noun}s of head 1 do not turn at all"] * (still > 0)
    return ". ".join(words) + "." * bool(words)


def _aside(axis: int, axes: int) -> float:
    return 0.24 * (axis - (axes - 1) / 2)


def _points(axes: Axes, radians: Tensor, aside: float, colour: str, name: str) -> None:
    """Points of one axis, (h G F), at the number of their group, a little aside of those of other axes."""
    place = torch.arange(1, radians.shape[1] + 1, dtype=torch.float64)[:, None].expand(radians.shape[1:]) + aside
    for shown, style in ((radians[1:], {"s": 7, "alpha": 0.35}), (radians[:1], {"s": 20, "label": f"along {name}s"})):
        x, y = place.expand(shown.shape).flatten(), shown.flatten()
        axes.scatter(x[y > 0].numpy(), y[y > 0].numpy(), color=colour, linewidths=0, **style)


def _lines(axes: Axes, size: Sequence[int], look: Theme) -> None:
    """Lines at one turn, and at half a turn a patch for the axes of each length; beyond them the scale goes a little on."""
    limits = {math.pi * (n - 1): _limited(size, n) for n in size if n > 1}
    low, high = axes.get_ylim()
    low, highest = min(low, 1.0), max(limits, default=1.0)
    axes.set_ylim(low, high := max(high, highest * (highest / low) ** 0.08))  # room for the words of the highest line
    marks = [(2 * math.pi, "one turn", "--"), *((y, words, ":") for y, words in limits.items())]
    steps: dict[float, int] = {}  # how far to the left the words of a line stand, so as not to meet those of a near one
    for y, words, line in marks:
        axes.axhline(y, color=look.faint, linewidth=1, linestyle=line, zorder=0)
        near = [step for other, step in steps.items() if abs(math.log(y / other)) < 0.07 * math.log(high / low)]
        steps[y] = max(near, default=-1) + 1
        place = 0.99 - min(0.28, 0.78 / len(marks)) * steps[y]
        write(axes, place, y, words, look, ha="right", va="bottom", transform=axes.get_yaxis_transform())


def _limited(size: Sequence[int], n: int) -> str:
    """What the line of axes of n patches says, by name if others are longer or shorter."""
    names = [f"{name}s" for name, m in zip(axis_names(len(size)), size, strict=True) if m == n]
    step = "place" if len(size) == 1 else "patch"
    return f"π a {step}" if len(set(size)) == 1 else f"π a step ({', '.join(names)})"

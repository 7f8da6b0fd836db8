"""Wave vectors, after Figure 1B of arXiv 2511.08368."""

import itertools
import math
from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.lab.places import axis_names, size_of
from ropewalk.lab.plots.frequency_line import frequency_line
from ropewalk.lab.plots.page import heads_legend, page, plain, subtitle, write
from ropewalk.lab.plots.theme import Theme, look_of
from ropewalk.lab.spectrum import Spectrum, spectrum

APART = (
    "Turns along different axes do not commute here: these are the frequencies of each axis alone, and they do not "
    "combine to wave vectors."
)


def frequency_plane(
    encoding: Encoding, *, theme: str = "light", size: Sequence[int] | None = None, layer: int = 0
) -> Figure:
    """How fast and in which direction channels turn: a point for each wave, in radians across the image.

    Circles hold waves of equal period. Where the axes' turns do not commute there are no wave vectors, and the frequencies
    of each axis alone lie on it. With one axis it is a line of frequencies; with more than two, a plane for each two.
    """
    look = look_of(theme)
    if encoding.axes == 1:
        return frequency_line(encoding, look, size, layer)
    size = size_of(encoding, size)
    found = spectrum(encoding, size, layer=layer)
    title = "wave vectors" if found.combined else "frequencies of each axis"
    return _planes(found, size, look, title=f"{encoding.name}: {title}", below=subtitle(encoding, size, layer))


def _planes(found: Spectrum, size: Sequence[int], look: Theme, **words: str) -> Figure:
    """A plane for each two axes, three in a row."""
    pairs = list(itertools.combinations(range(len(size)), 2))
    across = min(len(pairs), 3)
    down, side, own = -(-len(pairs) // across), 4.2 if across == 1 else 3.1, len(found.radians) > 1
    views = [_view(torch.cat(_points(found, pair))) for pair in pairs]
    tall = side * max((y[1] - y[0]) / (x[1] - x[0]) for x, y in views) + 0.3
    free = page(across * side + 0.2 + 0.8 * own, down * tall, look, note=_note(found), **words)
    for place, (pair, (x, y)) in enumerate(zip(pairs, views, strict=True), start=1):
        axes = free.figure.add_subplot(down, across, place, xlim=x, ylim=y, aspect="equal")
        _plane(axes, found, pair, size, look)
        first, second = (f"radians across all {axis_names(len(size))[axis]}s" for axis in pair)
        axes.set(xlabel=second, ylabel=first)
        plain(axes, look)
    if own:
        heads_legend(axes, look, len(found.radians))
    return free.figure


def _note(found: Spectrum) -> str:
    _, groups, waves, _ = found.radians.shape
    what = f"{groups * waves} {found.noun}s" if waves == 1 else f"{groups} blocks, {waves} waves each"
    words = f"A head has {what}; larger points hold several. Along a circle, the period is the same in all directions."
    words += " A wave and its opposite are the same: the one that goes down is shown." * (found.combined and waves > 1)
    return words if found.combined else f"{words} {APART}"


def _points(found: Spectrum, axes: tuple[int, int]) -> list[Tensor]:
    """For each head the points (n, 2) of a plane, (second, first) as x and y."""
    first, second = (found.radians[..., axis].flatten(1) for axis in axes)
    if found.combined:
        return list(torch.stack([second, first], dim=-1))
    zero = torch.zeros_like(first)
    return list(torch.cat([torch.stack([second, zero], -1), torch.stack([zero, first], -1)], dim=1))


def _view(points: Tensor) -> list[tuple[float, float]]:
    """From where to where a plane reaches, across and up: beyond the axis only if points are there."""
    most = _most(points)
    return [(-1.12 * most if low < -1e-6 * most else -0.1 * most, 1.12 * most) for low in points.amin(0).tolist()]


def _most(points: Tensor) -> float:
    """The farthest coordinate; a turn, if nothing turns."""
    return points.abs().max().item() or 2 * math.pi


def _plane(axes: Axes, found: Spectrum, pair: tuple[int, int], size: Sequence[int], look: Theme) -> None:
    heads = _points(found, pair)
    every = torch.cat(heads).double()
    most = _most(every)
    axes.axhline(0, color=look.line, linewidth=1, zorder=0)
    axes.axvline(0, color=look.line, linewidth=1, zorder=0)
    taken = _limit(axes, most, [math.pi * (size[axis] - 1) for axis in reversed(pair)], look)
    _circles(axes, most, every, taken, look)
    for head, points in enumerate(heads):
        places, counts = torch.unique((points / most * 1e5).round() * most / 1e5, dim=0, return_counts=True)
        colour, area = look.of_head(head, len(heads)), 16 * counts.clamp(max=16).sqrt()
        inside = colour if found.combined else "none"
        x, y = places.numpy().T
        axes.scatter(x, y, s=area.numpy(), facecolors=inside, edgecolors=colour, linewidths=1, alpha=0.8, zorder=3)


def _circles(axes: Axes, most: float, points: Tensor, taken: Tensor, look: Theme) -> None:
    """Circles of one, two, four, … turns across the image, the largest three that are in sight."""
    turns = [k for k in range(-30, 30) if 0.12 * most < 2.0**k * 2 * math.pi <= 1.1 * most]
    for k in turns[:-4:-1]:
        radius = 2.0**k * 2 * math.pi
        axes.add_patch(Circle((0, 0), radius, fill=False, edgecolor=look.line, linewidth=0.8, zorder=1))
        words = "1 turn" if k == 0 else f"{2**k} turns" if k > 0 else f"1/{2**-k} turn"
        place = _clear(radius, points, taken, _word(axes))
        taken = torch.cat([taken, place])
        for x, y in place.tolist():
            write(axes, x, y, words, look, ha="center", va="center", zorder=2)


def _word(axes: Axes) -> Tensor:
    """About how wide and high words are, in the units of a plane."""
    low, high = axes.get_xlim()
    return (high - low) * torch.tensor([0.3, 0.07], dtype=torch.float64)


def _clear(radius: float, points: Tensor, taken: Tensor, word: Tensor) -> Tensor:
    """Where (1, 2) on a circle, up and to the right, words have most room; (0, 2) if they would meet other words."""
    angles = torch.linspace(0.15, 0.35, 9, dtype=torch.float64) * math.pi
    places = radius * torch.stack([angles.cos(), angles.sin()], dim=-1)
    places = places[((places[:, None] - taken).abs() >= word).any(-1).all(-1)]
    room = torch.cdist(places, points).amin(1)
    return places[room.argsort(descending=True)[:1]]


def _limit(axes: Axes, most: float, limits: list[float], look: Theme) -> Tensor:
    """Beyond half a turn a patch, patches cannot tell a wave from a slower one. Returns the middle (n, 2) of its words."""
    if min(limits) > 1.1 * most:
        return torch.empty(0, 2, dtype=torch.float64)
    box = Rectangle((-limits[0], -limits[1]), 2 * limits[0], 2 * limits[1])
    box.set(fill=False, edgecolor=look.faint, linestyle=":", linewidth=1, zorder=1)
    axes.add_patch(box)
    x, y = (min(limit, 1.1 * most) for limit in limits)
    wide, high = (_word(axes) / 2).tolist()
    if y < limits[1]:
        write(axes, x, y, "π a patch", look, ha="right", va="top", rotation=90)
        return torch.tensor([[x, y - high], [x, y - wide], [x, y - 2 * wide]], dtype=torch.float64)
    write(axes, x, y, "π a patch", look, ha="right", va="bottom")
    return torch.tensor([[x - wide, y + high]], dtype=torch.float64)

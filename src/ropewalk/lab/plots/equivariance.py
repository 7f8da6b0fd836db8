"""Where in an image scores change when all tokens move."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.lab.findings import WORK, Shift, exact, moved, patches
from ropewalk.lab.places import axis_names, size_of
from ropewalk.lab.plots.page import LABEL, SMALL, page, plain, subtitle, write
from ropewalk.lab.plots.theme import Theme, look_of
from ropewalk.lab.telling import ROUNDING, number
from ropewalk.theory.commuting import turns

SIDE, BESIDE, AROUND = 2.5, 1.15, 0.75  # inches: of a map, of words and the scale at its sides, of words above and below
NONE = f"no change: below {number(ROUNDING)}"
UNIT = "change over size of a score"


class Map(NamedTuple):
    """The change of scores of queries at each place when all tokens move along an axis, and over all places."""

    axis: str
    values: Tensor
    mean: float


def equivariance(encoding: Encoding, *, theme: str = "light", size: Sequence[int] | None = None, layer: int = 0) -> Figure:
    """How much scores change when all tokens move by one patch along an axis: a map of the queries' places for each axis.

    Shown is the root mean square change of a score over that of a score, over keys everywhere, random vectors, and heads,
    on one scale for all maps. What rounding alone may have made is left blank. With one axis it is a line; of more than
    two, maps are of the last two, over all places along the others.
    """
    look, size = look_of(theme), size_of(encoding, size)
    maps, places = changes(encoding, size, layer=layer)
    words = {
        "title": f"{encoding.name}: how much scores change when all tokens move",
        "below": subtitle(encoding, size, layer),
        "note": _note(size, places),
    }
    return _line(maps[0], size[0], look, **words) if encoding.axes == 1 else _maps(maps, size, look, **words)


@torch.no_grad()
def changes(encoding: Encoding, size: Sequence[int], *, layer: int = 0) -> tuple[list[Map], tuple[int, ...]]:
    """The maps that `equivariance` draws, and how many places they have along each axis."""
    if not turns(encoding):
        raise ValueError(f"only encodings that turn channels by generators can be drawn so, got {encoding!r}")
    encoding = exact(encoding)
    shifts = [Shift(axis, 1.0, distance) for axis, distance in enumerate(patches(encoding, size))]
    change, places = moved(encoding, size, shifts, most=max(size), work=WORK // 4)
    place = change.place if encoding.layers is None else change.place[layer]
    square = place.square().mean(0).unflatten(-1, places)  # (A …)
    square = square.flatten(1, -3).mean(1) if len(places) > 2 else square
    square = square.where(square.sqrt() >= ROUNDING, 0.0)
    names = axis_names(encoding.axes)
    return [Map(name, each.sqrt(), each.mean().sqrt().item()) for name, each in zip(names, square, strict=True)], places


def _note(size: Sequence[int], places: Sequence[int]) -> str:
    """What is shown, at how many places, and over what."""
    words = (
        "Root mean square change over that of a score itself: a query at each place, keys at all of them, random vectors,"
    )
    words += " all heads."
    if tuple(places) != tuple(size):
        words += f" At {' × '.join(map(str, places))} places, evenly spread."
    if len(size) > 2:
        words += f" Over all {' and '.join(f'{name}s' for name in axis_names(len(size))[:-2])}."
    return words


def _title(axes: Axes, drawn: Map, look: Theme) -> None:
    words = f": {number(drawn.mean)}" if drawn.mean else ""
    axes.set_title(f"moved by one {drawn.axis}{words}", color=look.ink, fontsize=LABEL)


def _limit(maps: Sequence[Map]) -> float:
    return max(ROUNDING, *(drawn.values.max().item() for drawn in maps))


def _line(drawn: Map, n: int, look: Theme, **words: str) -> Figure:
    free = page(7.0, 2.6, look, **words)
    axes = free.figure.add_subplot()
    axes.plot(torch.linspace(0, n - 1, len(drawn.values)), drawn.values, color=look.of_axis(drawn.axis), linewidth=1.5)
    axes.set(xlabel=f"query's {drawn.axis}", ylabel=UNIT, ylim=(0, 1.1 * _limit([drawn])))
    axes.margins(x=0.01)
    plain(axes, look)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _title(axes, drawn, look)
    if not drawn.mean:
        axes.set_yticks([0, ROUNDING], ["0", number(ROUNDING)])
        write(axes, 0.5, 0.5, NONE, look, ha="center", va="center", transform=axes.transAxes)
    return free.figure


def _maps(maps: Sequence[Map], size: Sequence[int], look: Theme, **words: str) -> Figure:
    """Maps side by side, with one scale."""
    tall = min(max(SIDE * size[-2] / size[-1], 1.3), 1.5 * SIDE)
    free = page(len(maps) * (SIDE + 0.2) + BESIDE, tall + AROUND, look, **words)
    limit = _limit(maps)
    for i, drawn in enumerate(maps, start=1):
        axes = free.figure.add_subplot(1, len(maps), i)
        _map(axes, drawn, size, limit, look, first=i == 1)
    _key(free.figure, axes.inset_axes((1.05, 0, 0.05, 1)), limit, look)
    return free.figure


def _colours(look: Theme) -> LinearSegmentedColormap:
    """From nothing, which has the colour of the paper, to the highest."""
    return LinearSegmentedColormap.from_list("change", look.scale[len(look.scale) // 2 :], N=128)


def _key(figure: Figure, axes: Axes, limit: float, look: Theme) -> None:
    """The scale, with few numbers; its unit in words."""
    bar = figure.colorbar(ScalarMappable(Normalize(0, limit), _colours(look)), cax=axes)
    few = [tick for tick in MaxNLocator(4).tick_values(0, limit) if tick <= limit]
    ticks = few if limit > ROUNDING else [0, limit]
    bar.set_ticks(ticks, labels=[number(tick) for tick in ticks])
    bar.set_label(UNIT, color=look.faint, fontsize=SMALL)
    bar.ax.tick_params(colors=look.faint, labelsize=SMALL, length=2)
    bar.outline.set(edgecolor=look.line, linewidth=0.8)


def _map(axes: Axes, drawn: Map, size: Sequence[int], limit: float, look: Theme, *, first: bool) -> None:
    names, size = axis_names(len(size))[-2:], size[-2:]
    (top, bottom), (left, right) = (_edges(n, count) for n, count in zip(size, drawn.values.shape, strict=True))
    usual = 0.5 <= size[0] / size[1] <= 1.5
    axes.imshow(
        drawn.values.numpy(),
        cmap=_colours(look),
        norm=Normalize(0, limit),
        aspect="equal" if usual else "auto",
        interpolation="nearest",
        extent=(left, right, bottom, top),
    )
    for axis, n, label, shown in zip((axes.yaxis, axes.xaxis), size, names, (first, True), strict=True):
        axis.set_ticks(sorted({0, n - 1}) if shown else [])
        axis.set_tick_params(color=look.line, labelcolor=look.faint, labelsize=SMALL, length=2, pad=2)
        if shown:
            axis.set_label_text(f"query's {label}", color=look.faint, fontsize=SMALL)
            axis.labelpad = -4 if n > 1 else 2
    for spine in axes.spines.values():
        spine.set(color=look.line, linewidth=0.8)
    _title(axes, drawn, look)
    if not drawn.mean:
        write(axes, 0.5, 0.5, NONE, look, ha="center", va="center", transform=axes.transAxes)


def _edges(n: int, count: int) -> tuple[float, float]:
    """From where to where so many places reach that begin at the first of n patches and end at the last."""
    half = (n - 1) / (count - 1) / 2 if count > 1 else 0.5
    return -half, n - 1 + half

"""Figure of the equivariance error: how much scores change, by the position of the query, when all tokens move."""

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
from ropewalk.lab.figures.figure_layout import (
    LABEL_SIZE,
    SMALL_LABEL_SIZE,
    add_outlined_text,
    create_figure_page,
    format_figure_subtitle,
    style_axes,
)
from ropewalk.lab.figures.theme import FigureTheme, get_figure_theme
from ropewalk.lab.inspect.figure_grid import get_axis_names, resolve_grid_size
from ropewalk.lab.inspect.theory_facts import (
    MAX_SHIFT_WORK,
    SCORE_ROUNDING,
    TokenShift,
    convert_to_float64,
    format_residual,
    measure_patch_steps,
    measure_shift_change,
)
from ropewalk.theory.commuting import turns

MAP_SIDE, SCALE_SPACE, MAP_SPACE = (
    2.5,
    1.15,
    0.75,
)  # in inches: a map, its labels and color scale at the sides, its labels above and below
NO_CHANGE_TEXT = f"no change: below {format_residual(SCORE_ROUNDING)}"
CHANGE_UNIT = "change relative to the score"


class ChangeMap(NamedTuple):
    """The change of scores when all tokens move along an axis, by the position of the query; and its mean."""

    axis: str
    values: Tensor
    mean: float


def draw_equivariance(
    encoding: Encoding, *, theme: str = "light", size: Sequence[int] | None = None, layer: int = 0
) -> Figure:
    """Change of scores, by the position of the query, when all tokens move by one patch: a map for each axis of movement.

    The root mean square change of a score, divided by the root mean square score, over keys at all positions, random vectors
    and heads. All maps have one color scale, and changes within rounding error are blank. With one axis it is a line; with
    three, maps show the last two, averaged over the first.
    """
    look, size = get_figure_theme(theme), resolve_grid_size(encoding, size)
    maps, places = compute_change_maps(encoding, size, layer=layer)
    words = {
        "title": f"{encoding.name}: how much scores change when all tokens move",
        "below": format_figure_subtitle(encoding, size, layer),
        "note": _format_note(size, places),
    }
    return _draw_line(maps[0], size[0], look, **words) if encoding.axes == 1 else _draw_maps(maps, size, look, **words)


@torch.no_grad()
def compute_change_maps(
    encoding: Encoding, size: Sequence[int], *, layer: int = 0
) -> tuple[list[ChangeMap], tuple[int, ...]]:
    """The maps that `draw_equivariance` draws, and their number of positions along each axis."""
    if not turns(encoding):
        raise ValueError(
            f"the figure equivariance needs an encoding that rotates channels by generators, got {encoding.name!r}"
        )
    encoding = convert_to_float64(encoding)
    shifts = [TokenShift(axis, 1.0, distance) for axis, distance in enumerate(measure_patch_steps(encoding, size))]
    change, places = measure_shift_change(encoding, size, shifts, most=max(size), work=MAX_SHIFT_WORK // 4)
    place = change.place if encoding.layers is None else change.place[layer]
    square = place.square().mean(0).unflatten(-1, places)  # (A …)
    square = square.flatten(1, -3).mean(1) if len(places) > 2 else square
    square = square.where(square.sqrt() >= SCORE_ROUNDING, 0.0)
    names = get_axis_names(encoding.axes)
    return [
        ChangeMap(name, each.sqrt(), each.mean().sqrt().item()) for name, each in zip(names, square, strict=True)
    ], places


def _format_note(size: Sequence[int], places: Sequence[int]) -> str:
    """Describe what is shown and over what it is averaged."""
    words = "Root mean square change over root mean square score: a query at each position, keys at all positions,"
    words += " random vectors, all heads."
    if tuple(places) != tuple(size):
        words += f" Computed at {' × '.join(map(str, places))} evenly spaced positions."
    if len(size) > 2:
        words += f" Averaged over all {' and '.join(f'{name}s' for name in get_axis_names(len(size))[:-2])}."
    return words


def _draw_title(axes: Axes, drawn: ChangeMap, look: FigureTheme) -> None:
    words = f": {format_residual(drawn.mean)}" if drawn.mean else ""
    axes.set_title(f"moved by one {drawn.axis}{words}", color=look.ink, fontsize=LABEL_SIZE)


def _find_limit(maps: Sequence[ChangeMap]) -> float:
    return max(SCORE_ROUNDING, *(drawn.values.max().item() for drawn in maps))


def _draw_line(drawn: ChangeMap, n: int, look: FigureTheme, **words: str) -> Figure:
    free = create_figure_page(7.0, 2.6, look, **words)
    axes = free.figure.add_subplot()
    axes.plot(
        torch.linspace(0, n - 1, len(drawn.values)), drawn.values, color=look.get_axis_color(drawn.axis), linewidth=1.5
    )
    axes.set(xlabel=f"query's {drawn.axis}", ylabel=CHANGE_UNIT, ylim=(0, 1.1 * _find_limit([drawn])))
    axes.margins(x=0.01)
    style_axes(axes, look)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _draw_title(axes, drawn, look)
    if not drawn.mean:
        axes.set_yticks([0, SCORE_ROUNDING], ["0", format_residual(SCORE_ROUNDING)])
        add_outlined_text(axes, 0.5, 0.5, NO_CHANGE_TEXT, look, ha="center", va="center", transform=axes.transAxes)
    return free.figure


def _draw_maps(maps: Sequence[ChangeMap], size: Sequence[int], look: FigureTheme, **words: str) -> Figure:
    """Draw maps side by side, with one color scale."""
    tall = min(max(MAP_SIDE * size[-2] / size[-1], 1.3), 1.5 * MAP_SIDE)
    free = create_figure_page(len(maps) * (MAP_SIDE + 0.2) + SCALE_SPACE, tall + MAP_SPACE, look, **words)
    limit = _find_limit(maps)
    for i, drawn in enumerate(maps, start=1):
        axes = free.figure.add_subplot(1, len(maps), i)
        _draw_map(axes, drawn, size, limit, look, first=i == 1)
    _draw_scale(free.figure, axes.inset_axes((1.05, 0, 0.05, 1)), limit, look)
    return free.figure


def _make_color_map(look: FigureTheme) -> LinearSegmentedColormap:
    """The color map from zero, in the background color, to the largest change."""
    return LinearSegmentedColormap.from_list("change", look.scale[len(look.scale) // 2 :], N=128)


def _draw_scale(figure: Figure, axes: Axes, limit: float, look: FigureTheme) -> None:
    """Draw the color scale, with few ticks."""
    bar = figure.colorbar(ScalarMappable(Normalize(0, limit), _make_color_map(look)), cax=axes)
    few = [tick for tick in MaxNLocator(4).tick_values(0, limit) if tick <= limit]
    ticks = few if limit > SCORE_ROUNDING else [0, limit]
    bar.set_ticks(ticks, labels=[format_residual(tick) for tick in ticks])
    bar.set_label(CHANGE_UNIT, color=look.faint, fontsize=SMALL_LABEL_SIZE)
    bar.ax.tick_params(colors=look.faint, labelsize=SMALL_LABEL_SIZE, length=2)
    bar.outline.set(edgecolor=look.line, linewidth=0.8)


def _draw_map(axes: Axes, drawn: ChangeMap, size: Sequence[int], limit: float, look: FigureTheme, *, first: bool) -> None:
    names, size = get_axis_names(len(size))[-2:], size[-2:]
    (top, bottom), (left, right) = (_compute_edges(n, count) for n, count in zip(size, drawn.values.shape, strict=True))
    usual = 0.5 <= size[0] / size[1] <= 1.5
    axes.imshow(
        drawn.values.numpy(),
        cmap=_make_color_map(look),
        norm=Normalize(0, limit),
        aspect="equal" if usual else "auto",
        interpolation="nearest",
        extent=(left, right, bottom, top),
    )
    for axis, n, label, shown in zip((axes.yaxis, axes.xaxis), size, names, (first, True), strict=True):
        axis.set_ticks(sorted({0, n - 1}) if shown else [])
        axis.set_tick_params(color=look.line, labelcolor=look.faint, labelsize=SMALL_LABEL_SIZE, length=2, pad=2)
        if shown:
            axis.set_label_text(f"query's {label}", color=look.faint, fontsize=SMALL_LABEL_SIZE)
            axis.labelpad = -4 if n > 1 else 2
    for spine in axes.spines.values():
        spine.set(color=look.line, linewidth=0.8)
    _draw_title(axes, drawn, look)
    if not drawn.mean:
        add_outlined_text(axes, 0.5, 0.5, NO_CHANGE_TEXT, look, ha="center", va="center", transform=axes.transAxes)


def _compute_edges(n: int, count: int) -> tuple[float, float]:
    """The edges of `count` cells whose centers are evenly spaced from the first to the last of n patches."""
    half = (n - 1) / (count - 1) / 2 if count > 1 else 0.5
    return -half, n - 1 + half

"""Figures of frequencies: wave vectors, after Figure 1B of arXiv 2511.08368, and rotation angles across the image."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.lab.figures.figure_layout import (
    add_heads_legend,
    add_outlined_text,
    add_second_scale,
    create_figure_page,
    format_figure_subtitle,
    get_legend_style,
    style_axes,
)
from ropewalk.lab.figures.theme import FigureTheme, get_figure_theme
from ropewalk.lab.inspect.figure_grid import get_axis_names, resolve_grid_size
from ropewalk.lab.inspect.frequency_spectrum import FrequencySpectrum, compute_frequency_spectrum

FREQUENCY_TEXT_LENGTH = 2048


def draw_frequency_line(encoding: Encoding, look: FigureTheme, size: Sequence[int] | None, layer: int) -> Figure:
    """Draw the frequencies of a 1-D encoding in radians per position, a row for each head that has its own."""
    size = resolve_grid_size(encoding, size, places=FREQUENCY_TEXT_LENGTH)
    found = compute_frequency_spectrum(encoding, size, layer=layer)
    step = found.radians.flatten(1).abs() / max(size[0] - 1, 1)  # radians per position
    title, below = f"{encoding.name}: frequencies", format_figure_subtitle(encoding, size, layer)
    free = create_figure_page(7.0, 1.3 + 0.22 * len(step), look, title=title, below=below, note=_describe_steps(step))
    axes = free.figure.add_subplot()
    _draw_head_rows(axes, step, look)
    for x, words, style in ((math.pi, "π per position", ":"), (2 * math.pi / max(size[0] - 1, 1), "one rotation", "--")):
        axes.axvline(x, color=look.faint, linestyle=style, linewidth=1)
        add_outlined_text(axes, x, 0.25, f"{words} ", look, va="top", ha="right")
    style_axes(axes, look)
    add_second_scale(axes, "top", "period (positions)", _invert_frequency, _invert_frequency, look)
    return free.figure


def _describe_steps(step: Tensor) -> str:
    still = int((step == 0).sum(1).max())
    words = f"{int((step > 0).sum(1).max())} frequencies per head; left of the dashed line, less than one rotation"
    return f"{words}; {still} zero frequencies are left out." if still else f"{words}."


def _draw_head_rows(axes: Axes, step: Tensor, look: FigureTheme) -> None:
    heads = len(step)
    for head, frequencies in enumerate(step):
        moving = frequencies[frequencies > 0]
        style: dict[str, Any] = {"color": look.get_head_color(head, heads), "markersize": 11, "markeredgewidth": 1.3}
        axes.plot(moving, torch.full_like(moving, head + 1), "|", **style)
    axes.set(xscale="log", ylim=(heads + 0.8, 0.2), xlabel="frequency (radians per position)")
    axes.set_yticks(range(1, heads + 1), [f"head {i + 1}" if heads > 1 else "all heads" for i in range(heads)])


def _invert_frequency(x: Any) -> Any:
    """Convert frequency to period and back; matplotlib also calls it with 0."""
    return 2 * math.pi / (x + 1e-12)


SEPARATE_AXES_NOTE = (
    "Rotations along different axes do not commute here: points are the frequencies of each axis alone, which do not "
    "combine into wave vectors."
)


def draw_frequencies(
    encoding: Encoding, *, theme: str = "light", size: Sequence[int] | None = None, layer: int = 0
) -> Figure:
    """Wave vectors of the channels, in radians across the image.

    Waves on one circle have the same period. If rotations along different axes do not commute, there are no wave vectors,
    and the frequencies of each axis are drawn on that axis. With one axis, frequencies are drawn on a line; with three,
    there is a plane for each pair of axes.
    """
    look = get_figure_theme(theme)
    if encoding.axes == 1:
        return draw_frequency_line(encoding, look, size, layer)
    size = resolve_grid_size(encoding, size)
    found = compute_frequency_spectrum(encoding, size, layer=layer)
    title = "wave vectors" if found.combined else "frequencies of each axis"
    return _draw_planes(
        found, size, look, title=f"{encoding.name}: {title}", below=format_figure_subtitle(encoding, size, layer)
    )


def _draw_planes(found: FrequencySpectrum, size: Sequence[int], look: FigureTheme, **words: str) -> Figure:
    """Draw a plane for each pair of axes, three in a row."""
    pairs = list(itertools.combinations(range(len(size)), 2))
    across = min(len(pairs), 3)
    down, side, own = -(-len(pairs) // across), 4.2 if across == 1 else 3.1, len(found.radians) > 1
    views = [_compute_view(torch.cat(_select_plane_points(found, pair))) for pair in pairs]
    tall = side * max((y[1] - y[0]) / (x[1] - x[0]) for x, y in views) + 0.3
    free = create_figure_page(across * side + 0.2 + 0.8 * own, down * tall, look, note=_describe_planes(found), **words)
    for place, (pair, (x, y)) in enumerate(zip(pairs, views, strict=True), start=1):
        axes = free.figure.add_subplot(down, across, place, xlim=x, ylim=y, aspect="equal")
        _draw_plane(axes, found, pair, size, look)
        first, second = (f"radians across all {get_axis_names(len(size))[axis]}s" for axis in pair)
        axes.set(xlabel=second, ylabel=first)
        style_axes(axes, look)
    if own:
        add_heads_legend(axes, look, len(found.radians))
    return free.figure


def _describe_planes(found: FrequencySpectrum) -> str:
    _, groups, waves, _ = found.radians.shape
    what = f"{groups * waves} {found.noun}s" if waves == 1 else f"{groups} blocks of {waves} waves each"
    words = f"A head has {what}; larger points stand for several. On a circle, the period is the same in all directions."
    words += " A wave vector and its negative are the same wave: the one that points down is shown." * (
        found.combined and waves > 1
    )
    return words if found.combined else f"{words} {SEPARATE_AXES_NOTE}"


def _select_plane_points(found: FrequencySpectrum, axes: tuple[int, int]) -> list[Tensor]:
    """The points (n, 2) of a plane for each head: the second axis as x, the first as y."""
    first, second = (found.radians[..., axis].flatten(1) for axis in axes)
    if found.combined:
        return list(torch.stack([second, first], dim=-1))
    zero = torch.zeros_like(first)
    return list(torch.cat([torch.stack([second, zero], -1), torch.stack([zero, first], -1)], dim=1))


def _compute_view(points: Tensor) -> list[tuple[float, float]]:
    """The limits of x and y; negative values are shown only if there are points."""
    most = _find_farthest(points)
    return [(-1.12 * most if low < -1e-6 * most else -0.1 * most, 1.12 * most) for low in points.amin(0).tolist()]


def _find_farthest(points: Tensor) -> float:
    """The largest absolute coordinate; 2π if all are zero."""
    return points.abs().max().item() or 2 * math.pi


def _draw_plane(axes: Axes, found: FrequencySpectrum, pair: tuple[int, int], size: Sequence[int], look: FigureTheme) -> None:
    heads = _select_plane_points(found, pair)
    every = torch.cat(heads).double()
    most = _find_farthest(every)
    axes.axhline(0, color=look.line, linewidth=1, zorder=0)
    axes.axvline(0, color=look.line, linewidth=1, zorder=0)
    taken = _draw_alias_limit(axes, most, [math.pi * (size[axis] - 1) for axis in reversed(pair)], look)
    _draw_circles(axes, most, every, taken, look)
    for head, points in enumerate(heads):
        places, counts = torch.unique((points / most * 1e5).round() * most / 1e5, dim=0, return_counts=True)
        colour, area = look.get_head_color(head, len(heads)), 16 * counts.clamp(max=16).sqrt()
        inside = colour if found.combined else "none"
        x, y = places.numpy().T
        axes.scatter(x, y, s=area.numpy(), facecolors=inside, edgecolors=colour, linewidths=1, alpha=0.8, zorder=3)


def _draw_circles(axes: Axes, most: float, points: Tensor, taken: Tensor, look: FigureTheme) -> None:
    """Draw circles of 1, 2, 4, … rotations across the image: the largest three within the limits."""
    turns = [k for k in range(-30, 30) if 0.12 * most < 2.0**k * 2 * math.pi <= 1.1 * most]
    for k in turns[:-4:-1]:
        radius = 2.0**k * 2 * math.pi
        axes.add_patch(Circle((0, 0), radius, fill=False, edgecolor=look.line, linewidth=0.8, zorder=1))
        words = "1 rotation" if k == 0 else f"{2**k} rotations" if k > 0 else f"1/{2**-k} rotation"
        place = _find_clear_position(radius, points, taken, _measure_word(axes))
        taken = torch.cat([taken, place])
        for x, y in place.tolist():
            add_outlined_text(axes, x, y, words, look, ha="center", va="center", zorder=2)


def _measure_word(axes: Axes) -> Tensor:
    """The approximate width and height of a label, in data coordinates."""
    low, high = axes.get_xlim()
    return (high - low) * torch.tensor([0.3, 0.07], dtype=torch.float64)


def _find_clear_position(radius: float, points: Tensor, taken: Tensor, word: Tensor) -> Tensor:
    """The position (1, 2) on a circle, upper right, with the most room for a label; (0, 2) if all overlap another label."""
    angles = torch.linspace(0.15, 0.35, 9, dtype=torch.float64) * math.pi
    places = radius * torch.stack([angles.cos(), angles.sin()], dim=-1)
    places = places[((places[:, None] - taken).abs() >= word).any(-1).all(-1)]
    room = torch.cdist(places, points).amin(1)
    return places[room.argsort(descending=True)[:1]]


def _draw_alias_limit(axes: Axes, most: float, limits: list[float], look: FigureTheme) -> Tensor:
    """Draw the limit of π per patch, above which a wave aliases a slower one. Returns the centers (n, 2) of its labels."""
    if min(limits) > 1.1 * most:
        return torch.empty(0, 2, dtype=torch.float64)
    box = Rectangle((-limits[0], -limits[1]), 2 * limits[0], 2 * limits[1])
    box.set(fill=False, edgecolor=look.faint, linestyle=":", linewidth=1, zorder=1)
    axes.add_patch(box)
    x, y = (min(limit, 1.1 * most) for limit in limits)
    wide, high = (_measure_word(axes) / 2).tolist()
    if y < limits[1]:
        add_outlined_text(axes, x, y, "π per patch", look, ha="right", va="top", rotation=90)
        return torch.tensor([[x, y - high], [x, y - wide], [x, y - 2 * wide]], dtype=torch.float64)
    add_outlined_text(axes, x, y, "π per patch", look, ha="right", va="bottom")
    return torch.tensor([[x - wide, y + high]], dtype=torch.float64)


TURNS_TEXT_LENGTH = 2048


def draw_turns(encoding: Encoding, *, theme: str = "light", size: Sequence[int] | None = None, layer: int = 0) -> Figure:
    """Rotation angle of each group of channels across the image, along each axis, in radians.

    Groups are in the order of the channels. Heads that differ are drawn over each other, the first one strongest. Below
    the line at 2π a group makes less than a full rotation; above the line at π per patch, it aliases a slower one.
    """
    look, size = get_figure_theme(theme), resolve_grid_size(encoding, size, places=TURNS_TEXT_LENGTH)
    found = compute_frequency_spectrum(encoding, size, layer=layer)
    whole = "the text" if encoding.axes == 1 else "the image"
    title = f"{encoding.name}: rotation of each {found.noun} across {whole}"
    below = format_figure_subtitle(encoding, size, layer)
    free = create_figure_page(7.0, 3.4, look, title=title, below=below, note=_describe_turns(found))
    axes = free.figure.add_subplot()
    axes.set(yscale="log", xlabel=f"{found.noun}, in the order of channels", ylabel=f"radians across {whole}")
    axes.set_xlim(0.3, found.radians.shape[1] + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    style_axes(axes, look)
    names = get_axis_names(encoding.axes)
    for axis, name in enumerate(names):
        _draw_axis_points(
            axes, found.radians[..., axis].abs(), _compute_axis_offset(axis, len(names)), look.get_axis_color(name), name
        )
    _draw_turn_lines(axes, size, look)
    add_second_scale(axes, "right", "rotations", lambda y: y / (2 * math.pi), lambda y: y * (2 * math.pi), look)
    if len(names) > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(names), borderpad=0, **get_legend_style(look))
    return free.figure


def _describe_turns(found: FrequencySpectrum) -> str:
    heads, _, waves, _ = found.radians.shape
    words = [f"Each block has {waves} frequencies"] * (waves > 1)
    words += [f"Head 1 in front, {heads - 1} others behind it"] * (heads > 1)
    still = int((found.radians == 0).all(-1).all(-1)[0].sum())
    words += [f"{still} {found.noun}s of head 1 are not rotated"] * (still > 0)
    return ". ".join(words) + "." * bool(words)


def _compute_axis_offset(axis: int, axes: int) -> float:
    return 0.24 * (axis - (axes - 1) / 2)


def _draw_axis_points(axes: Axes, radians: Tensor, aside: float, colour: str, name: str) -> None:
    """Draw the points (h G F) of one axis at the index of their group, offset from those of other axes."""
    place = torch.arange(1, radians.shape[1] + 1, dtype=torch.float64)[:, None].expand(radians.shape[1:]) + aside
    for shown, style in ((radians[1:], {"s": 7, "alpha": 0.35}), (radians[:1], {"s": 20, "label": f"along {name}s"})):
        x, y = place.expand(shown.shape).flatten(), shown.flatten()
        axes.scatter(x[y > 0].numpy(), y[y > 0].numpy(), color=colour, linewidths=0, **style)


def _draw_turn_lines(axes: Axes, size: Sequence[int], look: FigureTheme) -> None:
    """Draw lines at one rotation, and at π per patch for each length of axis, within the limits of y."""
    limits = {math.pi * (n - 1): _format_alias_limit(size, n) for n in size if n > 1}
    low, high = axes.get_ylim()
    low, highest = min(low, 1.0), max(limits, default=1.0)
    axes.set_ylim(low, high := max(high, highest * (highest / low) ** 0.08))  # room for the label of the highest line
    marks = [(2 * math.pi, "one rotation", "--"), *((y, words, ":") for y, words in limits.items())]
    steps: dict[
        float, int
    ] = {}  # by y: how many steps a label is moved to the left, so that it does not overlap that of a near line
    for y, words, line in marks:
        axes.axhline(y, color=look.faint, linewidth=1, linestyle=line, zorder=0)
        near = [step for other, step in steps.items() if abs(math.log(y / other)) < 0.07 * math.log(high / low)]
        steps[y] = max(near, default=-1) + 1
        place = 0.99 - min(0.28, 0.78 / len(marks)) * steps[y]
        add_outlined_text(axes, place, y, words, look, ha="right", va="bottom", transform=axes.get_yaxis_transform())


def _format_alias_limit(size: Sequence[int], n: int) -> str:
    """The label of the limit for axes of n patches; it names them if other axes have another length."""
    names = [f"{name}s" for name, m in zip(get_axis_names(len(size)), size, strict=True) if m == n]
    step = "position" if len(size) == 1 else "patch"
    return f"π per {step}" if len(set(size)) == 1 else f"π per step ({', '.join(names)})"

"""Paths on the sphere, after Figure 2 of arXiv 2511.08368."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from torch import Tensor

from ropewalk.code import Sphere
from ropewalk.encoding import Encoding
from ropewalk.lab.anatomy import sample_code, turning
from ropewalk.lab.orbits import START, STEPS, orders, path, seen, turned
from ropewalk.lab.patterns import spread
from ropewalk.lab.places import axis_names, size_of
from ropewalk.lab.plots.page import LABEL, legend_style, page, subtitle, write
from ropewalk.lab.plots.theme import Theme, look_of
from ropewalk.lab.spectrum import spectrum
from ropewalk.ops.sphere import PLANES

REVERSE = (0, (3, 2))  # dashes


def sphere_paths(
    encoding: Encoding,
    *,
    theme: str = "light",
    size: Sequence[int] | None = None,
    triplets: Sequence[int] | None = None,
    head: int = 0,
    layer: int = 0,
) -> Figure:
    """Where a triplet of channels is carried on the sphere, axis after axis, in the encoding's own order and in reverse.

    Turns about different axes of space do not commute: the ends lie apart, the less so the slower the triplet turns. The
    move is the same for all triplets drawn, a quarter turn of the fastest. `triplets` are counted from 0.
    """
    look = look_of(theme)
    if not on_sphere(encoding):
        raise ValueError(f"paths on the sphere want triplets that turn along 2 or 3 axes, got {encoding!r}")
    size, names = size_of(encoding, size), axis_names(encoding.axes)
    radians = spectrum(encoding, size, layer=layer).radians
    radians = radians[_one_of("head", head, len(radians)), :, 0].double()  # (T A)
    chosen = [_one_of("triplets", i, len(radians)) for i in (spread(len(radians), 3) if triplets is None else triplets)]
    part = min(1.0, math.pi / 2 / radians[chosen].abs().max().clamp(min=1e-9).item())
    moved = ", ".join(f"{part * (n - 1):.2g} {name}s" for name, n in zip(names, size, strict=True))
    title, below = "on the sphere, the order of axes matters", f"{subtitle(encoding, size, layer)}, moved by {moved}"
    free = page(2.3 * max(len(chosen), 3), 2.9, look, title=f"{encoding.name}: {title}", below=below)
    for column, triplet in enumerate(chosen, start=1):
        axes = free.figure.add_subplot(1, len(chosen), column)
        _sphere(axes, look)
        words = _paths(axes, part * radians[triplet], look)
        axes.set_title(f"triplet {triplet + 1}: {words}", color=look.ink, fontsize=LABEL)
    _legend(free.figure, names, look)
    return free.figure


def on_sphere(encoding: Encoding) -> bool:
    """Whether there are paths to draw."""
    return encoding.axes > 1 and isinstance(turning(sample_code(encoding)), Sphere)


def _one_of(name: str, index: int, count: int) -> int:
    if not 0 <= index < count:
        raise ValueError(f"{name} must be from 0 to {count - 1}, got {index}")
    return index


def _paths(axes: Axes, angles: Tensor, look: Theme) -> str:
    """Draw both paths of a triplet that turns by these angles, one an axis, and say how they differ."""
    names = axis_names(len(angles))
    both = [(order, path(angles, order)) for order in orders(len(angles))]
    for (order, arcs), style in zip(both, ("-", REVERSE), strict=True):
        for axis, arc in zip(order, arcs, strict=True):
            _line(axes, arc, look.of_axis(names[axis]), style)
    own, other = (arcs[-1][-1] for _, arcs in both)
    for point, mark, fill in ((other, "o", look.paper), (own, "o", look.ink), (START, "+", look.ink)):
        x, y, _ = seen(point)
        axes.plot([float(x)], [float(y)], mark, color=look.ink, markerfacecolor=fill, markersize=6, zorder=4)
    apart = math.degrees(math.acos(float((own @ other).clamp(-1, 1))))
    return f"turns {math.degrees(angles.abs().max()):.0f}°,\nends {apart:.0f}° apart"


def _line(axes: Axes, points: Tensor, colour: str, style: Any) -> None:
    """A line on the sphere, faint where it runs behind."""
    x, y, depth = seen(points)
    for part, alpha in ((depth < 0, 0.3), (depth >= 0, 1.0)):
        shown = [torch.where(part, each, math.nan) for each in (x, y)]
        axes.plot(*shown, color=colour, linestyle=style, alpha=alpha)


def _sphere(axes: Axes, look: Theme) -> None:
    """The outline, the great circles of the three planes, and the near ends of the channels' axes."""
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    axes.set_axis_off()
    axes.add_patch(Circle((0, 0), 1, facecolor=to_rgba(look.line, 0.25), edgecolor=look.line))
    angle = torch.linspace(0, 2 * math.pi, 2 * STEPS, dtype=torch.float64)
    for axis, (first, _) in enumerate(PLANES):
        x, y, depth = seen(turned(torch.eye(3, dtype=torch.float64)[first], axis, angle))
        axes.plot(torch.where(depth >= 0, x, math.nan), y, color=look.line, linewidth=0.8)
    for channel, name in zip(torch.eye(3, dtype=torch.float64), "abc", strict=True):
        near = 1.12 * channel * seen(channel)[2].sign()
        x, y, _ = seen(near)
        write(axes, float(x), float(y), name if near.sum() > 0 else f"−{name}", look, ha="center", va="center")


def _legend(figure: Figure, names: Sequence[str], look: Theme) -> None:
    forth, back = (" then ".join(f"{name}s" for name in order) for order in (names, reversed(names)))
    end: dict[str, Any] = {"color": look.faint, "marker": "o", "markeredgecolor": look.ink, "markersize": 5}
    handles = [Line2D([], [], color=look.of_axis(name), label=f"turn along {name}s") for name in names]
    handles += [
        Line2D([], [], markerfacecolor=look.ink, label=f"{forth}, the encoding's order", **end),
        Line2D([], [], markerfacecolor=look.paper, linestyle=REVERSE, label=back, **end),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=2, **legend_style(look))

"""Where turns about different axes carry a point of the sphere, and how that looks from outside.

Paths on the sphere, after Figure 2 of arXiv 2511.08368.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from torch import Tensor

from ropewalk.code import Sphere
from ropewalk.encoding import Encoding
from ropewalk.lab.figures.figure_layout import (
    LABEL_SIZE,
    add_outlined_text,
    create_figure_page,
    format_figure_subtitle,
    get_legend_style,
)
from ropewalk.lab.figures.theme import FigureTheme, get_figure_theme
from ropewalk.lab.inspect.code_structure import compute_sample_code, find_rotary_part
from ropewalk.lab.inspect.figure_grid import get_axis_names, resolve_grid_size, spread_indices
from ropewalk.lab.inspect.frequency_spectrum import compute_frequency_spectrum
from ropewalk.ops.sphere import PLANES

ARC_STEPS = 48


def _make_direction(*channels: float) -> Tensor:
    return F.normalize(torch.tensor(channels, dtype=torch.float64, device="cpu"), dim=0)


# In channels a, b, c of a triplet: where paths begin, from where the sphere is seen, and what is right and up then.
PATH_START = _make_direction(0.55, -0.25, 0.8)
VIEW_DIRECTION = _make_direction(-1.0, -1.0, 0.9)
VIEW_RIGHT = F.normalize(torch.linalg.cross(_make_direction(0.0, 0.0, 1.0), VIEW_DIRECTION), dim=0)
VIEW_UP = torch.linalg.cross(VIEW_DIRECTION, VIEW_RIGHT)


def list_axis_orders(axes: int) -> tuple[list[int], list[int]]:
    """The order in which the axes act, and the reverse."""
    return list(range(axes)), list(reversed(range(axes)))


def compute_sphere_path(angles: Tensor, order: Sequence[int]) -> list[Tensor]:
    """The arcs (steps, 3) on which a vector is carried by turns by these angles, one an axis, in this order."""
    arcs, here = [], PATH_START
    for axis in order:
        angle = torch.linspace(0, 1, ARC_STEPS, dtype=torch.float64) * angles[axis]
        arcs.append(rotate_sphere_point(here, axis, angle))
        here = arcs[-1][-1]
    return arcs


def rotate_sphere_point(point: Tensor, axis: int, angle: Tensor) -> Tensor:
    """The point (3) turned in the plane of an axis by each angle (n): (n, 3)."""
    first, second = PLANES[axis]
    points = point.repeat(len(angle), 1)
    points[:, first] = point[first] * angle.cos() - point[second] * angle.sin()
    points[:, second] = point[first] * angle.sin() + point[second] * angle.cos()
    return points


def project_sphere_points(points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Points (…, 3) as they are seen: to the right, up, and towards the eye."""
    return points @ VIEW_RIGHT, points @ VIEW_UP, points @ VIEW_DIRECTION


REVERSE_STYLE = (0, (3, 2))  # dashes


def draw_sphere_paths(
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
    look = get_figure_theme(theme)
    if not has_sphere_paths(encoding):
        raise ValueError(
            f"the figure sphere needs an encoding that rotates triplets along 2 or 3 axes, got {encoding.name!r}"
        )
    size, names = resolve_grid_size(encoding, size), get_axis_names(encoding.axes)
    radians = compute_frequency_spectrum(encoding, size, layer=layer).radians
    radians = radians[_check_index("head", head, len(radians)), :, 0].double()  # (T A)
    chosen = [
        _check_index("triplets", i, len(radians))
        for i in (spread_indices(len(radians), 3) if triplets is None else triplets)
    ]
    part = min(1.0, math.pi / 2 / radians[chosen].abs().max().clamp(min=1e-9).item())
    moved = ", ".join(f"{part * (n - 1):.2g} {name}s" for name, n in zip(names, size, strict=True))
    title, below = (
        "on the sphere, the order of axes matters",
        f"{format_figure_subtitle(encoding, size, layer)}, moved by {moved}",
    )
    free = create_figure_page(2.3 * max(len(chosen), 3), 2.9, look, title=f"{encoding.name}: {title}", below=below)
    for column, triplet in enumerate(chosen, start=1):
        axes = free.figure.add_subplot(1, len(chosen), column)
        _draw_sphere(axes, look)
        words = _draw_paths(axes, part * radians[triplet], look)
        axes.set_title(f"triplet {triplet + 1}: {words}", color=look.ink, fontsize=LABEL_SIZE)
    _draw_legend(free.figure, names, look)
    return free.figure


def has_sphere_paths(encoding: Encoding) -> bool:
    """Whether there are paths to draw."""
    return encoding.axes > 1 and isinstance(find_rotary_part(compute_sample_code(encoding)), Sphere)


def _check_index(name: str, index: int, count: int) -> int:
    if not 0 <= index < count:
        raise ValueError(f"{name} must be from 0 to {count - 1}, got {index}")
    return index


def _draw_paths(axes: Axes, angles: Tensor, look: FigureTheme) -> str:
    """Draw both paths of a triplet that turns by these angles, one an axis, and say how they differ."""
    names = get_axis_names(len(angles))
    both = [(order, compute_sphere_path(angles, order)) for order in list_axis_orders(len(angles))]
    for (order, arcs), style in zip(both, ("-", REVERSE_STYLE), strict=True):
        for axis, arc in zip(order, arcs, strict=True):
            _draw_sphere_line(axes, arc, look.get_axis_color(names[axis]), style)
    own, other = (arcs[-1][-1] for _, arcs in both)
    for point, mark, fill in ((other, "o", look.paper), (own, "o", look.ink), (PATH_START, "+", look.ink)):
        x, y, _ = project_sphere_points(point)
        axes.plot([float(x)], [float(y)], mark, color=look.ink, markerfacecolor=fill, markersize=6, zorder=4)
    apart = math.degrees(math.acos(float((own @ other).clamp(-1, 1))))
    return f"turns {math.degrees(angles.abs().max()):.0f}°,\nends {apart:.0f}° apart"


def _draw_sphere_line(axes: Axes, points: Tensor, colour: str, style: Any) -> None:
    """A line on the sphere, faint where it runs behind."""
    x, y, depth = project_sphere_points(points)
    for part, alpha in ((depth < 0, 0.3), (depth >= 0, 1.0)):
        shown = [torch.where(part, each, math.nan) for each in (x, y)]
        axes.plot(*shown, color=colour, linestyle=style, alpha=alpha)


def _draw_sphere(axes: Axes, look: FigureTheme) -> None:
    """The outline, the great circles of the three planes, and the near ends of the channels' axes."""
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    axes.set_axis_off()
    axes.add_patch(Circle((0, 0), 1, facecolor=to_rgba(look.line, 0.25), edgecolor=look.line))
    angle = torch.linspace(0, 2 * math.pi, 2 * ARC_STEPS, dtype=torch.float64)
    for axis, (first, _) in enumerate(PLANES):
        x, y, depth = project_sphere_points(rotate_sphere_point(torch.eye(3, dtype=torch.float64)[first], axis, angle))
        axes.plot(torch.where(depth >= 0, x, math.nan), y, color=look.line, linewidth=0.8)
    for channel, name in zip(torch.eye(3, dtype=torch.float64), "abc", strict=True):
        near = 1.12 * channel * project_sphere_points(channel)[2].sign()
        x, y, _ = project_sphere_points(near)
        add_outlined_text(axes, float(x), float(y), name if near.sum() > 0 else f"−{name}", look, ha="center", va="center")


def _draw_legend(figure: Figure, names: Sequence[str], look: FigureTheme) -> None:
    forth, back = (" then ".join(f"{name}s" for name in order) for order in (names, reversed(names)))
    end: dict[str, Any] = {"color": look.faint, "marker": "o", "markeredgecolor": look.ink, "markersize": 5}
    handles = [Line2D([], [], color=look.get_axis_color(name), label=f"turn along {name}s") for name in names]
    handles += [
        Line2D([], [], markerfacecolor=look.ink, label=f"{forth}, the encoding's order", **end),
        Line2D([], [], markerfacecolor=look.paper, linestyle=REVERSE_STYLE, label=back, **end),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=2, **get_legend_style(look))

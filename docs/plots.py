"""Figures of the pages: axes in the colours of a theme, the plots that several pages share, and PNG files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from PIL import Image
from torch import Tensor

from markdown_text import format_picture
from ropewalk.lab.figures.cost import draw_step_cost
from ropewalk.lab.figures.extensions import draw_extensions
from ropewalk.lab.figures.theme import FIGURE_THEMES, FigureTheme

DPI = 160  # a page shows an inch as 100 pixels, and many screens have two for one

LAB_FIGURES = {"cost": draw_step_cost, "extensions": draw_extensions}

Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Values of x and y by name."""


def save_figure(figure: Figure, path: Path, *, dpi: int = DPI) -> None:
    """Write a PNG of 256 colours, a third of the size of one in full colour."""
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
    pixels.convert("RGB").quantize(256).save(path, optimize=True)


def save_page_figure(target: Path, name: str, alt: str, draw: Callable[..., Figure], /, *args: Any, **options: Any) -> str:
    """Draw a figure of a page in both themes, into a folder beside the page, and return the Markdown that shows it."""
    folder = target.parent / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for theme, look in FIGURE_THEMES.items():
        save_figure(draw(look, *args, **options), folder / f"{target.stem}-{name}-{theme}.png")
    return format_picture(f"images/{target.stem}-{name}", alt)


def draw_lab_figure(look: FigureTheme, name: str, *args: Any) -> Figure:
    """A figure of the lab, whose functions take the theme by name."""
    theme = next(theme for theme, each in FIGURE_THEMES.items() if each is look)
    return LAB_FIGURES[name](*args, theme=theme)


def create_panels(
    look: FigureTheme, *, width: float = 7.4, height: float = 3.0, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), facecolor=look.paper, layout="constrained")
    panels = figure.subplots(1, columns, squeeze=False, **options)[0].tolist()
    figure.get_layout_engine().set(w_pad=0.07, h_pad=0.07)
    for axes in panels:
        axes.set_facecolor(look.paper)
        axes.tick_params(which="both", colors=look.faint, labelsize=8.5)
        for side, spine in axes.spines.items():
            spine.set_color(look.faint)
            spine.set_visible(side in ("left", "bottom"))
    return figure, panels


def get_colors(look: FigureTheme) -> tuple[str, str]:
    """A cool and a warm color."""
    return look.scale[1], look.scale[5]


def label_axes(axes: Axes, look: FigureTheme, *, x: str = "", y: str = "", title: str = "") -> None:
    axes.set_xlabel(x, color=look.ink, fontsize=9)
    axes.set_ylabel(y, color=look.ink, fontsize=9)
    axes.set_title(title, color=look.ink, fontsize=9.5)


def add_legend(axes: Axes, look: FigureTheme, **options: Any) -> None:
    axes.legend(frameon=False, labelcolor=look.ink, fontsize=8.5, **options)


def draw_curves(
    look: FigureTheme,
    lines: Curves,
    *,
    x: str,
    y: str,
    height: float = 2.9,
    styles: Sequence[Mapping[str, Any]] = (),
    legend: Mapping[str, Any] | None = None,
    band: tuple[float, str] | None = None,
    **limits: Any,
) -> Figure:
    """Lines by name.

    `styles` are theirs in order, with "cool", "warm", "faint" or "ink" for a color; `band` is half the width of a band
    around zero, with its label; `limits`, such as xscale="log", are properties of the axes.
    """
    figure, (axes,) = create_panels(look, height=height)
    cool, warm = get_colors(look)
    colors = {"cool": cool, "warm": warm, "faint": look.faint, "ink": look.ink}
    styles = styles or [{"color": name} for name in colors]
    for (name, (across, up)), style in zip(lines.items(), styles, strict=False):
        style = {"linewidth": 1.6, **style, "color": colors[style["color"]]}
        axes.plot(list(across), list(up), label=name, **style)
    if band is not None:
        axes.axhspan(-band[0], band[0], color=look.faint, alpha=0.18, linewidth=0, label=band[1])
        axes.axhline(0, color=look.ink, linewidth=0.8)
    axes.set(**limits)
    label_axes(axes, look, x=x, y=y)
    add_legend(axes, look, **(legend or {}))
    return figure


def draw_curve_panels(look: FigureTheme, found: Mapping[str, Tensor], *, x: str, y: str, **limits: Any) -> Figure:
    """Three curves, each in a panel of its own."""
    figure, panels = create_panels(look, height=2.5, columns=3, sharey=True)
    cool, warm = get_colors(look)
    for axes, (name, values), color in zip(panels, found.items(), (cool, look.faint, warm), strict=True):
        axes.plot(values.tolist(), color=color, linewidth=0.9)
        axes.axhline(0, color=look.faint, linewidth=0.5, zorder=0)
        axes.set(**limits)
        label_axes(axes, look, x=x, y=y if axes is panels[0] else "", title=name)
    return figure


def draw_bars(look: FigureTheme, found: Mapping[str, Tensor], *, x: str, y: str) -> Figure:
    """Two groups of bars side by side."""
    figure, (axes,) = create_panels(look, height=2.3)
    for side, (name, values), color in zip((-0.2, 0.2), found.items(), get_colors(look), strict=True):
        axes.bar([i + side for i in range(len(values))], values.tolist(), width=0.4, color=color, label=name)
    axes.set_xticks(range(len(values)))
    label_axes(axes, look, x=x, y=y)
    add_legend(axes, look)
    return figure


def draw_ranges(
    look: FigureTheme,
    found: Mapping[str, tuple[float, float]],
    learned: Sequence[str],
    *,
    marks: Mapping[str, float],
    x: str,
    **limits: Any,
) -> Figure:
    """A bar from the lowest to the highest value for each name, in a second color if it is learned, and marked values."""
    figure, (axes,) = create_panels(look, height=4.3)
    halo = [withStroke(linewidth=3, foreground=look.paper)]
    text: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8.5, "path_effects": halo}
    for row, (name, (low, high)) in enumerate(found.items()):
        low = min(low, high / 1.08)
        color = get_colors(look)[name in learned]
        axes.barh(row, high - low, left=low, height=0.55, color=color)
        axes.annotate(f"{high:.3g}", (high, row), (4, 0), va="center", color=look.ink, **text)
    for label, at in marks.items():
        axes.axvline(at, color=look.faint, linewidth=0.8, linestyle="--", zorder=0)
        axes.annotate(label, (at, 1), (0, 3), xycoords=("data", "axes fraction"), ha="center", color=look.faint, **text)
    axes.set(xscale="log", yticks=range(len(found)), yticklabels=list(found), **limits)
    axes.invert_yaxis()
    for color, label in zip(get_colors(look), ("fixed", "learned"), strict=True):
        axes.barh(0, 0, color=color, label=label)
    label_axes(axes, look, x=x)
    add_legend(axes, look, loc="upper left")
    return figure


def draw_vectors(
    look: FigureTheme, found: Mapping[str, Tensor], *, x: str, y: str, ticks: Sequence[float], rays: bool = False
) -> Figure:
    """Vectors (n 2) of rows and columns as points in a panel for each name.

    With `rays` each is on a line through the origin, and each panel has a scale of its own.
    """
    figure, panels = create_panels(look, height=2.5, columns=len(found), sharex=not rays, sharey=not rays)
    for axes, (name, vectors) in zip(panels, found.items(), strict=True):
        limit = 1.08 * (vectors.abs().max().item() if rays else max(map(abs, ticks)))
        lines = [(0.0, 1.0), (1.0, 0.0)] if not rays else vectors.tolist()
        for row, column in lines:
            axes.axline((0, 0), (column, row), color=look.faint, linewidth=0.5, alpha=0.6, zorder=0)
        axes.scatter(*vectors.T.flip(0).numpy(), s=9 if rays else 4, color=get_colors(look)[0], linewidths=0, zorder=3)
        axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xticks=ticks, yticks=ticks)
        label_axes(axes, look, x=x, y=y if axes is panels[0] else "", title=name)
    return figure


def draw_images(look: FigureTheme, found: Mapping[str, Tensor]) -> Figure:
    """Normal values (rows columns) by name, side by side."""
    figure, panels = create_panels(look, height=2.7, columns=len(found))
    for axes, (name, values) in zip(panels, found.items(), strict=True):
        axes.imshow(values.numpy(), cmap=look.colours(), vmin=-2.5, vmax=2.5)
        axes.set(xticks=(0, 6, 13), yticks=(0, 6, 13))
        label_axes(axes, look, x="column", y="row" if axes is panels[0] else "", title=name)
    return figure


def draw_histograms(look: FigureTheme, found: Mapping[str, Tensor], *, x: str, range: tuple[float, float]) -> Figure:
    figure, (axes,) = create_panels(look, height=2.5)
    for (name, values), color, style in zip(found.items(), get_colors(look), ("stepfilled", "step"), strict=True):
        options: dict[str, Any] = {"histtype": style, "color": color, "label": name, "linewidth": 1.4}
        axes.hist(values.numpy(), bins=20, range=range, density=True, **options)
    label_axes(axes, look, x=x, y="density")
    add_legend(axes, look, loc="upper center")
    return figure


def draw_maps(look: FigureTheme, found: Mapping[str, Tensor], *, label: str) -> Figure:
    """Values (rows, columns) by name, side by side, on one scale from zero."""
    most = max(values.max().item() for values in found.values())
    figure, panels = create_panels(look, height=2.9, columns=len(found))
    for axes, (name, values) in zip(panels, found.items(), strict=True):
        drawn = axes.imshow(values.numpy(), vmin=0, vmax=most or 1, cmap="magma" if look.paper != "#ffffff" else "magma_r")
        label_axes(axes, look, x="column", y="row" if axes is panels[0] else "", title=name)
    bar = figure.colorbar(drawn, ax=panels)
    bar.ax.tick_params(colors=look.faint, labelsize=8)
    bar.set_label(label, color=look.ink, fontsize=8.5)
    return figure


def draw_points(look: FigureTheme, found: Mapping[str, tuple[Tensor, Tensor]], *, x: str, y: str, line: str) -> Figure:
    """Points by name on logarithmic scales; `line` is the label of the line on which x and y are equal."""
    figure, (axes,) = create_panels(look, height=3.1)
    for (name, (across, up)), color in zip(found.items(), reversed(get_colors(look)), strict=False):
        axes.scatter(across.tolist(), up.tolist(), s=8, color=color, label=name, linewidths=0, zorder=2)
    axes.axline((1, 1), (10, 10), color=look.faint, label=line, linewidth=1.0, zorder=1)
    axes.set(xscale="log", yscale="log")
    label_axes(axes, look, x=x, y=y)
    add_legend(axes, look)
    return figure

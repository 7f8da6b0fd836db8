"""What a training step and inference cost with each encoding, beside the same model with none."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropewalk.lab.figures.figure_layout import SMALL_LABEL_SIZE, create_figure_page, get_legend_style, style_axes
from ropewalk.lab.figures.theme import FigureTheme, get_figure_theme

MODE_COLOR_AXES = {"eager": "row", "captured": "frame", "compiled": "column", "compiled and captured": "position"}
COST_PANELS = {"train ms ratio": "training step", "infer ms ratio": "inference"}
ROW_SPACING, PANEL_MARGIN = 0.16, 0.1  # inches between the modes of an encoding, and around them

CostRows = Sequence[Mapping[str, Any]]


def draw_step_cost(document: Mapping[str, Any], *, theme: str = "light") -> Figure:
    """A dot for each encoding and mode: its time over that of no encoding, of what `ropewalk bench` has measured."""
    look, rows = get_figure_theme(theme), [row for row in document["rows"] if row.get("suite") == "steps"]
    if not rows:
        raise ValueError("there is no cost to draw: the document has no rows of the suite 'steps'")
    names = list(dict.fromkeys(row["name"] for row in rows))
    machine = f"{document['machine']['device']}, torch {document['versions']['torch']}"
    below = f"{machine}, {document['date']}{_describe_model(document)}"
    title = "What an encoding costs a ViT: time over that of the same model with none"
    modes = len({row["mode"] for row in rows})
    made = create_figure_page(7.2, 1.0 + (PANEL_MARGIN + ROW_SPACING * modes) * len(names), look, title=title, below=below)
    left, right = made.figure.subplots(1, 2, sharey=True)
    for axes, (key, label) in zip((left, right), COST_PANELS.items(), strict=True):
        _draw_panel(axes, rows, names, key, look)
        axes.set_xlabel(f"{label}, × that of no encoding")
        style_axes(axes, look)
    left.set_yticks(range(len(names)), names)
    right.tick_params(left=False)
    left.set_ylim(len(names) - 0.5, -0.5)
    made.figure.legend(*left.get_legend_handles_labels(), loc="outside lower right", ncols=4, **get_legend_style(look))
    return made.figure


def _describe_model(document: Mapping[str, Any]) -> str:
    """Which model on which images, as far as the document says."""
    said = document["settings"].get("steps", {})
    return f"; ViT {said['preset']}, {said['batch']} images of {said['size'][0]} x {said['size'][1]}" if said else ""


def _draw_panel(axes: Axes, rows: CostRows, names: Sequence[str], key: str, look: FigureTheme) -> None:
    """Lines from 1 to the ratio, each with its number; a word where there is none."""
    axes.axvline(1, color=look.line, linewidth=1, zorder=0)
    ratios = [row[key] for row in rows if key in row] or [1.0]
    low, high = min(1.0, *ratios), max(1.0, *ratios)
    room = max(high - low, 0.05)
    axes.set_xlim(low - 0.05 * room, high + 0.24 * room)
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    for i, mode in enumerate(modes):
        shift = (i - (len(modes) - 1) / 2) * ROW_SPACING / (PANEL_MARGIN + ROW_SPACING * len(modes))
        colour = look.get_axis_color(MODE_COLOR_AXES[mode])
        for row in (row for row in rows if row["mode"] == mode):
            _draw_mark(axes, row, names.index(row["name"]) + shift, key, colour, look)
        axes.plot([], [], "o", color=colour, markersize=4, label=mode)


def _draw_mark(axes: Axes, row: Mapping[str, Any], place: float, key: str, colour: str, look: FigureTheme) -> None:
    there = row.get(key)
    if there is not None:
        axes.plot([1, there], [place, place], color=colour, linewidth=1.2)
        axes.plot(there, place, "o", color=colour, markersize=4)
    words = "refused" if "refused" in row else "failed" if there is None else f"{there:.3f}"
    at = max(there or 1.0, 1.0)
    axes.annotate(
        words, (at, place), (6, 0), textcoords="offset points", va="center", color=look.faint, fontsize=SMALL_LABEL_SIZE
    )

"""What a training step costs with each encoding, beside the same model with none."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from ropewalk.lab.plots.page import SMALL, legend_style, page, plain
from ropewalk.lab.plots.theme import look_of

COLOURS = {"eager": "row", "compiled": "column"}


def cost(document: Mapping[str, Any], *, theme: str = "light") -> Figure:
    """A bar for each encoding and mode: its step over that of no encoding, of what `ropewalk bench` has measured."""
    look, rows = look_of(theme), [row for row in document["rows"] if row.get("suite") == "steps"]
    if not rows:
        raise ValueError("there is no cost to draw: the document has no rows of the suite 'steps'")
    names = list(dict.fromkeys(row["name"] for row in rows))
    machine = document["machine"]
    title, below = "Training step of a ViT-S over that with no encoding", f"{machine['device']}, torch {machine['torch']}"
    made = page(7.2, 0.5 + 0.36 * len(names), look, title=title, below=f"{below}, {machine['date']}")
    axes = made.figure.add_subplot()
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    for i, mode in enumerate(modes):
        ratios = _ratios(rows, mode)
        places = [names.index(name) + (i - (len(modes) - 1) / 2) * 0.38 for name in ratios]
        bars = axes.barh(places, list(ratios.values()), 0.36, color=look.of_axis(COLOURS[mode]), label=mode)
        axes.bar_label(bars, [f"{ratio:.3f}" for ratio in ratios.values()], padding=3, color=look.faint, fontsize=SMALL)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.axvline(1, color=look.faint, linewidth=0.8, linestyle="--")
    axes.set_xlim(0.9, max(row["train ms ratio"] for row in rows) * 1.06)
    axes.set_xlabel("step time over that of no encoding")
    plain(axes, look)
    axes.legend(loc="lower right", **legend_style(look))
    return made.figure


def _ratios(rows: Sequence[Mapping[str, Any]], mode: str) -> dict[str, float]:
    return {row["name"]: row["train ms ratio"] for row in rows if row["mode"] == mode}

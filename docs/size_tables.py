"""Tables and figures of images of other sizes than in training, from the photographs of the study of equivariance."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from markdown_text import format_table
from ropewalk.lab.figures.figure_layout import create_figure_page, get_legend_style, style_axes
from ropewalk.lab.figures.theme import FigureTheme
from ropewalk.lab.statistics import MeanEstimate, estimate_means
from study_figures import collect_accuracies, get_style
from study_tables import load_results, rank_names, select_runs

TRAINED = 160
"""Pixels a side in training, in patches of 16."""
PARTS = ("imagenette", "imagenette-again")
MODES = {"rescale": "rescaled", "yarn": "YaRN", "ntk": "NTK", "extrapolate": "extrapolated"}
"""Modes of the probe by how a reader calls them, the best first."""
MODE_STYLES = {"rescale": "-", "yarn": "--", "ntk": "-.", "extrapolate": ":"}
TABLE = "learned-ape"

Levels = Mapping[str, Mapping[int, MeanEstimate]]
"""Accuracy in per cent by name and side."""


def list_runs(*parts: str) -> list[Any]:
    """Runs of these parts of the study, by default those on Imagenette at 160 pixels, six seeds each."""
    return select_runs(load_results("equivariance"), *(parts or PARTS))


def list_encodings(*parts: str) -> list[str]:
    """Encodings, the best at the size of training first, the learned table last."""
    names = rank_names(list_runs(*parts))
    return [*(name for name in names if name not in (TABLE, "none")), TABLE]


@functools.cache
def list_sides() -> tuple[int, ...]:
    """Sides in pixels that all encodings were measured at, with all seeds."""
    runs = list_runs()
    seeds = {run.config.seed for run in runs}
    found = [collect_accuracies(runs, name, "rescale").items() for name in list_encodings()]
    return tuple(sorted(set.intersection(*({side for side, each in sides if each.keys() == seeds} for sides in found))))


def collect_seeds(mode: str, side: int, *parts: str) -> dict[str, dict[int, float]]:
    """Accuracy on held-out images in per cent, by encoding and seed."""
    runs = list_runs(*parts)
    found = {name: collect_accuracies(runs, name, mode).get(side, {}) for name in list_encodings(*parts)}
    return {name: each for name, each in found.items() if each}


@functools.cache
def estimate_accuracies(mode: str) -> Levels:
    """Accuracy on held-out images by encoding and side, with 95 % intervals from the variance that all encodings share."""
    found: dict[str, dict[int, MeanEstimate]] = {}
    for side in list_sides():
        for name, estimate in estimate_means({n: list(v.values()) for n, v in collect_seeds(mode, side).items()}).items():
            found.setdefault(name, {})[side] = estimate
    return found


def compare_ways(*sides: int, parts: Sequence[str] = ()) -> str:
    """What rescaling adds to extrapolation at these sides, in points, from differences of the same run."""
    heads, columns = ["encoding", *(f"{side} px" for side in sides)], []
    for side in sides:
        own, other = (collect_seeds(mode, side, *parts) for mode in ("rescale", "extrapolate"))
        gains = {name: [own[name][seed] - value for seed, value in each.items()] for name, each in other.items()}
        columns.append(estimate_means(gains))
    rows = [[f"`{name}`", *(_format_gain(column.get(name)) for column in columns)] for name in list_encodings(*parts)]
    return format_table(heads, rows)


def get_accuracy(name: str, mode: str, side: int) -> float:
    return estimate_accuracies(mode)[name][side].mean


def compare_modes(*sides: int) -> str:
    """Each encoding at these sides, in all modes that it has."""
    levels = {mode: estimate_accuracies(mode) for mode in MODES}
    heads = ["encoding", f"{TRAINED} px", *(f"{side} px, {word}" for side in sides for word in MODES.values())]
    rows = []
    for name in list_encodings():
        cells = [_format_level(levels["rescale"].get(name, {}).get(TRAINED))]
        cells += [_format_level(levels[mode].get(name, {}).get(side)) for side in sides for mode in MODES]
        rows.append([f"`{name}`", *cells])
    return format_table(heads, rows)


def compare_sides(*names: str) -> str:
    """Accuracy by side where images are rescaled and where they are extrapolated."""
    levels = {mode: estimate_accuracies(mode) for mode in ("rescale", "extrapolate")}
    sides = list_sides()
    rows = [
        [f"`{name}`, {MODES[mode]}", *(_format_mean(levels[mode][name].get(side)) for side in sides)]
        for name in names
        for mode in levels
    ]
    return format_table(["", *(f"{side} px" for side in sides)], rows)


def _format_level(level: MeanEstimate | None) -> str:
    return "" if level is None else f"{level.mean:.1f} ± {level.half:.1f}"


def _format_gain(gain: MeanEstimate | None) -> str:
    return "" if gain is None else f"{gain.mean:+.1f} ± {gain.half:.1f}"


def _format_mean(level: MeanEstimate | None) -> str:
    return "" if level is None else f"{level.mean:.1f}"


def draw_sizes_by_mode(look: FigureTheme, name: str = "mixed") -> Figure:
    """Accuracy by image size: all encodings rescaled, and one encoding in all modes beside the learned table."""
    below = f"Imagenette, trained at {TRAINED} px; accuracy on held-out images at other sizes, without further training"
    note = "Means of six seeds with 95 % intervals, from the variance that all encodings of a size share."
    page = create_figure_page(7.4, 3.6, look, title="Images of other sizes than in training", below=below, note=note)
    left, right = page.figure.subplots(1, 2, sharey=True)
    rescaled = estimate_accuracies("rescale")
    for each in list_encodings():
        _draw_levels(left, rescaled[each], each, get_style(each, look))
    for mode, words in MODES.items():
        style = {**get_style(name, look), "linestyle": MODE_STYLES[mode]}
        _draw_levels(right, estimate_accuracies(mode)[name], f"{name}, {words}", style)
    _draw_levels(right, rescaled[TABLE], f"{TABLE}, {MODES['rescale']}", get_style(TABLE, look))
    for axes, title in ((left, "rescaled, the default"), (right, f"{name}, four ways")):
        axes.set_title(title, color=look.ink, fontsize=9, loc="left")
        axes.set(xlabel="side of the image, pixels", xticks=(80, 160, 240, 320, 480))
        axes.axvline(TRAINED, color=look.line, linewidth=1, zorder=0)
        axes.legend(loc="lower center", **get_legend_style(look))
        style_axes(axes, look)
    left.set_ylabel("accuracy, %")
    return page.figure


def _draw_levels(axes: Axes, levels: Mapping[int, MeanEstimate], label: str, style: Mapping[str, Any]) -> None:
    means: Sequence[float] = [each.mean for each in levels.values()]
    bars = [each.half or 0.0 for each in levels.values()]
    axes.errorbar(list(levels), means, yerr=bars, label=label, capsize=2, elinewidth=0.8, **style)

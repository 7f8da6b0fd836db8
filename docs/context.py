"""Tables and figures of the study of longer texts, from what it found in results/context."""

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

import tables
from ropewalk.lab.figures.figure_layout import create_figure_page, get_legend_style, style_axes
from ropewalk.lab.figures.theme import FIGURE_THEMES, FigureTheme
from ropewalk.lab.report.panels import shorten_label
from ropewalk.lab.statistics import estimate_means

RESULTS = Path(__file__).parent.parent / "results" / "context" / "study.json"
PLAIN = "as trained"
STYLES = ("-", "--", "-.", ":")
TOP = 5.0
TICKS = (1.6, 1.8, 2, 2.5, 3, 4, 5)
Curve = dict[int, float]


@functools.cache
def study() -> dict[str, Any]:
    """What was found."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def runs(label: str | None = None, *, tuned: bool = False) -> list[dict[str, Any]]:
    """Its runs: of an encoding, fine-tuned or not."""
    return [run for run in study()["runs"] if run["tuned"] is tuned and label in (None, run["label"])]


def labels(*, tuned: bool = False) -> list[str]:
    """The encodings of a comparison."""
    return list(dict.fromkeys(run["label"] for run in runs(tuned=tuned)))


def rules() -> list[str]:
    """The rules that RoPE was given after training."""
    return list(dict.fromkeys(row["rule"] for row in runs("rope")[0]["positions"] if row["rule"]))


def curve(some: Sequence[Mapping[str, Any]], rule: str | None = None, factor: int | None = None) -> Curve:
    """Bits per byte by the end of each bin of positions, the mean of the seeds."""
    at: dict[int, list[float]] = {}
    for row in (row for run in some for row in run["positions"]):
        if row["rule"] == rule and factor in (None, row["factor"]):
            at.setdefault(row["to"], []).append(row["loss"] / math.log(2))
    return {to: math.fsum(values) / len(values) for to, values in at.items()}


def keys(some: Sequence[Mapping[str, Any]], rule: str | None = None) -> dict[int, str]:
    """The share of digits that are found, by the length of the text."""
    at: dict[int, list[float]] = {}
    for row in (row for run in some for row in run["passkey"] if row["rule"] == rule):
        at.setdefault(row["length"], []).append(row["digits"])
    return {length: f"{math.fsum(x) / len(x):.0%}".replace("%", " %") for length, x in at.items()}


def machine() -> str:
    """On what, with what and when it was measured."""
    found = study()
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return f"Trained and probed on one {found['machine']['device']}, {found['date']}, with {versions}."


def encodings() -> str:
    """Bits per byte of the test text, at positions far out, and keys that are found."""
    ends, asked = _lengths(1, 2, 4, 16), _lengths(1, 4, 16)
    scores = estimate_means({label: [run["test_bits"] for run in runs(label)] for label in labels()})
    head = ["encoding", "test", *_heads(ends, asked)]
    rows = []
    for label, score in sorted(scores.items(), key=lambda each: each[1].mean):
        far, found = curve(runs(label)), keys(runs(label))
        rows.append([name(label), f"{score.mean:.3f} ± {score.half:.3f}", *_cells(far, found, ends, asked)])
    return tables.table(head, rows)


def extended() -> str:
    """RoPE with each rule, without further training: bits per byte in the last bin of a text, and keys."""
    factors = (2, 4, 8, 16)
    ends, asked, rows = _lengths(*factors), _lengths(2, 4, 16), []
    for rule in (None, *rules()):
        far = {end: curve(runs("rope"), rule, by if rule else None)[end] for end, by in zip(ends, factors, strict=True)}
        rows.append([f"`{rule}`" if rule else PLAIN, *_cells(far, keys(runs("rope"), rule), ends, asked)])
    return tables.table(["rule", *_heads(ends, asked)], rows)


def fine_tuned() -> str:
    """After brief fine-tuning on longer texts: the test text, bits further out, keys."""
    scores = estimate_means({label: [run["test_bits"] for run in runs(label, tuned=True)] for label in labels(tuned=True)})
    ends, asked = _lengths(4, 8, 16), _lengths(4, 8)
    head = ["rule", "test", *_heads(ends, asked)]
    rows = []
    for label, score in sorted(scores.items(), key=lambda each: each[1].mean):
        some = runs(label, tuned=True)
        rows.append([name(label), f"{score.mean:.3f} ± {score.half:.3f}", *_cells(curve(some), keys(some), ends, asked)])
    return tables.table(head, rows)


def _lengths(*factors: int) -> list[int]:
    return [study()["length"] * factor for factor in factors]


def _heads(ends: Sequence[int], asked: Sequence[int]) -> list[str]:
    return [*(f"to {end:,}" for end in ends), *(f"keys in {end:,}" for end in asked)]


def _cells(far: Curve, found: Mapping[int, str], ends: Sequence[int], asked: Sequence[int]) -> list[str]:
    return [*(f"{far[end]:.2f}" for end in ends), *(found[end] for end in asked)]


def name(label: str) -> str:
    """A label for a table: the rule alone, where there is one."""
    brief = shorten_label(label, 60)
    return f"`{brief.removeprefix('rope:') if 'extension=' in label else brief}`"


# Figures


def draw(folder: Path) -> None:
    """Losses by position, light and dark, into the folder's images."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for theme, look in FIGURE_THEMES.items():
        _encodings(look).savefig(folder / "images" / f"context-encodings-{theme}.png", dpi=160)
        _rules(look).savefig(folder / "images" / f"context-rules-{theme}.png", dpi=160)


def _encodings(look: FigureTheme) -> Figure:
    curves = {shorten_label(label, 40): curve(runs(label)) for label in labels()}
    free = create_figure_page(7.2, 3.6, look, title="Bits per byte by position", below=_trained(), note=_note())
    axes = free.figure.add_subplot()
    _lines(axes, curves, look)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), **get_legend_style(look))
    return free.figure


def _rules(look: FigureTheme) -> Figure:
    title = "Rules for longer texts, without further training"
    free = create_figure_page(7.2, 3.4, look, title=title, below=_trained(), note=_note())
    both = free.figure.subplots(1, 2, sharey=True)
    for axes, factor in zip(both, (4, 16), strict=True):
        far = {end: bits for end, bits in curve(runs("rope")).items() if end <= factor * study()["length"]}
        _lines(axes, {PLAIN: far, **{rule: curve(runs("rope"), rule, factor) for rule in rules()}}, look)
        axes.set_title(f"{factor} times as long", color=look.ink, fontsize=9, loc="left")
    both[1].set_ylabel("")
    both[1].legend(loc="upper left", bbox_to_anchor=(1, 1), **get_legend_style(look))
    return free.figure


def _trained() -> str:
    return f"Trained on windows of {study()['length']:,} bytes, read from the beginning of longer ones"


def _note() -> str:
    seeds = len({run["seed"] for run in runs()})
    return f"Means of {seeds} seeds; bins are half octaves, drawn at their ends; what is above {TOP:g} bits is cut off."


def _lines(axes: Axes, curves: Mapping[str, Curve], look: FigureTheme) -> None:
    for i, (label, line) in enumerate(curves.items()):
        style = {"color": look.get_head_color(i, len(curves)), "linestyle": STYLES[i % len(STYLES)], "linewidth": 1.7}
        axes.plot(list(line), list(line.values()), label=label, **style)  # type: ignore[arg-type]
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(study()["length"], color=look.line, linewidth=1, zorder=0)
    axes.set(xlabel="position, bytes", ylabel="bits per byte", yscale="log", ylim=(1.55, TOP), yticks=TICKS)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    style_axes(axes, look)


TABLES: dict[str, Callable[[], str]] = {
    "context-machine": machine,
    "context-encodings": encodings,
    "context-rules": extended,
    "context-tuned": fine_tuned,
}

"""Tables and figures of the study of longer texts, from results/context."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmark_tables import load_results
from markdown_text import format_percent, format_table
from ropewalk.lab.figures.figure_layout import create_figure_page, get_legend_style, style_axes
from ropewalk.lab.figures.theme import FigureTheme
from ropewalk.lab.report.panels import shorten_label
from ropewalk.lab.statistics import estimate_means

UNCHANGED = "as trained"
STYLES = ("-", "--", "-.", ":")
MOST_BITS = 5.0
TICKS = (1.6, 1.8, 2, 2.5, 3, 4, 5)
Curve = dict[int, float]


def load_study() -> dict[str, Any]:
    return load_results("context/study.json")


def list_runs(label: str | None = None, *, tuned: bool = False) -> list[dict[str, Any]]:
    """Runs of an encoding, fine-tuned or not."""
    return [run for run in load_study()["runs"] if run["tuned"] is tuned and label in (None, run["label"])]


def list_labels(*, tuned: bool = False) -> list[str]:
    return list(dict.fromkeys(run["label"] for run in list_runs(tuned=tuned)))


def list_rules() -> list[str]:
    """The rules that were applied to RoPE after training."""
    return list(dict.fromkeys(row["rule"] for row in list_runs("rope")[0]["positions"] if row["rule"]))


def compute_bits(runs: Sequence[Mapping[str, Any]], rule: str | None = None, factor: int | None = None) -> Curve:
    """Bits per byte by the end of each bin of positions, the mean over seeds."""
    at: dict[int, list[float]] = {}
    for row in (row for run in runs for row in run["positions"]):
        if row["rule"] == rule and factor in (None, row["factor"]):
            at.setdefault(row["to"], []).append(row["loss"] / math.log(2))
    return {to: math.fsum(values) / len(values) for to, values in at.items()}


def compute_key_shares(runs: Sequence[Mapping[str, Any]], rule: str | None = None) -> Curve:
    """The share of digits of hidden keys that are found, by the length of the text."""
    at: dict[int, list[float]] = {}
    for row in (row for run in runs for row in run["passkey"] if row["rule"] == rule):
        at.setdefault(row["length"], []).append(row["digits"])
    return {length: math.fsum(values) / len(values) for length, values in at.items()}


def compare_runs(head: str, *, tuned: bool, factors: Sequence[int], keys: Sequence[int]) -> str:
    """Bits per byte of the test text, bits at positions and keys in texts of so many times the trained length."""
    ends, lengths = _multiply_length(factors), _multiply_length(keys)
    scores = {label: [run["test_bits"] for run in list_runs(label, tuned=tuned)] for label in list_labels(tuned=tuned)}
    rows = []
    for label, score in sorted(estimate_means(scores).items(), key=lambda each: each[1].mean):
        runs = list_runs(label, tuned=tuned)
        cells = _format_cells(compute_bits(runs), compute_key_shares(runs), ends, lengths)
        rows.append([format_label(label), f"{score.mean:.3f} ± {score.half:.3f}", *cells])
    return format_table([head, "test", *_format_heads(ends, lengths)], rows)


def compare_rules(*, factors: Sequence[int], keys: Sequence[int]) -> str:
    """RoPE with each rule, without further training: bits per byte in the last bin of a text, and keys."""
    ends, lengths, runs, rows = _multiply_length(factors), _multiply_length(keys), list_runs("rope"), []
    for rule in (None, *list_rules()):
        bits = {end: compute_bits(runs, rule, by if rule else None)[end] for end, by in zip(ends, factors, strict=True)}
        cells = _format_cells(bits, compute_key_shares(runs, rule), ends, lengths)
        rows.append([f"`{rule}`" if rule else UNCHANGED, *cells])
    return format_table(["rule", *_format_heads(ends, lengths)], rows)


def _multiply_length(factors: Sequence[int]) -> list[int]:
    return [load_study()["length"] * factor for factor in factors]


def _format_heads(ends: Sequence[int], lengths: Sequence[int]) -> list[str]:
    return [*(f"to {end:,}" for end in ends), *(f"keys in {length:,}" for length in lengths)]


def _format_cells(bits: Curve, shares: Curve, ends: Sequence[int], lengths: Sequence[int]) -> list[str]:
    return [*(f"{bits[end]:.2f}" for end in ends), *(format_percent(shares[length]) for length in lengths)]


def format_label(label: str) -> str:
    """A label in a table: the rule alone if there is one."""
    brief = shorten_label(label, 60)
    return f"`{brief.removeprefix('rope:') if 'extension=' in label else brief}`"


# Figures


def draw_encodings(look: FigureTheme) -> Figure:
    """Bits per byte by position, for each encoding."""
    figure = _create_figure("Bits per byte by position", 3.6, look)
    axes = figure.add_subplot()
    _draw_lines(axes, {shorten_label(label, 40): compute_bits(list_runs(label)) for label in list_labels()}, look)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), **get_legend_style(look))
    return figure


def draw_rules(look: FigureTheme) -> Figure:
    """Bits per byte by position, for RoPE with each rule in texts of two lengths."""
    figure, runs = _create_figure("Rules for longer texts, without further training", 3.4, look), list_runs("rope")
    both = figure.subplots(1, 2, sharey=True)
    for axes, factor in zip(both, (4, 16), strict=True):
        plain = {end: bits for end, bits in compute_bits(runs).items() if end <= factor * load_study()["length"]}
        _draw_lines(axes, {UNCHANGED: plain, **{rule: compute_bits(runs, rule, factor) for rule in list_rules()}}, look)
        axes.set_title(f"{factor} times as long", color=look.ink, fontsize=9, loc="left")
    both[1].set_ylabel("")
    both[1].legend(loc="upper left", bbox_to_anchor=(1, 1), **get_legend_style(look))
    return figure


def _create_figure(title: str, height: float, look: FigureTheme) -> Figure:
    below = f"Trained on windows of {load_study()['length']:,} bytes, read from the beginning of longer ones"
    note = f"Means of {len({run['seed'] for run in list_runs()})} seeds; bins are half octaves, drawn at their ends; "
    note += f"what is above {MOST_BITS:g} bits is cut off."
    return create_figure_page(7.2, height, look, title=title, below=below, note=note).figure


def _draw_lines(axes: Axes, curves: Mapping[str, Curve], look: FigureTheme) -> None:
    for i, (label, line) in enumerate(curves.items()):
        style: Any = {"color": look.get_head_color(i, len(curves)), "linestyle": STYLES[i % len(STYLES)]}
        axes.plot(list(line), list(line.values()), label=label, linewidth=1.7, **style)
    axes.set_xscale("log", base=2)
    axes.axvline(load_study()["length"], color=look.line, linewidth=1, zorder=0)
    axes.set(xlabel="position, bytes", ylabel="bits per byte", yscale="log", ylim=(1.55, MOST_BITS), yticks=TICKS)
    for axis, form in ((axes.xaxis, "{:,.0f}"), (axes.yaxis, "{:g}")):
        axis.set_major_formatter(FuncFormatter(lambda value, _, form=form: form.format(value)))
        axis.set_minor_formatter(NullFormatter())
    style_axes(axes, look)

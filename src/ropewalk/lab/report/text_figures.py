"""Figures of what probes measured on text: loss by position, context extension, and passkey retrieval."""

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ropewalk.lab.figures.figure_layout import get_legend_style
from ropewalk.lab.probes.probe import ProbeRow
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.panels import (
    PANEL_HEIGHT,
    FigurePanel,
    FigureSources,
    ReportFigure,
    add_grid_lines,
    compute_error_lengths,
    describe_error_bars,
    draw_error_bars,
    make_canvas,
    shorten_label,
)
from ropewalk.lab.report.series import EstimateLines, collect_lines
from ropewalk.lab.report.theme import LIGHT_THEME, StyleMap, assign_styles
from ropewalk.lab.statistics import MeanEstimate
from ropewalk.validation import parse_finite

UNIFORM_BITS = 8.0
"""Bits per byte of a uniform guess."""
UNEXTENDED_LABEL = "as trained"


def make_positions_figure(of: FigureSources) -> ReportFigure | str:
    """Draw the loss against the position in the text, a line for each encoding."""
    lines = _collect_position_lines(of.group, None)
    if not lines:
        return "No run was probed for positions."
    intervals = describe_error_bars(each for line in lines.values() for each in line.values())
    caption = (
        "Bits per byte of validation text against the position in a text that is read from its beginning, in bins of half "
        f"an octave, without further training. The axis ends at {UNIFORM_BITS:g}, the bits of a uniform guess. "
        f"{_describe_length_mark(of)} {intervals}"
    )
    title = "Bits per byte by position"
    panel = _draw_length_panel(of, "positions", lines, of.styles, title, "position, bytes", top=UNIFORM_BITS)
    return ReportFigure("positions", "Loss by position", caption, [panel], list(lines))


def make_extensions_figure(of: FigureSources) -> ReportFigure | str:
    """Draw the same with rules of context extension applied after training, a panel for each encoding and length."""
    panels = [
        _draw_extension_panel(of, f"extensions-{i}-{factor}", label, factor)
        for i, label in enumerate(_list_extended_labels(of.group), start=1)
        for factor in _list_factors(of.group, label)
    ]
    if not panels:
        return "No run was probed for context extension."
    caption = (
        "Bits per byte against the position, as trained and with RoPE's frequencies lowered by a rule for texts several "
        f"times as long, without further training. {_describe_length_mark(of)}"
    )
    return ReportFigure("extensions", "Context extension", caption, panels, [])


def make_passkey_figure(of: FigureSources) -> ReportFigure | str:
    """Draw the digits of a hidden key that are retrieved, and their loss, by the length of the text."""
    found, lost = _collect_key_lines(of.group, None, "digits"), _collect_key_lines(of.group, None, "loss")
    if not found:
        return "No run was probed for passkey."
    xlabel = "length of the text, bytes"
    panels = [
        _draw_length_panel(of, "passkey", found, of.styles, "Digits retrieved, share", xlabel, share=True),
        _draw_length_panel(of, "passkey-loss", lost, of.styles, "Loss per digit, nats", xlabel),
        *(
            _draw_key_extension_panel(of, f"passkey-rules-{i}", label)
            for i, label in enumerate(_list_extended_labels(of.group), start=1)
        ),
    ]
    caption = (
        "A key of five digits is hidden in the text at five depths and asked for at its end. Share of digits retrieved, "
        "each given those before it (chance: 0.1), and their loss (chance: 2.30); also with rules of context extension, for "
        f"encodings that support them. {_describe_length_mark(of)}"
    )
    return ReportFigure("passkey", "Passkey retrieval", caption, panels, list(found))


def _describe_length_mark(of: FigureSources) -> str:
    return f"The dashed line is the length in training, {of.group.settings['length']:,}."


def _collect_key_lines(group: RunGroup, rule: str | None, what: str) -> EstimateLines:
    """What was retrieved by the length of the text, as trained or with a rule."""
    return collect_lines(
        group, "passkey", lambda row: parse_finite(row.get("length")) if row.get("rule") == rule else None, what
    )


def _draw_key_extension_panel(of: FigureSources, name: str, label: str) -> FigurePanel:
    """One encoding, as trained and with each rule."""
    rules: dict[str, str | None] = {UNEXTENDED_LABEL: None} | {
        rule: rule for rule in _list_rule_values(of.group, label, "rule")
    }
    lines = {
        words: line for words, rule in rules.items() if (line := _collect_key_lines(of.group, rule, "digits").get(label))
    }
    title, styles = f"{shorten_label(label, 40)}: digits retrieved", assign_styles(lines, UNEXTENDED_LABEL)
    return _draw_length_panel(of, name, lines, styles, title, "length of the text, bytes", encoding=label, share=True)


def _collect_position_lines(group: RunGroup, rule: str | None, factor: int | None = None) -> EstimateLines:
    """Bits per byte by the middle of each bin."""

    def place(entry: ProbeRow) -> float | None:
        first, last = parse_finite(entry.get("from")), parse_finite(entry.get("to"))
        other = entry.get("rule") != rule or (factor is not None and entry.get("factor") != factor)
        return None if other or first is None or last is None else math.sqrt(max(first, last / 4) * last)

    lines = collect_lines(group, "positions", place, "loss")
    return {label: {where: _convert_to_bits(each) for where, each in line.items()} for label, line in lines.items()}


def _convert_to_bits(loss: MeanEstimate) -> MeanEstimate:
    half = None if loss.half is None else loss.half / math.log(2)
    return loss._replace(mean=loss.mean / math.log(2), half=half)


def _list_rule_values(group: RunGroup, label: str, name: str) -> list[Any]:
    entries = [entry for found in group.found[label].values() for entry in found.probes.get("positions", [])]
    return [entry[name] for entry in entries if isinstance(entry.get("rule"), str) and name in entry]


def _list_extended_labels(group: RunGroup) -> list[str]:
    return [label for label in group.found if _list_rule_values(group, label, "rule")]


def _list_factors(group: RunGroup, label: str) -> list[int]:
    return sorted({factor for factor in _list_rule_values(group, label, "factor") if isinstance(factor, int)})


def _draw_extension_panel(of: FigureSources, name: str, label: str, factor: int) -> FigurePanel:
    """One encoding, with each rule for one length."""
    end = factor * of.group.settings["length"]
    plain = _collect_position_lines(of.group, None).get(label, {})
    lines: EstimateLines = (
        {UNEXTENDED_LABEL: {where: each for where, each in plain.items() if where <= end}} if plain else {}
    )
    for rule in dict.fromkeys(_list_rule_values(of.group, label, "rule")):
        if line := _collect_position_lines(of.group, rule, factor).get(label):
            lines[rule] = line
    title = f"{shorten_label(label, 40)}, {factor} times as long"
    styles = assign_styles(lines, UNEXTENDED_LABEL)
    return _draw_length_panel(of, name, lines, styles, title, "position, bytes", encoding=label, top=UNIFORM_BITS)


def _draw_length_panel(
    of: FigureSources,
    name: str,
    lines: EstimateLines,
    styles: StyleMap,
    title: str,
    xlabel: str,
    *,
    encoding: str | None = None,
    **look: Any,
) -> FigurePanel:
    """A panel with a line for each encoding; or, of one encoding, with a line for each rule and a legend of its own."""
    ends = "; ".join(f"{label} {list(line.values())[-1].mean:.3g}" for label, line in lines.items())
    alt, legend = f"{title}; where {xlabel} is largest: {ends}", [] if encoding else list(lines)
    options = {"length": of.group.settings["length"], "xlabel": xlabel, "own_legend": encoding is not None, **look}
    return of.draw_panel(name, alt, legend, plot_length_lines, lines, styles, title, encoding=encoding, **options)


def plot_length_lines(
    lines: Mapping[str, Mapping[Any, MeanEstimate]],
    styles: StyleMap,
    title: str,
    *,
    length: int,
    xlabel: str,
    top: float | None = None,
    own_legend: bool = False,
    share: bool = False,
) -> Figure:
    """Lines over a logarithmic axis on which the length of training is marked."""
    figure, axes = make_canvas(title, PANEL_HEIGHT + (0.1 + 0.19 * -(-len(lines) // 3) if own_legend else 0.0))
    bounds = (0.0, 1.0 if share else math.inf)
    for label, line in lines.items():
        means = [each.mean for each in line.values()]
        bars = compute_error_lengths(line.values(), bounds) if any(each.half for each in line.values()) else None
        style, encoding = styles[label], None if own_legend else label
        look: dict[str, Any] = {"linestyle": style.dash, "markersize": 3, "linewidth": 1.4, "elinewidth": 0.8}
        look |= {"label": shorten_label(label), "bar_alpha": 0.5}
        draw_error_bars(axes, encoding, list(line), means, bars, style=style, **look)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.axvline(length, color=LIGHT_THEME.faint, linewidth=1, linestyle="--")
    if top is not None:
        axes.set_ylim(top=min(axes.get_ylim()[1], top))
    if share:
        axes.set_ylim(-0.04, 1.04)
    if own_legend:
        figure.legend(loc="outside lower left", ncols=3, **get_legend_style(LIGHT_THEME))
    axes.set_xlabel(xlabel)
    add_grid_lines(axes)
    return figure

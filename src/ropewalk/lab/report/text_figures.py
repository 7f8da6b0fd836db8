"""Figures of what probes found of runs on text: losses by position, rules for longer texts, hidden keys."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure

from ropewalk.lab.figures.figure_layout import get_legend_style
from ropewalk.lab.report.figures import FigurePanel, FigureSources, ReportFigure, describe_error_bars
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.panels import PANEL_HEIGHT, StyleMap, add_horizontal_grid, make_canvas, shorten_label
from ropewalk.lab.report.series import EstimateLines, ProbeEntry, collect_lines
from ropewalk.lab.report.theme import LIGHT_THEME, assign_styles
from ropewalk.lab.statistics import MeanEstimate
from ropewalk.validation import parse_finite

BLIND_GUESS_BITS = 8.0
"""Bits per byte of somebody who knows nothing."""
CUTOFF_NOTE = f"What is above {BLIND_GUESS_BITS:g}, more than a blind guess has, is not drawn."
UNEXTENDED_LABEL = "as trained"


def make_positions_figure(of: FigureSources) -> ReportFigure | str:
    """The loss against the position in the text, a line for each encoding."""
    lines = _collect_position_lines(of.group, None)
    if not lines:
        return "No run was probed for positions."
    intervals = describe_error_bars(each for line in lines.values() for each in line.values())
    caption = (
        "Bits per byte of the validation text against the position in a text that is read from its beginning, without "
        f"further training; bins are half octaves. {_describe_length_mark(of)} {CUTOFF_NOTE} {intervals}"
    )
    made = _make_length_panel(
        of, "positions", lines, of.styles, "Bits per byte by position", "position, bytes", top=BLIND_GUESS_BITS
    )
    return ReportFigure("positions", "Loss by position", caption, [made], list(lines))


def make_extensions_figure(of: FigureSources) -> ReportFigure | str:
    """The same by rules of context extension that were applied after training, a picture for each encoding and length."""
    shown = [
        _make_rules_panel(of, f"extensions-{i}-{factor}", label, factor)
        for i, label in enumerate(_list_ruled_labels(of.group), start=1)
        for factor in _list_factors(of.group, label)
    ]
    if not shown:
        return "No run was probed for rules of context extension."
    caption = (
        "Bits per byte against the position where a rule slows RoPE down for texts so many times as long as those of "
        f"training, without further training, and as it was trained. {_describe_length_mark(of)} {CUTOFF_NOTE}"
    )
    return ReportFigure("extensions", "Rules for longer texts", caption, shown, [])


def make_passkey_figure(of: FigureSources) -> ReportFigure | str:
    """Digits of a hidden key that are found, and their loss, by the length of the text."""
    found, lost = _collect_key_lines(of.group, None, "digits"), _collect_key_lines(of.group, None, "loss")
    if not found:
        return "No run was probed for a hidden key."
    shown = [
        _make_length_panel(of, "passkey", found, of.styles, "Digits found, share", "length of the text, bytes", share=True),
        _make_length_panel(of, "passkey-loss", lost, of.styles, "Loss of a digit, nats", "length of the text, bytes"),
        *(
            _make_key_rules_panel(of, f"passkey-rules-{i}", label)
            for i, label in enumerate(_list_ruled_labels(of.group), start=1)
        ),
    ]
    caption = (
        "A key of five digits is hidden in the text at five depths and asked for at its end: the share of digits that are "
        f"found, each after those before it, where chance finds a tenth, and their loss, of which chance has 2.30; where an "
        f"encoding takes rules for longer texts, also with each. {_describe_length_mark(of)}"
    )
    return ReportFigure("passkey", "A hidden key", caption, shown, list(found))


def _describe_length_mark(of: FigureSources) -> str:
    return f"The dashed line is the length of training, {of.group.settings['length']:,}."


def _collect_key_lines(group: RunGroup, rule: str | None, what: str) -> EstimateLines:
    """What was found of keys, by the length of the text, as trained or with a rule."""
    return collect_lines(
        group, "passkey", lambda row: parse_finite(row.get("length")) if row.get("rule") == rule else None, what
    )


def _make_key_rules_panel(of: FigureSources, name: str, label: str) -> FigurePanel:
    """One encoding, as it was trained and with each rule."""
    rules: dict[str, str | None] = {UNEXTENDED_LABEL: None} | {
        rule: rule for rule in _list_rule_values(of.group, label, "rule")
    }
    lines = {
        words: line for words, rule in rules.items() if (line := _collect_key_lines(of.group, rule, "digits").get(label))
    }
    title = f"{shorten_label(label, 40)}: digits found"
    return _make_length_panel(
        of, name, lines, assign_styles(lines, UNEXTENDED_LABEL), title, "length of the text, bytes", keys=True, share=True
    )


def _collect_position_lines(group: RunGroup, rule: str | None, factor: int | None = None) -> EstimateLines:
    """Bits per byte by the middle of each bin."""

    def place(entry: ProbeEntry) -> float | None:
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


def _list_ruled_labels(group: RunGroup) -> list[str]:
    return [label for label in group.found if _list_rule_values(group, label, "rule")]


def _list_factors(group: RunGroup, label: str) -> list[int]:
    return sorted({factor for factor in _list_rule_values(group, label, "factor") if isinstance(factor, int)})


def _make_rules_panel(of: FigureSources, name: str, label: str, factor: int) -> FigurePanel:
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
    return _make_length_panel(
        of, name, lines, assign_styles(lines, UNEXTENDED_LABEL), title, "position, bytes", top=BLIND_GUESS_BITS, keys=True
    )


def _make_length_panel(
    of: FigureSources, name: str, lines: EstimateLines, styles: StyleMap, title: str, xlabel: str, **look: Any
) -> FigurePanel:
    ends = "; ".join(f"{label} {list(line.values())[-1].mean:.3g}" for label, line in lines.items())
    alt, named = f"{title}; where {xlabel} is largest: {ends}", [] if look.get("keys") else list(lines)
    return of.panel(
        name, alt, named, plot_length_lines, lines, styles, title, length=of.group.settings["length"], xlabel=xlabel, **look
    )


def plot_length_lines(
    lines: Mapping[str, Mapping[Any, MeanEstimate]],
    styles: StyleMap,
    title: str,
    *,
    length: int,
    xlabel: str,
    top: float | None = None,
    keys: bool = False,
    share: bool = False,
) -> Figure:
    """Lines over a logarithmic axis on which the length of training is marked."""
    figure, axes = make_canvas(title, PANEL_HEIGHT + (0.1 + 0.19 * -(-len(lines) // 3) if keys else 0.0))
    for label, line in lines.items():
        style, y = styles[label], [each.mean for each in line.values()]
        look: dict[str, Any] = {"fmt": style.mark, "linestyle": style.dash, "color": style.colour, "elinewidth": 0.8}
        half = [each.half or 0.0 for each in line.values()] if any(each.half for each in line.values()) else None
        axes.errorbar(list(line), y, half, label=shorten_label(label), markersize=3, linewidth=1.4, **look)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(_format_thousands())
    axes.axvline(length, color=LIGHT_THEME.faint, linewidth=1, linestyle="--")
    if top is not None:
        axes.set_ylim(top=min(axes.get_ylim()[1], top))
    if share:
        axes.set_ylim(-0.04, 1.04)
    if keys:
        figure.legend(loc="outside lower left", ncols=3, **get_legend_style(LIGHT_THEME))
    axes.set_xlabel(xlabel)
    add_horizontal_grid(axes)
    return figure


def _format_thousands() -> Callable[[float, Any], str]:
    return lambda value, _: f"{value:,.0f}"

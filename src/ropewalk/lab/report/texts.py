"""Figures of what probes found of runs on text: losses by position, rules for longer texts, hidden keys."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure

from ropewalk.lab.intervals import Estimate
from ropewalk.lab.plots.page import legend_style
from ropewalk.lab.report.figures import Panel, Shown, Sources, bars
from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.panels import HEIGHT, Styles, across, canvas, short
from ropewalk.lab.report.reading import Entry, number
from ropewalk.lab.report.series import Lines, lines_of
from ropewalk.lab.report.styles import LIGHT, styles_of

BLIND = 8.0
"""Bits per byte of somebody who knows nothing."""
HIDDEN = f"What is above {BLIND:g}, more than a blind guess has, is not drawn."
PLAIN = "as trained"


def positions(of: Sources) -> Shown | str:
    """The loss against the position in the text, a line for each encoding."""
    lines = _by_position(of.group, None)
    if not lines:
        return "No run was probed for positions."
    intervals = bars(each for line in lines.values() for each in line.values())
    caption = (
        "Bits per byte of the validation text against the position in a text that is read from its beginning, without "
        f"further training; bins are half octaves. {_marked(of)} {HIDDEN} {intervals}"
    )
    made = _panel(of, "positions", lines, of.styles, "Bits per byte by position", "position, bytes", top=BLIND)
    return Shown("positions", "Loss by position", caption, [made], list(lines))


def extensions(of: Sources) -> Shown | str:
    """The same by rules of context extension that were applied after training, a picture for each encoding and length."""
    shown = [
        _rules(of, f"extensions-{i}-{factor}", label, factor)
        for i, label in enumerate(_ruled(of.group), start=1)
        for factor in _factors(of.group, label)
    ]
    if not shown:
        return "No run was probed for rules of context extension."
    caption = (
        "Bits per byte against the position where a rule slows RoPE down for texts so many times as long as those of "
        f"training, without further training, and as it was trained. {_marked(of)} {HIDDEN}"
    )
    return Shown("extensions", "Rules for longer texts", caption, shown, [])


def passkey(of: Sources) -> Shown | str:
    """Digits of a hidden key that are found, and their loss, by the length of the text."""
    found, lost = _keys(of.group, None, "digits"), _keys(of.group, None, "loss")
    if not found:
        return "No run was probed for a hidden key."
    shown = [
        _panel(of, "passkey", found, of.styles, "Digits found, share", "length of the text, bytes", share=True),
        _panel(of, "passkey-loss", lost, of.styles, "Loss of a digit, nats", "length of the text, bytes"),
        *(_ruled_keys(of, f"passkey-rules-{i}", label) for i, label in enumerate(_ruled(of.group), start=1)),
    ]
    caption = (
        "A key of five digits is hidden in the text at five depths and asked for at its end: the share of digits that are "
        f"found, each after those before it, where chance finds a tenth, and their loss, of which chance has 2.30; where an "
        f"encoding takes rules for longer texts, also with each. {_marked(of)}"
    )
    return Shown("passkey", "A hidden key", caption, shown, list(found))


def _marked(of: Sources) -> str:
    return f"The dashed line is the length of training, {of.group.settings['length']:,}."


def _keys(group: Group, rule: str | None, what: str) -> Lines:
    """What was found of keys, by the length of the text, as trained or with a rule."""
    return lines_of(group, "passkey", lambda row: number(row.get("length")) if row.get("rule") == rule else None, what)


def _ruled_keys(of: Sources, name: str, label: str) -> Panel:
    """One encoding, as it was trained and with each rule."""
    rules: dict[str, str | None] = {PLAIN: None} | {rule: rule for rule in _seen(of.group, label, "rule")}
    lines = {words: line for words, rule in rules.items() if (line := _keys(of.group, rule, "digits").get(label))}
    title = f"{short(label, 40)}: digits found"
    return _panel(of, name, lines, styles_of(lines, PLAIN), title, "length of the text, bytes", keys=True, share=True)


def _by_position(group: Group, rule: str | None, factor: int | None = None) -> Lines:
    """Bits per byte by the middle of each bin."""

    def place(entry: Entry) -> float | None:
        first, last = number(entry.get("from")), number(entry.get("to"))
        other = entry.get("rule") != rule or (factor is not None and entry.get("factor") != factor)
        return None if other or first is None or last is None else math.sqrt(max(first, last / 4) * last)

    lines = lines_of(group, "positions", place, "loss")
    return {label: {where: _bits(each) for where, each in line.items()} for label, line in lines.items()}


def _bits(loss: Estimate) -> Estimate:
    half = None if loss.half is None else loss.half / math.log(2)
    return loss._replace(mean=loss.mean / math.log(2), half=half)


def _seen(group: Group, label: str, name: str) -> list[Any]:
    entries = [entry for found in group.found[label].values() for entry in found.probes.get("positions", [])]
    return [entry[name] for entry in entries if isinstance(entry.get("rule"), str) and name in entry]


def _ruled(group: Group) -> list[str]:
    return [label for label in group.found if _seen(group, label, "rule")]


def _factors(group: Group, label: str) -> list[int]:
    return sorted({factor for factor in _seen(group, label, "factor") if isinstance(factor, int)})


def _rules(of: Sources, name: str, label: str, factor: int) -> Panel:
    """One encoding, with each rule for one length."""
    end = factor * of.group.settings["length"]
    plain = _by_position(of.group, None).get(label, {})
    lines: Lines = {PLAIN: {where: each for where, each in plain.items() if where <= end}} if plain else {}
    for rule in dict.fromkeys(_seen(of.group, label, "rule")):
        if line := _by_position(of.group, rule, factor).get(label):
            lines[rule] = line
    title = f"{short(label, 40)}, {factor} times as long"
    return _panel(of, name, lines, styles_of(lines, PLAIN), title, "position, bytes", top=BLIND, keys=True)


def _panel(of: Sources, name: str, lines: Lines, styles: Styles, title: str, xlabel: str, **look: Any) -> Panel:
    ends = "; ".join(f"{label} {list(line.values())[-1].mean:.3g}" for label, line in lines.items())
    alt, named = f"{title}; where {xlabel} is largest: {ends}", [] if look.get("keys") else list(lines)
    return of.panel(name, alt, named, far, lines, styles, title, length=of.group.settings["length"], xlabel=xlabel, **look)


def far(
    lines: Mapping[str, Mapping[Any, Estimate]],
    styles: Styles,
    title: str,
    *,
    length: int,
    xlabel: str,
    top: float | None = None,
    keys: bool = False,
    share: bool = False,
) -> Figure:
    """Lines over a logarithmic axis on which the length of training is marked."""
    figure, axes = canvas(title, HEIGHT + (0.1 + 0.19 * -(-len(lines) // 3) if keys else 0.0))
    for label, line in lines.items():
        style, y = styles[label], [each.mean for each in line.values()]
        look: dict[str, Any] = {"fmt": style.mark, "linestyle": style.dash, "color": style.colour, "elinewidth": 0.8}
        half = [each.half or 0.0 for each in line.values()] if any(each.half for each in line.values()) else None
        axes.errorbar(list(line), y, half, label=short(label), markersize=3, linewidth=1.4, **look)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(_whole())
    axes.axvline(length, color=LIGHT.faint, linewidth=1, linestyle="--")
    if top is not None:
        axes.set_ylim(top=min(axes.get_ylim()[1], top))
    if share:
        axes.set_ylim(-0.04, 1.04)
    if keys:
        figure.legend(loc="outside lower left", ncols=3, **legend_style(LIGHT))
    axes.set_xlabel(xlabel)
    across(axes)
    return figure


def _whole() -> Callable[[float, Any], str]:
    return lambda value, _: f"{value:,.0f}"

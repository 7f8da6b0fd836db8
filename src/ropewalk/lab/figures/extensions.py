"""The frequencies of RoPE under rules of context extension."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ropewalk import spectra
from ropewalk.extension import Rule
from ropewalk.extension.by_parts import Llama3, YaRN
from ropewalk.extension.longrope import YarnArticle
from ropewalk.extension.scaling import DynamicNTK, Linear, NTKAware
from ropewalk.lab.figures.figure_layout import (
    add_outlined_text,
    add_second_scale,
    create_figure_page,
    get_legend_style,
    style_axes,
)
from ropewalk.lab.figures.theme import FigureTheme, get_figure_theme

LINE_STYLES = ("-", "--", "-.", ":")
EXTENSION_NOTE = (
    "Where a line is at 1 a pair turns as in training; at the dotted line a text of {:g} times the length turns it no "
    "farther than training did. In brackets: what q and k are each multiplied by."
)


class ExtensionCurve(NamedTuple):
    """New frequencies over old ones (P), and what q and k are multiplied by."""

    ratio: Tensor
    attention_factor: float


def create_default_rules(factor: float, original: int) -> dict[str, Rule]:
    """Rules for one factor and one length of training, without LongRoPE, whose lists belong to a model, and NTK-by-parts,
    which is YaRN's paper but for the factor of q and k."""
    by: dict[str, Any] = {"factor": factor, "original_max_position_embeddings": original}
    return {
        "linear": Linear(factor=factor),
        "NTK-aware": NTKAware(factor=factor),
        "dynamic NTK": DynamicNTK(**by),
        "YaRN's paper": YaRN(**by, ramp="turns"),
        "YaRN's code": YaRN(**by),
        "Llama 3": Llama3(**by),
        "an article's “YaRN”": YarnArticle(**by),
    }


def draw_extensions(
    rules: Mapping[str, Rule] | None = None,
    *,
    base: float = 10000.0,
    rotary_dim: int = 128,
    original: int = 4096,
    factor: float = 8.0,
    length: int | None = None,
    theme: str = "light",
) -> Figure:
    """New frequencies over old ones, for each rule, over the old frequency.

    `rules` by what they are called, by default the usual ones; `length` is that of the text, by default factor · original,
    for rules that depend on it.
    """
    look, length = get_figure_theme(theme), int(factor * original) if length is None else length
    found = compute_extension_curves(
        create_default_rules(factor, original) if rules is None else rules, base=base, rotary_dim=rotary_dim, length=length
    )
    below = f"RoPE of base {base:,.0f} and {rotary_dim} channels, trained on {original:,} tokens, read with {length:,}"
    free = create_figure_page(
        7.2, 3.6, look, title="Context extension: new frequency over old", below=below, note=EXTENSION_NOTE.format(factor)
    )
    axes = free.figure.add_subplot()
    _draw_curves(axes, found, spectra.geometric(rotary_dim // 2, base), look)
    axes.axhline(1 / factor, color=look.faint, linestyle=":", linewidth=1)
    _draw_turn_marks(axes, original, look)
    style_axes(axes, look)
    add_second_scale(axes, "top", "wavelength (tokens)", _invert_frequency, _invert_frequency, look)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), **get_legend_style(look))
    return free.figure


def compute_extension_curves(
    rules: Mapping[str, Rule], *, base: float, rotary_dim: int, length: int
) -> dict[str, ExtensionCurve]:
    """The ratios that `draw_extensions` draws."""
    frequency = spectra.geometric(rotary_dim // 2, base)
    made = {name: rule(frequency, base=base, rotary_dim=rotary_dim, length=length) for name, rule in rules.items()}
    return {name: ExtensionCurve(new.frequency / frequency, new.attention_factor) for name, new in made.items()}


def _draw_curves(axes: Axes, found: Mapping[str, ExtensionCurve], frequency: Tensor, look: FigureTheme) -> None:
    for i, (name, line) in enumerate(found.items()):
        words = name if line.attention_factor == 1 else f"{name} (× {line.attention_factor:.3f})"
        style: dict[str, Any] = {
            "color": look.get_head_color(i, len(found)),
            "linestyle": LINE_STYLES[i % len(LINE_STYLES)],
            "linewidth": 1.7,
        }
        axes.plot(frequency.tolist(), line.ratio.tolist(), label=words, **style)
    axes.set(xscale="log", xlabel="frequency in training (radians a token)", ylabel="new frequency / old", ylim=(0, 1.04))
    axes.set_xlim(frequency[-1].item() / 1.1, frequency[0].item() * 1.1)


def _draw_turn_marks(axes: Axes, original: int, look: FigureTheme) -> None:
    """The frequencies that turn once, four and 32 times within the length of training."""
    low, high = axes.get_xlim()
    for count in (1, 4, 32):
        x = 2 * math.pi * count / original
        if low < x < high:
            axes.axvline(x, color=look.line, linewidth=1, zorder=0)
            add_outlined_text(axes, x, 0.02, f" {count} turn{'s' if count > 1 else ''}", look, va="bottom", ha="left")


def _invert_frequency(x: Any) -> Any:
    """Wavelength from frequency and back; matplotlib asks for that of 0 too."""
    return 2 * math.pi / (x + 1e-12)

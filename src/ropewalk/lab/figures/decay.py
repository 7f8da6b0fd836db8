"""Scores against distance."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.lab.figures.figure_layout import (
    LABEL_SIZE,
    create_figure_page,
    format_figure_subtitle,
    get_legend_style,
    style_axes,
)
from ropewalk.lab.figures.theme import FigureTheme, get_figure_theme
from ropewalk.lab.inspect.attention_scores import compute_attention_inputs, sample_random_tokens
from ropewalk.lab.inspect.code_structure import count_distinct_heads
from ropewalk.lab.inspect.figure_grid import (
    get_axis_names,
    get_step_unit,
    interpolate_positions,
    resolve_grid_size,
    spread_indices,
)

DECAY_TEXT_LENGTH, POINTS_PER_PATCH, MAX_DECAY_HEADS, MAX_DECAY_NUMBERS = 256, 8, 4, 2**22
DECAY_NOTE = (
    "Score: q · k / √d and what is added, for q and k of norm √d and random directions. Lines: means of {} draws. "
    "Band: 80 % of those of head 1."
)


class DecayCurves(NamedTuple):
    """Distances (n), and scores (draws, H, n) of aligned and of independent queries and keys."""

    distance: Tensor
    aligned: Tensor
    random: Tensor


def draw_decay(
    encoding: Encoding,
    *,
    theme: str = "light",
    size: Sequence[int] | None = None,
    axis: int = -1,
    seed: int = 0,
    layer: int = 0,
) -> Figure:
    """Scores of a query with keys ever farther along an axis: for q = k, and for q and k drawn independently.

    The query stands last along the axis, with the keys before it, and in the middle of the other axes. Lines are means over
    many draws; the band holds 80 % of those of the first head. RoPE's long-range decay is that of aligned q and k: others
    have none.
    """
    look, size = get_figure_theme(theme), resolve_grid_size(encoding, size, places=DECAY_TEXT_LENGTH)
    names = get_axis_names(encoding.axes)
    if not -len(names) <= axis < len(names):
        raise ValueError(f"axis must be one of the {len(names)} axes, got {axis}")
    found = compute_decay_curves(encoding, size, axis=axis, seed=seed, layer=layer)
    heads = spread_indices(count_distinct_heads(encoding), MAX_DECAY_HEADS)
    title, below = f"score against distance along {names[axis]}s", format_figure_subtitle(encoding, size, layer)
    free = create_figure_page(
        7.0, 2.9, look, title=f"{encoding.name}: {title}", below=below, note=DECAY_NOTE.format(len(found.aligned))
    )
    left, right = free.figure.subplots(1, 2, sharey=True)
    for axes, scores, words in ((left, found.aligned, "aligned: q = k"), (right, found.random, "independent q and k")):
        style_axes(axes, look)
        _draw_curves(axes, found.distance, scores, heads, look)
        axes.set_title(words, color=look.ink, fontsize=LABEL_SIZE)
        axes.set_xlabel(f"distance ({get_step_unit(encoding.axes)})")
    left.set_ylabel("score")
    if len(heads) > 1:
        right.legend(**get_legend_style(look))
    return free.figure


@torch.no_grad()
def compute_decay_curves(
    encoding: Encoding, size: Sequence[int], *, axis: int = -1, seed: int = 0, layer: int = 0
) -> DecayCurves:
    """The scores that `draw_decay` draws."""
    axis %= encoding.axes
    n = size[axis]
    away = (
        torch.arange(n, dtype=torch.float32)
        if encoding.axes == 1
        else torch.linspace(0, n - 1, POINTS_PER_PATCH * (n - 1) + 1)
    )
    middle = [torch.tensor([(m - 1) / 2]) for m in size]
    lines = (torch.tensor([n - 1.0]), n - 1 - away)
    at, to = (interpolate_positions(encoding, size, *middle[:axis], line, *middle[axis + 1 :]) for line in lines)
    draws = min(max(MAX_DECAY_NUMBERS // (encoding.heads * encoding.head_dim * len(away)), 16), 96)
    x, y = sample_random_tokens(encoding, 2 * draws, seed).chunk(2)
    aligned, random = (compute_attention_inputs(encoding, x, key, at, to, layer=layer).logits()[:, :, 0] for key in (x, y))
    return DecayCurves(away, aligned, random)


def _draw_curves(axes: Axes, distance: Tensor, scores: Tensor, heads: list[int], look: FigureTheme) -> None:
    axes.axhline(0, color=look.line, linewidth=1, zorder=0)
    for head in heads:
        colour = look.get_head_color(head, heads[-1] + 1)
        low, high = torch.quantile(scores[:, head], torch.tensor([0.1, 0.9]), dim=0)
        if head == 0:
            axes.fill_between(distance.numpy(), low.numpy(), high.numpy(), color=colour, alpha=0.2, linewidth=0)
        axes.plot(distance, scores[:, head].mean(0), color=colour, linewidth=1.5, label=f"head {head + 1}")
    axes.margins(x=0.01)

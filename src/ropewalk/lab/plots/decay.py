"""Scores against distance."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.lab.anatomy import distinct_heads
from ropewalk.lab.patterns import spread
from ropewalk.lab.places import axis_names, between, size_of, unit
from ropewalk.lab.plots.page import LABEL, legend_style, page, plain, subtitle
from ropewalk.lab.plots.theme import Theme, look_of
from ropewalk.lab.scores import meet, random_tokens

PLACES, FINER, HEADS, NUMBERS = 256, 8, 4, 2**22
NOTE = (
    "Score: q · k / √d and what is added, for q and k of norm √d and random directions. Lines: means of {} draws. "
    "Band: 80 % of those of head 1."
)


class Curves(NamedTuple):
    """Distances (n), and scores (draws, H, n) of aligned and of independent queries and keys."""

    distance: Tensor
    aligned: Tensor
    random: Tensor


def decay(
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
    look, size = look_of(theme), size_of(encoding, size, places=PLACES)
    names = axis_names(encoding.axes)
    if not -len(names) <= axis < len(names):
        raise ValueError(f"axis must be one of the {len(names)} axes, got {axis}")
    found = curves(encoding, size, axis=axis, seed=seed, layer=layer)
    heads = spread(distinct_heads(encoding), HEADS)
    title, below = f"score against distance along {names[axis]}s", subtitle(encoding, size, layer)
    free = page(7.0, 2.9, look, title=f"{encoding.name}: {title}", below=below, note=NOTE.format(len(found.aligned)))
    left, right = free.figure.subplots(1, 2, sharey=True)
    for axes, scores, words in ((left, found.aligned, "aligned: q = k"), (right, found.random, "independent q and k")):
        plain(axes, look)
        _curves(axes, found.distance, scores, heads, look)
        axes.set_title(words, color=look.ink, fontsize=LABEL)
        axes.set_xlabel(f"distance ({unit(encoding.axes)})")
    left.set_ylabel("score")
    if len(heads) > 1:
        right.legend(**legend_style(look))
    return free.figure


@torch.no_grad()
def curves(encoding: Encoding, size: Sequence[int], *, axis: int = -1, seed: int = 0, layer: int = 0) -> Curves:
    """The scores that `decay` draws."""
    axis %= encoding.axes
    n = size[axis]
    away = torch.arange(n, dtype=torch.float32) if encoding.axes == 1 else torch.linspace(0, n - 1, FINER * (n - 1) + 1)
    middle = [torch.tensor([(m - 1) / 2]) for m in size]
    lines = (torch.tensor([n - 1.0]), n - 1 - away)
    at, to = (between(encoding, size, *middle[:axis], line, *middle[axis + 1 :]) for line in lines)
    draws = min(max(NUMBERS // (encoding.heads * encoding.head_dim * len(away)), 16), 96)
    x, y = random_tokens(encoding, 2 * draws, seed).chunk(2)
    aligned, random = (meet(encoding, x, key, at, to, layer=layer).logits()[:, :, 0] for key in (x, y))
    return Curves(away, aligned, random)


def _curves(axes: Axes, distance: Tensor, scores: Tensor, heads: list[int], look: Theme) -> None:
    axes.axhline(0, color=look.line, linewidth=1, zorder=0)
    for head in heads:
        colour = look.of_head(head, heads[-1] + 1)
        low, high = torch.quantile(scores[:, head], torch.tensor([0.1, 0.9]), dim=0)
        if head == 0:
            axes.fill_between(distance.numpy(), low.numpy(), high.numpy(), color=colour, alpha=0.2, linewidth=0)
        axes.plot(distance, scores[:, head].mean(0), color=colour, linewidth=1.5, label=f"head {head + 1}")
    axes.margins(x=0.01)

"""Uniform RoPE: one frequency, and whether it tells all places apart."""

import math
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from .figures import Theme, cool, label, legend, sheet, warm
from .page import Finding, made, percent, picture, table

SIDE = 14
SETUPS = {
    "uniform, ω = 1 (paper)": ("uniform", "van-de-geijn"),
    "uniform, ω = 1/π (file)": ("uniform", "van-de-geijn-code"),
    "axial, same paper": ("axial", "van-de-geijn"),
}


def rotations(name: str, variant: str, **options: float) -> Tensor:
    """The cosines and sines of all pairs at every place of the image, (N 2P): what tells places apart."""
    encoding = made(name, head_dim=64, size=(SIDE, SIDE), variant=variant, **options)
    angle = encoding(encoding.grid(SIDE, SIDE)).q_angle[0]
    return torch.cat([angle.cos(), angle.sin()], -1)


def codes(name: str, variant: str, **options: float) -> int:
    """How many places of the image have different rotations."""
    return len(torch.unique(rotations(name, variant, **options).mul(1e6).round(), dim=0))


def first_row(name: str, variant: str) -> Tensor:
    """The score of a query in the first column with an equal key in each column of its row, 1 where they coincide."""
    code = rotations(name, variant)
    return (code[:SIDE] @ code[0]) / code[0].square().sum()


def draw(found: dict[str, Tensor], look: Theme) -> Figure:
    """The scores over columns."""
    figure, axes = sheet(look, height=2.7)
    for (name, score), colour, mark in zip(found.items(), (warm(look), cool(look), look.faint), "osv", strict=True):
        axes.plot(score.tolist(), color=colour, marker=mark, markersize=4, label=name, linewidth=1.4)
    axes.axhline(1, color=look.faint, linewidth=0.6, linestyle="--", zorder=0)
    axes.set(xticks=range(SIDE), ylim=(-0.05, 1.08))
    label(axes, look, x="column of the key; the query stands in column 0", y="score, equal q and k")
    legend(axes, look, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    return figure


def finding() -> Finding:
    """The section."""
    counts = {name: codes(*setup) for name, setup in SETUPS.items()}
    scores = {name: first_row(*setup) for name, setup in SETUPS.items()}
    rows = [(name, counts[name], f"{scores[name][1]:.3f}", f"{scores[name][-1]:.3f}") for name in SETUPS]
    paper, file, axial = counts.values()
    text = f"""
Uniform RoPE has one frequency for all pairs, chosen in the paper so that the turn is completed once across the image and
every position has a code of its own. Positions run from -π to π with both ends included, so ω = 1 does it. But -π and π
are one angle: the first and the last patch of a row or column get the same code, and a query in the first column cannot
tell a key in the last column from one in its own. Of {SIDE * SIDE} places {paper} codes are left, {SIDE - 1} ×
{SIDE - 1}.

The published file has ω = 1/π instead, which is 2 rad across the image, {percent(1 / math.pi)} of a turn. Its {file}
codes differ, those of neighbours by little.

{picture("uniform", "Score over columns: with the paper's frequency it returns to 1 at the last column")}

{table(("", "different codes", "score with the next column", "score with the last column"), rows)}

The score is that of equal q and k in the same row, 1 if they stand in the same place; the pairs of the other axis keep
it from falling below 0. Axial RoPE's fastest pair returns too; the slower ones keep its {axial} places apart. The
constructor of the file's uniform class takes numbers of patches by name and hands them to a parent that wants positions,
so it does not run as it stands, and we do not know which frequency the paper's 70.5 and 74.9 % belong to. The first is 1.6
points below its axial RoPE, on CIFAR-100. In [our study](studies/equivariance.md#claims) uniform RoPE is 1.4 ± 1.5 below
axial with the file's frequency, and 12.4 with 6 radians across the image, nearly the paper's: the file's agrees better.

In ropewalk `uniform` has both: `variant="van-de-geijn"` with ω = 1 and `"van-de-geijn-code"` with 1/π. With
`scale={SIDE - 1}/{SIDE}` the patches of the first are spread evenly over the turn, and
{codes("uniform", "van-de-geijn", scale=(SIDE - 1) / SIDE)} codes differ.
"""
    return Finding(
        name="uniform",
        title="Uniform RoPE gives the first and the last patch the same code",
        number=f"{paper} codes for {SIDE * SIDE} places; {percent(1 / math.pi)} of a turn in the file",
        where="arXiv 2511.08368, paper and code",
        here="`van-de-geijn`, `van-de-geijn-code`; `scale=`",
        text=text,
        figures={"uniform": partial(draw, scores)},
    )

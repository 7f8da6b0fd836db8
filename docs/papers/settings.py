"""Settings in which ComRoPE's published file differs from its paper: APE flag, perturbation, frames, heads."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import ropewalk as rw

from .figures import Theme, cool, label, legend, sheet, warm
from .page import Finding, made, percent, picture, table

SIDE = 14
DRAWS = 200_000


def has_ape(keep_ape: bool) -> bool:
    """Whether the file builds a rotary model with the absolute embedding: it branches on `not keep_ape`."""
    return not keep_ape


def perturbation(variant: str) -> Tensor:
    """How far patches are moved at sigma 1, in patches."""
    still = torch.zeros(DRAWS, 1, dtype=torch.float64)
    return rw.positions.perturb(still, 1.0, variant=variant, generator=torch.Generator().manual_seed(0)).flatten()


def on_the_edge(moves: Tensor) -> float:
    """The share of patches that end exactly on the border of their cell."""
    return (moves.abs() == 0.5).double().mean().item()


def frames(count: int, over: int) -> tuple[float, float]:
    """The first and the last frame's coordinate when frame i of `count` stands at (i + 1/2) / over."""
    first, last = (torch.arange(count)[[0, -1]] + 0.5) / over
    return first.item(), last.item()


def parameters(variant: str) -> int:
    """Learned numbers of ComRoPE-LD with block 8 in a ViT-B."""
    encoding = made("comrope-ld", head_dim=64, heads=12, layers=12, block=8, variant=variant)
    return sum(parameter.numel() for parameter in encoding.parameters())


def draw(moves: dict[str, Tensor], look: Theme) -> Figure:
    """Histograms of both perturbations."""
    figure, axes = sheet(look, height=2.5)
    for (name, move), colour, style in zip(moves.items(), (cool(look), warm(look)), ("stepfilled", "step"), strict=True):
        axes.hist(
            move.numpy(), bins=20, range=(-0.5, 0.5), density=True, histtype=style, color=colour, label=name, linewidth=1.4
        )
    label(axes, look, x="displacement, in patches", y="density")
    legend(axes, look, loc="upper center")
    return figure


def finding() -> Finding:
    """The section."""
    moves = {"paper: truncated": perturbation("paper"), "file: half as wide, clamped": perturbation("code")}
    paper, file = moves.values()
    flags = [(f"`keep_ape={flag}`", "with APE" if has_ape(flag) else "without APE") for flag in (False, True)]
    (wanted, wanted_last), (first, last) = frames(8, 8), frames(8, SIDE)
    theta, shared = parameters("yu"), parameters("yu-code")
    text = f"""
Four settings of the published file (`model.py`) are not those of the paper. The scripts of the paper's runs are not
published, so we cannot tell which of them the tables were made with.

**The flag for the absolute embedding is inverted.** The paper removes it from rotary models. The file chooses the
embedding class with APE if `keep_ape` is *not* set, and it is not set by default:

{table(("flag", "rotary model"), flags)}

With the default, each rotary row of the tables would be that method plus an absolute embedding (of rows, see above).

**The perturbation of positions is half as wide, and clamped.** In the paper a patch moves by a Gaussian of deviation σ
patches, truncated to its cell. In the file the deviation is σ / 2, and what would lie beyond the cell is put on its
border. At σ = 1 the displacements have deviations of {paper.std():.3f} and {file.std():.3f};
{percent(on_the_edge(paper))} and {percent(on_the_edge(file), 1)} of the patches stand exactly on the border. So the file
moves patches further than the paper, not less.

{picture("perturbation", "Two histograms: the paper's is nearly flat, the file's has a spike at either border of the cell")}

**Frames are divided by the number of patches.** Of a video of 8 frames of {SIDE} × {SIDE} patches, the frames' centres
are {wanted:.4f} to {wanted_last:.4f} by the paper's rule; the file divides them by {SIDE} too and gets {first:.4f} to
{last:.4f}.

**θ of ComRoPE-LD is shared by all heads.** By the paper each head has its own: {theta:,} parameters in a ViT-B with
blocks of 8. The file has one for all heads, {shared:,} parameters, so that all heads look along the same 8 directions.

In ropewalk: APE is added only where one is made; `rw.positions.perturb` has `variant="paper"` and `"code"`;
`grid(frames, rows, columns)` divides each axis by its own size; `comrope-ld` has the variants `yu` (the paper) and
`yu-code` (the file).
"""
    return Finding(
        name="settings",
        title="ComRoPE's file differs from its paper in four settings",
        number=f"{percent(on_the_edge(file))} of patches clamped; {theta:,} against {shared:,} parameters",
        where="ComRoPE, published code",
        here='`perturb(variant="paper")`, variants `yu` and `yu-code`',
        text=text,
        figures={"perturbation": partial(draw, moves)},
    )

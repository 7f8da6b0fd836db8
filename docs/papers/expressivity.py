"""ComRoPE in the basis that diagonalises it: mixed RoPE with few directions, or learned axial RoPE."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import ropewalk as rw

from .figures import Theme, cool, label, sheet
from .page import Finding, made, picture, table

BLOCKS = (2, 4, 8, 16, 32, 64)
WIDTH = 64


def spectrum(generators: Tensor) -> tuple[Tensor, Tensor]:
    """Wave vectors (D A) and common eigenvectors (D D), as columns, of commuting skew-symmetric generators (A D D).

    The eigenvectors of a combination at random are those of every generator. A wave vector and its negative belong to one
    pair of channels; both are among the D.
    """
    weight = torch.rand(len(generators), 1, 1, dtype=generators.dtype, generator=torch.Generator().manual_seed(0))
    _, vectors = torch.linalg.eigh(1j * (weight * generators).sum(0))
    waves = torch.einsum("ji,ajk,ki->ia", vectors.conj(), generators.to(vectors.dtype), vectors).imag
    return waves, vectors


def directions(waves: Tensor) -> int:
    """How many directions there are among wave vectors (n 2), a vector and its negative counting as one."""
    angles = torch.atan2(waves[:, 0], waves[:, 1]).remainder(torch.pi).sort().values
    gaps = torch.cat([angles[1:] - angles[:-1], angles[:1] + torch.pi - angles[-1:]])
    return max(int((gaps > 1e-6).sum()), 1)


def of_heads(name: str, **options: object) -> Tensor:
    """The wave vectors (H D A) of an encoding's heads."""
    encoding = made(name, head_dim=WIDTH, **options)
    return torch.stack([spectrum(head)[0] for head in encoding.generators().detach()])


def residual() -> float:
    """The largest difference between scores from the matrix exponential and from the diagonalised form."""
    encoding = made("comrope-ld", head_dim=WIDTH, block=8)
    generators = encoding.generators().detach()[0]
    waves, vectors = spectrum(generators)
    p = rw.positions.grid(3, 5, coordinates="centre", dtype=torch.float64)
    q, k = torch.randn(2, len(p), WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    exact = torch.linalg.matrix_exp(torch.einsum("na,aij->nij", p, generators))
    turned_q, turned_k = ((exact @ x.unsqueeze(-1)).squeeze(-1) for x in (q, k))
    phase = torch.polar(torch.ones(()).double(), p @ waves.T)
    folded_q, folded_k = (phase * (x.to(vectors.dtype) @ vectors.conj()) for x in (q, k))
    return (turned_q @ turned_k.T - (folded_q.conj() @ folded_k.T).real).abs().max().item()


def draw(found: dict[str, Tensor], look: Theme) -> Figure:
    """Wave vectors of one head in the plane of frequencies."""
    figure, panels = sheet(look, height=2.5, columns=len(found))
    for axes, (name, waves) in zip(panels, found.items(), strict=True):
        rows, columns = waves.T.numpy()
        limit = 1.08 * waves.abs().max().item()
        for row, column in zip(rows, columns, strict=True):
            axes.axline((0, 0), (column, row), color=look.faint, linewidth=0.5, alpha=0.6)
        axes.scatter(columns, rows, s=9, color=cool(look), linewidths=0, zorder=3)
        axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xticks=(0,), yticks=(0,))
        label(axes, look, x="columns", y="rows" if axes is panels[0] else "", title=name)
    return figure


def finding() -> Finding:
    """The section."""
    counts = {block: directions(of_heads("comrope-ld", block=block)[0]) for block in BLOCKS}
    ours, file = (
        directions(of_heads("comrope-ld", block=8, heads=12, variant=variant).flatten(0, 1)) for variant in ("yu", "yu-code")
    )
    ap = of_heads("comrope-ap", block=8)[0]
    off = ap.abs().amin(-1).max().item()
    drawn = {f"LD, block {block}": of_heads("comrope-ld", block=block)[0] for block in (2, 8, 32)}
    drawn["AP, block 8"] = ap
    left = residual()
    text = f"""
A skew-symmetric block turns b/2 planes, each at a frequency of its own. In ComRoPE-LD the generators of all axes are
multiples of one block, so its b/2 planes share one direction in the image; in the basis of those planes it is RoPE-Mixed
with b/2 pairs tied to a direction. In ComRoPE-AP a block belongs to one axis: it is axial RoPE with learned frequencies.
The basis is absorbed by the query and key projections. Scores from the matrix exponential and from this form differ by
{left:.0e}.

{picture("expressivity", "Wave vectors of one head: with larger blocks they lie on fewer lines; those of AP on the axes")}

{table(("block", *counts), [("directions", *counts.values())])}

- The table is of LD, a head of {WIDTH} channels. A larger block gives fewer directions, and more frequencies along each.
  12 heads with blocks of 8 have {ours} directions by the paper and {file} in its file, where all heads share θ.
- All wave vectors of AP lie on the axes: the smaller of their two components is {off:.0g}.
- So ComRoPE and its ablation of block sizes compare starting points and paths of training; what can be expressed,
  RoPE-Mixed expresses too. van de Geijn et al. prove it for all commuting generators. It ends where per-channel gains
  stand between projection and rotation, as in QK normalisation.

In ropewalk both are encodings of their own, with blocks and start as published, and `mixed` is what they amount to.
"""
    return Finding(
        name="expressivity",
        title="ComRoPE is mixed or axial RoPE in another basis, with fewer directions for larger blocks",
        number=f"{counts[2]} directions at block 2, {counts[8]} at block 8",
        where="ComRoPE, paper",
        here="`comrope-ld`, `comrope-ap`; or `mixed`",
        text=text,
        figures={"expressivity": partial(draw, drawn)},
    )

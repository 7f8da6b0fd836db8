"""ComRoPE: what its encodings can express, and where its published file and its tables differ from its text."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

import ropewalk as rw
from papers import SIDE, create_seeded_encoding
from plots import add_legend, create_panels, get_cool_color, get_warm_color, label_axes
from ropewalk.lab.figures.theme import FigureTheme

# Expressivity

BLOCKS = (2, 4, 8, 16, 32, 64)
WIDTH = 64


def compute_spectrum(generators: Tensor) -> tuple[Tensor, Tensor]:
    """Wave vectors (D A) and common eigenvectors (D D), as columns, of commuting skew-symmetric generators (A D D).

    The eigenvectors of a random combination are those of every generator. A wave vector and its negative belong to one
    pair of channels; both are among the D.
    """
    weight = torch.rand(len(generators), 1, 1, dtype=generators.dtype, generator=torch.Generator().manual_seed(0))
    _, vectors = torch.linalg.eigh(1j * (weight * generators).sum(0))
    waves = torch.einsum("ji,ajk,ki->ia", vectors.conj(), generators.to(vectors.dtype), vectors).imag
    return waves, vectors


def count_directions(waves: Tensor) -> int:
    """Directions among wave vectors (n 2); a vector and its negative have the same."""
    angles = torch.atan2(waves[:, 0], waves[:, 1]).remainder(torch.pi).sort().values
    gaps = torch.cat([angles[1:] - angles[:-1], angles[:1] + torch.pi - angles[-1:]])
    return max(int((gaps > 1e-6).sum()), 1)


def compute_head_waves(name: str, **options: object) -> Tensor:
    """The wave vectors (H D A) of an encoding's heads."""
    encoding = create_seeded_encoding(name, head_dim=WIDTH, **options)
    return torch.stack([compute_spectrum(head)[0] for head in encoding.generators().detach()])


def compute_residual() -> float:
    """The largest difference between scores from the matrix exponential and from the diagonalized form."""
    encoding = create_seeded_encoding("comrope-ld", head_dim=WIDTH, block=8)
    generators = encoding.generators().detach()[0]
    waves, vectors = compute_spectrum(generators)
    p = rw.positions.grid(3, 5, coordinates="centre", dtype=torch.float64)
    q, k = torch.randn(2, len(p), WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    exact = torch.linalg.matrix_exp(torch.einsum("na,aij->nij", p, generators))
    rotated_q, rotated_k = ((exact @ x.unsqueeze(-1)).squeeze(-1) for x in (q, k))
    phase = torch.polar(torch.ones(()).double(), p @ waves.T)
    folded_q, folded_k = (phase * (x.to(vectors.dtype) @ vectors.conj()) for x in (q, k))
    return (rotated_q @ rotated_k.T - (folded_q.conj() @ folded_k.T).real).abs().max().item()


def draw_head_waves(look: FigureTheme, found: Mapping[str, Tensor]) -> Figure:
    """Wave vectors of one head, each on its direction."""
    figure, panels = create_panels(look, height=2.5, columns=len(found))
    for axes, (name, waves) in zip(panels, found.items(), strict=True):
        rows, columns = waves.T.numpy()
        limit = 1.08 * waves.abs().max().item()
        for row, column in zip(rows, columns, strict=True):
            axes.axline((0, 0), (column, row), color=look.faint, linewidth=0.5, alpha=0.6)
        axes.scatter(columns, rows, s=9, color=get_cool_color(look), linewidths=0, zorder=3)
        axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xticks=(0,), yticks=(0,))
        label_axes(axes, look, x="columns", y="rows" if axes is panels[0] else "", title=name)
    return figure


# The learned absolute embedding


class TableReading(NamedTuple):
    """A table (rows columns), what the file reads from it for each patch, what ropewalk reads, and the entries read."""

    table: Tensor
    file: Tensor
    here: Tensor
    touched: Tensor


def read_as_published(table: Tensor) -> Tensor:
    """Read a table (rows columns) at every patch with coordinates (0, row, column), which sampling takes for (x, y, z)."""
    positions = 2 * rw.positions.grid(SIDE, SIDE, coordinates="centre", dtype=table.dtype) - 1
    positions = F.pad(positions, (1, 0))[None, None, None]
    read = F.grid_sample(table[None, None, None], positions, align_corners=True, padding_mode="border")
    return read.view(SIDE, SIDE)


def compare_readings() -> TableReading:
    """Both readings of one random table."""
    encoding = create_seeded_encoding("learned-ape", head_dim=1, size=(SIDE, SIDE))
    table = encoding.table.detach()[..., 0] / 0.02
    table.requires_grad_()
    file = read_as_published(table)
    (touched,) = torch.autograd.grad(file.sum(), table)
    here = encoding(encoding.grid(SIDE, SIDE)).offset.detach().view(SIDE, SIDE) / 0.02
    return TableReading(table.detach(), file.detach(), here, touched != 0)


def draw_readings(look: FigureTheme, found: TableReading) -> Figure:
    figure, panels = create_panels(look, height=2.7, columns=3)
    for axes, values, title in zip(panels, found, ("the table", "read by the file", "read by ropewalk"), strict=False):
        axes.imshow(values.numpy(), cmap=look.colours(), vmin=-2.5, vmax=2.5)
        axes.set(xticks=(0, 6, 13), yticks=(0, 6, 13))
        label_axes(axes, look, x="column", y="row" if axes is panels[0] else "", title=title)
    return figure


# Settings of the published file


def has_absolute_embedding(keep_ape: bool) -> bool:
    """Whether the file builds a rotary model with the absolute embedding: it branches on `not keep_ape`."""
    return not keep_ape


def sample_perturbation(variant: str) -> Tensor:
    """How far patches are moved at sigma 1, in patches."""
    still = torch.zeros(200_000, 1, dtype=torch.float64)
    return rw.positions.perturb(still, 1.0, variant=variant, generator=torch.Generator().manual_seed(0)).flatten()


def compute_edge_share(moves: Tensor) -> float:
    """The share of patches that end exactly on the border of their cell."""
    return (moves.abs() == 0.5).double().mean().item()


def compute_frame_ends(count: int, over: int) -> tuple[float, float]:
    """The first and the last frame's coordinate if frame i of `count` is at (i + 1/2) / over."""
    first, last = (torch.arange(count)[[0, -1]] + 0.5) / over
    return first.item(), last.item()


def draw_perturbations(look: FigureTheme, moves: Mapping[str, Tensor]) -> Figure:
    figure, (axes,) = create_panels(look, height=2.5)
    colors = (get_cool_color(look), get_warm_color(look))
    for (name, move), color, style in zip(moves.items(), colors, ("stepfilled", "step"), strict=True):
        options = {"histtype": style, "color": color, "label": name, "linewidth": 1.4}
        axes.hist(move.numpy(), bins=20, range=(-0.5, 0.5), density=True, **options)
    label_axes(axes, look, x="displacement, in patches", y="density")
    add_legend(axes, look, loc="upper center")
    return figure


# Percentages

RESOLUTIONS = (112, 128, 192, 224, 256, 320, 384, 448, 512)
# ImageNet top-1 by method and perturbation, trained at 224: ComRoPE's Table 1.
ACCURACY = {
    ("APE", 1): (30.04, 38.69, 56.4, 58.76, 60.02, 59.27, 57.04, 54.10, 50.99),
    ("APE", 0): (19.71, 33.43, 55.97, 58.62, 55.31, 52.63, 49.68, 46.39, 42.66),
    ("RoPE", 1): (36.94, 45.48, 60.72, 63.09, 63.24, 62.12, 59.24, 55.51, 51.11),
    ("RoPE", 0): (36.41, 44.48, 59.97, 62.03, 62.54, 61.36, 58.56, 54.79, 50.58),
    ("LieRE", 1): (38.03, 46.97, 62.22, 64.36, 64.99, 63.78, 61.15, 57.92, 53.74),
    ("LieRE", 0): (38.22, 46.85, 62.01, 64.07, 64.54, 63.46, 60.74, 56.89, 52.51),
    ("AP", 1): (35.75, 46.18, 62.82, 65.32, 65.83, 64.78, 61.88, 58.21, 54.02),
    ("AP", 0): (37.17, 46.95, 62.63, 64.76, 65.11, 64.35, 61.62, 58.10, 53.81),
    ("LD", 1): (38.30, 47.28, 63.53, 65.49, 65.95, 65.27, 62.62, 59.11, 55.29),
    ("LD", 0): (36.88, 46.54, 62.89, 65.27, 65.66, 64.27, 61.83, 57.87, 53.64),
}


def get_accuracy(method: str, sigma: int, resolution: int) -> float:
    return ACCURACY[method, sigma][RESOLUTIONS.index(resolution)]


def compute_gain(method: str, over: str, *, resolution: int, sigma: int = 1, over_sigma: int | None = None) -> float:
    """By how many per cent one entry exceeds another, relative to the other."""
    other = get_accuracy(over, sigma if over_sigma is None else over_sigma, resolution)
    return 100 * (get_accuracy(method, sigma, resolution) / other - 1)


def compute_gains_over_liere(resolution: int) -> dict[str, float]:
    """The gains of both ComRoPEs over LieRE at one resolution, over all pairs of perturbations."""
    return {
        f"{method} σ = {sigma} over LieRE σ = {other}": compute_gain(
            method, "LieRE", resolution=resolution, sigma=sigma, over_sigma=other
        )
        for method in ("AP", "LD")
        for sigma in (1, 0)
        for other in (1, 0)
    }

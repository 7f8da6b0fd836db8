"""“A Circular Argument” (van de Geijn et al.): spherical RoPE's axes, uniform RoPE's frequency, and the paper's tables."""

import math

import torch
from matplotlib.figure import Figure
from torch import Tensor

from papers import SIDE, create_seeded_encoding
from plots import Curves, draw_curves
from ropewalk.lab.figures.theme import FigureTheme

# Spherical RoPE

DRAWS = 4096
SMALL = math.sqrt(2) * (math.pi / 2) * (2 * math.pi / 3)
DOWN, ACROSS = (1.0, 0.0), (0.0, 1.0)


def compute_change(frequency: float, along: tuple[float, float], *, swapped: bool = False) -> float:
    """How much a shift of both tokens changes the relative operator of a triplet: the mean Frobenius norm.

    Positions and shifts fill [-pi, pi]² evenly. `swapped` lets columns act first, as the caption of Figure 2 has it.
    """
    encoding = create_seeded_encoding("spherical", head_dim=3, scale=frequency)
    points = torch.quasirandom.SobolEngine(6, scramble=True, seed=0).draw(DRAWS, dtype=torch.float64)
    q, k, shift = (math.pi * (2 * points - 1)).chunk(3, dim=-1)
    shift = shift * torch.tensor(along, dtype=torch.float64)

    def relate(q: Tensor, k: Tensor) -> Tensor:
        code = encoding(q.flip(-1), k.flip(-1)) if swapped else encoding(q, k)
        return code.matrices()[0].mT @ code.key_matrices()[0]

    return torch.linalg.matrix_norm(relate(q + shift, k + shift) - relate(q, k)).mean().item()


def get_slowest_frequency(variant: str) -> float:
    """Of 21 triplets."""
    return create_seeded_encoding("spherical", head_dim=63, variant=variant).frequency.min().item()


def draw_changes(look: FigureTheme) -> Figure:
    """The change by frequency along rows and along columns, with the frequencies of the published code below."""
    frequencies = [10 ** (power / 6) for power in range(-12, 1)]
    shifts = {"down (rows, which act first)": DOWN, "to the side (columns, which act last)": ACROSS}
    curves = {
        name: (frequencies, [max(compute_change(w, along), 1e-17) for w in frequencies]) for name, along in shifts.items()
    }
    used = create_seeded_encoding("spherical", head_dim=63).frequency[0, :, 0].tolist()
    curves["the 21 frequencies of the code"] = used, [3e-18] * len(used)
    line, ticks = {"linewidth": 1.8}, {"color": "faint", "marker": "|", "linestyle": ""}
    return draw_curves(
        look, curves, x="frequency ω", y="change of the operator", legend={"loc": "center right"},
        styles=({"color": "warm", **line}, {"color": "cool", **line}, ticks),
        xscale="log", yscale="log", ylim=(1e-18, 10), yticks=(1e-16, 1e-12, 1e-8, 1e-4, 1),
    )  # fmt: skip


# Uniform RoPE

UNIFORM_SETUPS = {
    "uniform, ω = 1 (paper)": ("uniform", "van-de-geijn"),
    "uniform, ω = 1/π (file)": ("uniform", "van-de-geijn-code"),
    "axial, same paper": ("axial", "van-de-geijn"),
}


def compute_rotations(name: str, variant: str, **options: float) -> Tensor:
    """The cosines and sines of all pairs at every position of the image, (N 2P)."""
    encoding = create_seeded_encoding(name, head_dim=64, size=(SIDE, SIDE), variant=variant, **options)
    angle = encoding(encoding.grid(SIDE, SIDE)).q_angle[0]
    return torch.cat([angle.cos(), angle.sin()], -1)


def count_codes(name: str, variant: str, **options: float) -> int:
    """How many positions of the image have different rotations."""
    return len(torch.unique(compute_rotations(name, variant, **options).mul(1e6).round(), dim=0))


def compute_row_scores(name: str, variant: str) -> Tensor:
    """The score of a query in the first column with an equal key in each column of its row, 1 where they coincide."""
    code = compute_rotations(name, variant)
    return (code[:SIDE] @ code[0]) / code[0].square().sum()


# Tables

# Top-1 on CIFAR-100 and ImageNet, mean and deviation of three seeds: Table 2.
FULL = {
    "axial": ((72.1, 0.6), (75.6, 0.2)),
    "spherical, fixed": ((73.2, 0.4), (76.4, 0.3)),
    "spherical, learned": ((74.1, 0.4), (77.4, 0.2)),
    "mixed": ((74.7, 0.3), (77.4, 0.1)),
}
# Top-1 on fractions of CIFAR-100, one run each: Table 7.
FRACTIONS = (0.2, 0.4, 0.6, 0.8)
LOW_DATA = {
    "spherical, fixed": (56.04, 63.6, 67.6, 69.8),
    "spherical, learned": (57.2, 65.34, 69.8, 72.6),
    "mixed": (56.9, 64.4, 70.0, 71.6),
}


def compute_gaps(name: str) -> tuple[float, float]:
    """Points below mixed RoPE on CIFAR-100 and on ImageNet."""
    cifar, imagenet = (mixed[0] - other[0] for mixed, other in zip(FULL["mixed"], FULL[name], strict=True))
    return cifar, imagenet


def compute_scaled_gaps(name: str) -> list[float]:
    """The same in standard deviations of the difference."""
    spreads = [(own[1] ** 2 + mixed[1] ** 2) ** 0.5 for own, mixed in zip(FULL[name], FULL["mixed"], strict=True)]
    return [points / spread for points, spread in zip(compute_gaps(name), spreads, strict=True)]


def compute_leads(name: str) -> list[float]:
    """Points above mixed RoPE on each fraction of CIFAR-100."""
    return [own - mixed for own, mixed in zip(LOW_DATA[name], LOW_DATA["mixed"], strict=True)]


def compute_noise() -> float:
    """The deviation of a difference of two single runs, if runs vary as much as the three of the full set."""
    return (FULL["spherical, learned"][0][1] ** 2 + FULL["mixed"][0][1] ** 2) ** 0.5


def draw_leads(look: FigureTheme) -> Figure:
    """Leads over mixed RoPE on fractions of the data."""
    styles = [{"color": "warm", "marker": "o"}, {"color": "cool", "marker": "s"}]
    names = ("spherical, learned", "spherical, fixed")
    curves: Curves = {name: (FRACTIONS, compute_leads(name)) for name in names}
    figure = draw_curves(
        look, curves, x="fraction of CIFAR-100", y="points above mixed", height=2.6,
        styles=[{"markersize": 5, "linewidth": 1.4, **style} for style in styles],
        xticks=FRACTIONS, xlim=(0.15, 0.85), ylim=(-4, 2),
    )  # fmt: skip
    (axes,) = figure.axes
    band = {"alpha": 0.18, "linewidth": 0, "label": "± 2 deviations of a difference"}
    axes.axhspan(-2 * compute_noise(), 2 * compute_noise(), color=look.faint, **band)
    axes.axhline(0, color=look.ink, linewidth=0.8)
    axes.legend(loc="lower left", frameon=False, labelcolor=look.ink, fontsize=8.5)
    return figure

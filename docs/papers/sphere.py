"""Spherical RoPE is relative along one of its two axes."""

import math
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from .figures import Theme, cool, label, legend, sheet, warm
from .page import Finding, made, picture, table

DRAWS = 4096
STATED = (1.0, 0.3, 0.1, 0.05)
SMALL = math.sqrt(2) * (math.pi / 2) * (2 * math.pi / 3)
DOWN, ACROSS = (1.0, 0.0), (0.0, 1.0)


def change(frequency: float, along: tuple[float, float], *, swapped: bool = False) -> float:
    """How far a shift of both tokens moves the relative operator of a triplet: the mean Frobenius norm of the difference.

    Positions and shifts fill [-pi, pi]² evenly. `swapped` lets columns act first, as the caption of Figure 2 has it.
    """
    encoding = made("spherical", head_dim=3, scale=frequency)
    points = torch.quasirandom.SobolEngine(6, scramble=True, seed=0).draw(DRAWS, dtype=torch.float64)
    q, k, shift = (math.pi * (2 * points - 1)).chunk(3, dim=-1)
    shift = shift * torch.tensor(along, dtype=torch.float64)

    def relative(q: Tensor, k: Tensor) -> Tensor:
        code = encoding(q.flip(-1), k.flip(-1)) if swapped else encoding(q, k)
        return code.matrices()[0].mT @ code.key_matrices()[0]

    return torch.linalg.matrix_norm(relative(q + shift, k + shift) - relative(q, k)).mean().item()


def slowest(variant: str) -> float:
    """The slowest of 21 frequencies."""
    return made("spherical", head_dim=63, variant=variant).frequency.min().item()


def curves() -> dict[str, tuple[list[float], list[float]]]:
    """The change along rows and along columns, over frequencies."""
    frequencies = [10 ** (power / 6) for power in range(-12, 1)]
    shifts = {"down (rows, which act first)": DOWN, "to the side (columns, which act last)": ACROSS}
    return {name: (frequencies, [change(w, along) for w in frequencies]) for name, along in shifts.items()}


def draw(found: dict[str, tuple[list[float], list[float]]], look: Theme) -> Figure:
    """Both curves, with the frequencies of the published code below."""
    figure, axes = sheet(look, height=2.9)
    for (name, (x, y)), colour in zip(found.items(), (warm(look), cool(look)), strict=True):
        axes.plot(x, [max(value, 1e-17) for value in y], color=colour, label=name, linewidth=1.8)
    used = made("spherical", head_dim=63).frequency[0, :, 0].tolist()
    axes.plot(used, [3e-18] * len(used), "|", color=look.faint, label="the 21 frequencies of the code")
    axes.set(xscale="log", yscale="log", ylim=(1e-18, 10), yticks=(1e-16, 1e-12, 1e-8, 1e-4, 1))
    label(axes, look, x="frequency ω", y="change of the operator")
    legend(axes, look, loc="center right")
    return figure


def finding() -> Finding:
    """The section."""
    found = curves()
    rows = [(f"ω = {w}", f"{change(w, DOWN):.3g}", f"{change(w, ACROSS):.0e}") for w in STATED]
    swapped = change(1.0, ACROSS, swapped=True), change(1.0, DOWN, swapped=True)
    code, paper = slowest("van-de-geijn"), slowest("van-de-geijn-paper")
    text = f"""
Spherical RoPE turns triplets of channels by S(p) = X(ω x) W(ω y), two rotations of space about different axes, and is
presented as the encoding that is not equivariant. The operator that relates a query at p to a key at q is

    S(p)ᵀ S(q) = W(-ω y_p) X(ω (x_q - x_p)) W(ω y_q)

It depends on x through the difference alone. So scores do not change at all when both tokens move along the axis that
acts last, and along the other they change little where ω is small. The mean Frobenius norm of the change of the 3 × 3
operator when both tokens are moved by a random shift, over random positions in [-π, π]²:

{picture("sphere", "When tokens move down the change falls with the square of ω; to the side it is rounding error")}

{table(("", "moved down", "moved to the side"), rows)}

For small ω it is √2 (π/2) (2π/3) ω² = {SMALL:.2f} ω²: the two generators' commutator has the norm √2, and π/2 and 2π/3
are the means of the shift and of the distance. The comparison with mixed RoPE therefore tests what it costs to lose
equivariance along one axis, in the fast channels.

**Which axis acts first.** The paper's formula and its code apply y first and x last; the caption of its Figure 2 has x
first. With the caption's order the roles change: at ω = 1 a move to the side changes the operator by {swapped[0]:.3g}, a
move down by {swapped[1]:.0e}.

**Which frequencies.** ω_j = 100^(-2j/D), where D is the number of groups in the paper's appendix and the head width in
its code. Of the 21 triplets of a head of 63 the slowest then has ω = {paper:.2g} or {code:.2g}:
{2 * math.pi * paper:.2g} or {2 * math.pi * code:.2g} rad across the image.

In ropewalk positions are (row, column) and axis 0 acts first, as in formula and code. `variant="van-de-geijn"` has the
code's frequencies, `"van-de-geijn-paper"` the appendix's; `traits.relative` says (False, True).
"""
    return Finding(
        name="sphere",
        title="Spherical RoPE is relative along one axis",
        number=f"moved down {change(1.0, DOWN):.3g}, to the side {change(1.0, ACROSS):.0e} (ω = 1)",
        where="arXiv 2511.08368, paper and code",
        here="rows act first; variants `van-de-geijn`, `van-de-geijn-paper`",
        text=text,
        figures={"sphere": partial(draw, found)},
    )

"""How far the channels of each paper's setup turn across an image."""

import math
from functools import partial
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

import ropewalk as rw

from .figures import Theme, cool, label, legend, note, sheet, warm
from .page import Finding, made, picture, table

SIDE = 14
SHAPE = {"head_dim": 64, "heads": 12, "layers": 12, "size": (SIDE, SIDE)}
TRAINED = 0.238  # deviation of the entries of an angle matrix of 8 x 8 after training, ComRoPE's Table 8


class Span(NamedTuple):
    """Radians that the slowest and the fastest channel turn across a side of the image, and whether they are learned."""

    slowest: float
    fastest: float
    learned: bool = False


def spans() -> dict[str, Span]:
    """The span of every setup."""
    return {
        "axial, Heo": waves("axial", variant="heo"),
        "mixed at its start, Heo": waves("mixed", variant="heo"),
        "DINOv3": waves("dinov3"),
        "axial, van de Geijn": waves("axial", variant="van-de-geijn"),
        "spherical, van de Geijn": spherical(),
        "uniform, van de Geijn's paper": waves("uniform", variant="van-de-geijn"),
        "uniform, van de Geijn's file": waves("uniform", variant="van-de-geijn-code"),
        "mixed at its start, van de Geijn": waves("mixed", variant="van-de-geijn"),
        "“VisionLLaMA” axial, LieRE": waves("axial", variant="liere"),
        "“RoPE-Mixed” at its start, LieRE": waves("mixed", variant="liere"),
        "LieRE, block 8, at its start": blocks("liere", block=8),
        "LieRE, block 64, at its start": blocks("liere", block=64),
        "vanilla RoPE, ComRoPE": waves("axial", variant="comrope"),
        "ComRoPE-LD, block 8, trained": trained(),
    }


def waves(name: str, **options: object) -> Span:
    """Of an encoding of pairs."""
    encoding = made(name, **SHAPE | options)
    span = rw.spectra.span(encoding.waves().detach(), encoding.grid(SIDE, SIDE))
    return Span(span.min().item(), span.max().item(), encoding.traits.learned)


def spherical() -> Span:
    """Of 21 triplets, each of one frequency for both axes."""
    encoding = made("spherical", head_dim=63, size=(SIDE, SIDE))
    return _along_a_side(encoding.frequency[0, :, 0], encoding.coordinates)


def blocks(name: str, **options: object) -> Span:
    """Of an encoding of blocks along one axis: the frequencies are the eigenvalues of its blocks."""
    encoding = made(name, **SHAPE | options)
    return _along_a_side(_frequencies(encoding.blocks()), encoding.coordinates)._replace(learned=True)


def trained() -> Span:
    """Of a typical block with entries of the deviation that ComRoPE reports: the mean of the extremes of its spectrum."""
    encoding = made("comrope-ld", **SHAPE, std=TRAINED / math.sqrt(2))
    frequencies = _frequencies(encoding.matrix - encoding.matrix.mT)
    extremes = torch.stack([frequencies.amin(-1).mean(), frequencies.amax(-1).mean()])
    return _along_a_side(extremes, encoding.coordinates)._replace(learned=True)


def _frequencies(skew: Tensor) -> Tensor:
    """The moduli of the eigenvalues of skew-symmetric matrices (... b b)."""
    return torch.linalg.eigvalsh(1j * skew.detach()).abs()


def _along_a_side(frequencies: Tensor, coordinates: str) -> Span:
    line = rw.positions.grid(SIDE, coordinates=coordinates, dtype=torch.float64)
    span = rw.spectra.span(frequencies.detach().unsqueeze(-1), line)
    return Span(span.min().item(), span.max().item())


def draw(found: dict[str, Span], look: Theme) -> Figure:
    """A bar from the slowest to the fastest channel for each setup."""
    figure, axes = sheet(look, height=4.3)
    for row, span in enumerate(found.values()):
        colour = warm(look) if span.learned else cool(look)
        low = min(span.slowest, span.fastest / 1.08)
        axes.barh(row, span.fastest - low, left=low, height=0.55, color=colour)
        note(axes, look, f"{span.fastest:.3g}", (span.fastest, row), shift=(4, 0), va="center")
    for at, words in ((2 * math.pi, "one turn"), (math.pi * (SIDE - 1), "half a turn\na patch")):
        axes.axvline(at, color=look.faint, linewidth=0.8, linestyle="--", zorder=0)
        note(axes, look, words, (at, 1), shift=(0, 3), xycoords=("data", "axes fraction"), ha="center", color=look.faint)
    axes.set(xscale="log", xlim=(1e-4, 500), yticks=range(len(found)), yticklabels=list(found))
    axes.invert_yaxis()
    for colour, words in ((cool(look), "fixed"), (warm(look), "learned")):
        axes.barh(0, 0, color=colour, label=words)
    label(axes, look, x=f"radians across a side of {SIDE} patches, slowest to fastest channel")
    legend(axes, look, loc="upper left")
    return figure


def finding() -> Finding:
    """The section."""
    found = spans()
    axial, tile, eight, dense = (
        found[name].fastest
        for name in (
            "“VisionLLaMA” axial, LieRE",
            "“RoPE-Mixed” at its start, LieRE",
            "LieRE, block 8, at its start",
            "LieRE, block 64, at its start",
        )
    )
    heo = found["axial, Heo"].fastest
    rows = [(name, f"{span.slowest:.3g}", f"{span.fastest:.3g}") for name, span in found.items()]
    text = f"""
How far the slowest and the fastest channel turn from the first to the last patch of a side of {SIDE} patches, in heads
of 64 channels (63 for spherical), as `rw.spectra.span` has it. Random starts are those of 12 layers of 12 heads.

{picture("spans", "Bars on a logarithmic scale: setups differ in range by a factor of a hundred and more")}

{table(("setup", "slowest", "fastest"), rows)}

Most comparisons of methods are therefore comparisons of frequency ranges as well. In LieRE's Table 1 the four rotary
rows, 65.5, 68.8, 70.3 and 70.0 % on CIFAR-100, start with spans of {axial:.2g}, {tile:.2g}, {eight:.2g} and {dense:.3g}
rad; an axial RoPE with Heo's range, {heo:.0f} rad, is not among them. How much of the gaps the range explains, the
tables cannot tell.

- A pair of “RoPE-Mixed” turns at most {2 * math.pi:.2f} rad along each side; obliquely up to √2 times as much. It is the
  start of van de Geijn et al.'s mixed RoPE too: U(0, 1) on a side of 2π is U(0, 2π) on a side of 1.
- LieRE draws all entries above the diagonal from U(0, 2π). Their mean is not zero, so the largest eigenvalue grows with
  the block: at block 64 neighbouring patches lie {dense / (SIDE - 1):.1f} rad apart, more than a whole turn.
- ComRoPE's coordinates are centres of patches, so that a frequency of 1 turns {(SIDE - 1) / SIDE:.2f} rad from the first
  centre to the last. Its trained matrices are known by the deviation of their entries only, {TRAINED} at block 8 (its
  Table 8); the bar is a random block of that deviation.

In ropewalk `scale=` (`std=` in ComRoPE) sets the range of every rotary encoding, and `rw.spectra.with_span` gives wave
vectors a range in radians.
"""
    return Finding(
        name="spans",
        title="Comparisons of methods compare frequency ranges",
        number=f"{axial:.2g} to {dense:.3g} rad across an image",
        where="all papers with images",
        here="`scale=`, `rw.spectra.span`",
        text=text,
        figures={"spans": partial(draw, found)},
    )

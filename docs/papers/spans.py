"""Spans: how far the channels of each paper's setup rotate across an image."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from torch import Tensor

import ropewalk as rw
from papers import SIDE, create_seeded_encoding
from plots import add_legend, create_panels, get_cool_color, get_warm_color, label_axes
from ropewalk.lab.figures.theme import FigureTheme

SHAPE: dict[str, Any] = {"head_dim": 64, "heads": 12, "layers": 12, "size": (SIDE, SIDE)}
TRAINED = 0.238  # deviation of the entries of an angle matrix of 8 x 8 after training, ComRoPE's Table 8


class Span(NamedTuple):
    """Radians that the slowest and the fastest channel rotate across a side of the image, and whether they are learned."""

    slowest: float
    fastest: float
    learned: bool = False


def compute_spans() -> dict[str, Span]:
    """The span of every setup."""
    return {
        "axial, Heo": compute_pair_span("axial", variant="heo"),
        "mixed at its start, Heo": compute_pair_span("mixed", variant="heo"),
        "DINOv3": compute_pair_span("dinov3"),
        "axial, van de Geijn": compute_pair_span("axial", variant="van-de-geijn"),
        "spherical, van de Geijn": compute_spherical_span(),
        "uniform, van de Geijn's paper": compute_pair_span("uniform", variant="van-de-geijn"),
        "uniform, van de Geijn's file": compute_pair_span("uniform", variant="van-de-geijn-code"),
        "mixed at its start, van de Geijn": compute_pair_span("mixed", variant="van-de-geijn"),
        "“VisionLLaMA” axial, LieRE": compute_pair_span("axial", variant="liere"),
        "“RoPE-Mixed” at its start, LieRE": compute_pair_span("mixed", variant="liere"),
        "LieRE, block 8, at its start": compute_liere_span(8),
        "LieRE, block 64, at its start": compute_liere_span(64),
        "vanilla RoPE, ComRoPE": compute_pair_span("axial", variant="comrope"),
        "ComRoPE-LD, block 8, trained": compute_trained_span(),
    }


def compute_pair_span(name: str, **options: object) -> Span:
    encoding = create_seeded_encoding(name, **SHAPE | options)
    span = rw.spectra.span(encoding.waves().detach(), encoding.grid(SIDE, SIDE))
    return Span(span.min().item(), span.max().item(), encoding.traits.learned)


def compute_spherical_span() -> Span:
    """Of 21 triplets, each of one frequency for both axes."""
    encoding = create_seeded_encoding("spherical", head_dim=63, size=(SIDE, SIDE))
    return _measure_along_side(encoding.frequency[0, :, 0], encoding.coordinates)


def compute_liere_span(block: int) -> Span:
    """Along one axis: the frequencies are the eigenvalues of its blocks."""
    encoding = create_seeded_encoding("liere", block=block, **SHAPE)
    return _measure_along_side(_compute_frequencies(encoding.blocks()), encoding.coordinates)._replace(learned=True)


def compute_trained_span() -> Span:
    """Of a random block with entries of the deviation that ComRoPE reports: the mean of the extremes of its spectrum."""
    encoding = create_seeded_encoding("comrope-ld", **SHAPE, std=TRAINED / math.sqrt(2))
    frequencies = _compute_frequencies(encoding.matrix - encoding.matrix.mT)
    extremes = torch.stack([frequencies.amin(-1).mean(), frequencies.amax(-1).mean()])
    return _measure_along_side(extremes, encoding.coordinates)._replace(learned=True)


def _compute_frequencies(skew: Tensor) -> Tensor:
    """The moduli of the eigenvalues of skew-symmetric matrices (... b b)."""
    return torch.linalg.eigvalsh(1j * skew.detach()).abs()


def _measure_along_side(frequencies: Tensor, coordinates: str) -> Span:
    line = rw.positions.grid(SIDE, coordinates=coordinates, dtype=torch.float64)
    span = rw.spectra.span(frequencies.detach().unsqueeze(-1), line)
    return Span(span.min().item(), span.max().item())


def draw_spans(look: FigureTheme, found: Mapping[str, Span]) -> Figure:
    """A bar from the slowest to the fastest channel for each setup."""
    figure, (axes,) = create_panels(look, height=4.3)
    text: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": 8.5,
        "path_effects": [withStroke(linewidth=3, foreground=look.paper)],
    }
    for row, span in enumerate(found.values()):
        color = get_warm_color(look) if span.learned else get_cool_color(look)
        low = min(span.slowest, span.fastest / 1.08)
        axes.barh(row, span.fastest - low, left=low, height=0.55, color=color)
        axes.annotate(f"{span.fastest:.3g}", (span.fastest, row), (4, 0), va="center", color=look.ink, **text)
    for at, words in ((2 * math.pi, "one turn"), (math.pi * (SIDE - 1), "half a turn\na patch")):
        axes.axvline(at, color=look.faint, linewidth=0.8, linestyle="--", zorder=0)
        axes.annotate(words, (at, 1), (0, 3), xycoords=("data", "axes fraction"), ha="center", color=look.faint, **text)
    axes.set(xscale="log", xlim=(1e-4, 500), yticks=range(len(found)), yticklabels=list(found))
    axes.invert_yaxis()
    for color, words in ((get_cool_color(look), "fixed"), (get_warm_color(look), "learned")):
        axes.barh(0, 0, color=color, label=words)
    label_axes(axes, look, x=f"radians across a side of {SIDE} patches, slowest to fastest channel")
    add_legend(axes, look, loc="upper left")
    return figure

"""RoFormer, and what is written about it: decay with distance, and an article's YaRN beside YaRN."""

import math
from collections.abc import Callable, Mapping

import torch
from matplotlib.figure import Figure
from torch import Tensor

import ropewalk as rw
from papers import create_seeded_encoding
from plots import create_panels, get_cool_color, get_warm_color, label_axes
from ropewalk.lab.figures.theme import FigureTheme

WIDTH = 128  # channels of a head

# Decay with distance

DISTANCES, CHOSEN, DRAWS = 2048, 1000, 500


def compute_scores(q: Tensor, k: Tensor, step: int = 1) -> Tensor:
    """The score of unit vectors along q and k (B D), with k 0, step, 2 step, … positions ahead, (B N)."""
    ahead = torch.arange(0, DISTANCES, step)
    code = create_seeded_encoding("rope", head_dim=WIDTH)(torch.tensor([0]), ahead)
    q, k = (x[:, None, None] / x.norm(dim=-1)[:, None, None, None] for x in (q, k))
    q, k = code.qk(q, k.expand(-1, -1, len(ahead), -1))
    return (q @ k.mT)[:, 0, 0]


def draw_vectors(count: int) -> Tensor:
    return torch.randn(count, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(count))


def compute_aligned_scores() -> Tensor:
    """Equal q and k, all pairs of which are equal."""
    ones = torch.ones(1, WIDTH, dtype=torch.float64)
    return compute_scores(ones, ones)[0]


def compute_chosen_scores() -> Tensor:
    """A random q, and the k that is rotated into its direction `CHOSEN` positions ahead."""
    q = draw_vectors(1)
    back = create_seeded_encoding("rope", head_dim=WIDTH)(torch.tensor([-CHOSEN]))
    return compute_scores(q, back.q(q[:, None, None])[:, 0, 0])[0]


def compute_score_deviation() -> Tensor:
    """The root mean square of the score of random q and k, at 128 distances."""
    return compute_scores(*draw_vectors(2 * DRAWS).chunk(2), step=DISTANCES // 128).square().mean(0).sqrt()


def draw_scores(look: FigureTheme, found: Mapping[str, Tensor]) -> Figure:
    figure, panels = create_panels(look, height=2.5, columns=3, sharey=True)
    colors = (get_cool_color(look), look.faint, get_warm_color(look))
    for axes, (name, score), color in zip(panels, found.items(), colors, strict=True):
        axes.plot(score.tolist(), color=color, linewidth=0.9)
        axes.axhline(0, color=look.faint, linewidth=0.5, zorder=0)
        axes.set_ylim(-0.45, 1.08)
        label_axes(axes, look, x="distance", y="score, |q| = |k| = 1" if axes is panels[0] else "", title=name)
    return figure


# YaRN

BASE, LENGTH, FACTOR = 1e4, 2048, 4.0
PAIRS = torch.arange(WIDTH // 2, dtype=torch.float64)
FREQUENCY = rw.spectra.geometric(WIDTH // 2, BASE)
ROTATIONS = LENGTH * FREQUENCY / (2 * math.pi)  # of each pair within the trained length


def blend_factors(kept: Tensor) -> Tensor:
    """The factor of frequencies of which a share is kept and the rest divided by the factor of extension."""
    return kept + (1 - kept) / FACTOR


def compute_paper_factors() -> Tensor:
    """Kept where a pair completes 32 turns or more, interpolated where it completes one or less, a ramp in turns between."""
    return blend_factors(((ROTATIONS - 1) / 31).clamp(0, 1))


def compute_code_factors() -> Tensor:
    """The same ends, rounded outwards to whole pairs, and a ramp in the index of the pair."""
    low, high = (WIDTH * math.log(LENGTH / (2 * math.pi * turns)) / (2 * math.log(BASE)) for turns in (32, 1))
    low, high = math.floor(low), math.ceil(high)
    return blend_factors(1 - ((PAIRS - low) / (high - low)).clamp(0, 1))


def compute_article_factors() -> Tensor:
    """1 - (β - 1) / (4β), with β growing from 1 to 32 along the pairs, up to the first that completes less than one turn."""
    beta = 1 + 31 * PAIRS / (WIDTH // 2 - 1)
    return torch.where(ROTATIONS >= 1, (beta * FACTOR - beta + 1) / (beta * FACTOR), 1 / FACTOR)


def compute_interpolation_factors() -> Tensor:
    return torch.full_like(PAIRS, 1 / FACTOR)


def compute_ntk_factors() -> Tensor:
    """A larger base, such that the slowest pair is divided by the factor and the fastest kept."""
    return rw.spectra.geometric(WIDTH // 2, BASE * FACTOR ** (WIDTH / (WIDTH - 2))) / FREQUENCY


RULES: dict[str, Callable[[], Tensor]] = {
    "YaRN, paper": compute_paper_factors,
    "YaRN, its code": compute_code_factors,
    "the article": compute_article_factors,
    "interpolation": compute_interpolation_factors,
    "NTK": compute_ntk_factors,
}

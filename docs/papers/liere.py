"""LieRE's published code: its loop over layers, and where the wave vectors of its baselines start."""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from papers import SIDE, create_seeded_encoding
from plots import add_legend, create_panels, get_cool_color, get_warm_color, label_axes
from ropewalk.lab.figures.theme import FigureTheme

# The loop over layers

LAYERS = 12


def slice_as_published(rotations: Tensor) -> list[Tensor]:
    """What each layer gets from a tensor of all layers (L ...) when the slice taken for a layer replaces the tensor."""
    used = []
    for layer in range(len(rotations)):
        if len(rotations) > 1:
            rotations = rotations[layer : layer + 1]
        used.append(rotations[0])
    return used


def compute_gradient_norms(choose: Callable[[Tensor], list[Tensor]]) -> Tensor:
    """The norm of the gradient of each layer's generators in a small transformer of attention alone."""
    encoding = create_seeded_encoding("liere", head_dim=16, heads=2, layers=LAYERS, block=8, size=(3, 5))
    x = torch.randn(2, 15, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for rotation in choose(encoding(encoding.grid(3, 5)).matrices()):
        normed = F.layer_norm(x, x.shape[-1:])
        rotated = (rotation @ normed.unsqueeze(-1)).squeeze(-1)
        x = x + (rotated @ rotated.mT / 4).softmax(-1) @ normed
    x.square().sum().backward()
    return encoding.upper.grad.flatten(1).norm(dim=1)


def draw_gradient_norms(look: FigureTheme, norms: Mapping[str, Tensor]) -> Figure:
    figure, (axes,) = create_panels(look, height=2.3)
    colors = (get_cool_color(look), get_warm_color(look))
    for side, (name, norm), color in zip((-0.2, 0.2), norms.items(), colors, strict=True):
        axes.bar([layer + side for layer in range(LAYERS)], norm.tolist(), width=0.4, color=color, label=name)
    axes.set_xticks(range(LAYERS))
    label_axes(axes, look, x="layer", y="norm of the gradient")
    add_legend(axes, look)
    return figure


# Directions of baselines

BASELINES = {
    "mixed, Heo": ("mixed", "heo"),
    "“RoPE-Mixed”, LieRE": ("mixed", "liere"),
    "axial, Heo": ("axial", "heo"),
    "“VisionLLaMA”, LieRE": ("axial", "liere"),
}


def compute_waves(name: str, variant: str) -> Tensor:
    """How far each pair of six heads rotates across the image along rows and columns, (P 2), in radians."""
    encoding = create_seeded_encoding(name, head_dim=64, heads=6, size=(SIDE, SIDE), variant=variant)
    extent = encoding.grid(SIDE, SIDE).amax(0) - encoding.grid(SIDE, SIDE).amin(0)
    return (encoding.waves() * extent).detach().flatten(0, -2)


def compute_falling_share(waves: Tensor) -> float:
    """The share of pairs whose stripes run along the other diagonal than those of a wave in the first quadrant."""
    return (waves.prod(-1) < 0).double().mean().item()


def draw_waves(look: FigureTheme, found: Mapping[str, Tensor]) -> Figure:
    figure, panels = create_panels(look, height=2.5, columns=len(found), sharex=True, sharey=True)
    for axes, (name, waves) in zip(panels, found.items(), strict=True):
        axes.axhline(0, color=look.faint, linewidth=0.6, zorder=0)
        axes.axvline(0, color=look.faint, linewidth=0.6, zorder=0)
        axes.scatter(*waves.T.flip(0).numpy(), s=4, color=get_cool_color(look), linewidths=0)
        axes.set(xlim=(-14, 14), ylim=(-14, 14), aspect="equal", xticks=(-13, 0, 13), yticks=(-13, 0, 13))
        label_axes(axes, look, x="along columns, rad", y="along rows, rad" if axes is panels[0] else "", title=name)
    return figure

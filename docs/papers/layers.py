"""LieRE's loop over layers takes the generators of layer 0 in every layer."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from .figures import Theme, cool, label, legend, sheet, warm
from .page import Finding, made, picture, table

LAYERS = 12
BLOCKS = (2, 8, 64)
Choose = Callable[[Tensor], list[Tensor]]


def published(turns: Tensor) -> list[Tensor]:
    """What each layer gets from a tensor of all layers (L ...) when the slice taken for a layer replaces the tensor."""
    used = []
    for layer in range(len(turns)):
        if len(turns) > 1:
            turns = turns[layer : layer + 1]
        used.append(turns[0])
    return used


def gradients(choose: Choose) -> Tensor:
    """The norm of the gradient of each layer's generators in a small transformer of attention alone."""
    encoding = made("liere", head_dim=16, heads=2, layers=LAYERS, block=8, size=(3, 5))
    x = torch.randn(2, 15, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for turn in choose(encoding(encoding.grid(3, 5)).matrices()):
        read = F.layer_norm(x, x.shape[-1:])
        turned = (turn @ read.unsqueeze(-1)).squeeze(-1)
        x = x + (turned @ turned.mT / 4).softmax(-1) @ read
    x.square().sum().backward()
    return encoding.upper.grad.flatten(1).norm(dim=1)


def parameters(block: int) -> int:
    """Learned numbers in a ViT-B of 12 layers with 12 heads of 64."""
    encoding = made("liere", head_dim=64, heads=12, layers=LAYERS, block=block)
    return sum(parameter.numel() for parameter in encoding.parameters())


def draw(norms: dict[str, Tensor], look: Theme) -> Figure:
    """The gradients of each layer, the published loop beside one that indexes."""
    figure, axes = sheet(look, height=2.3)
    for side, (name, norm), colour in zip((-0.2, 0.2), norms.items(), (cool(look), warm(look)), strict=True):
        axes.bar([layer + side for layer in range(LAYERS)], norm.tolist(), width=0.4, color=colour, label=name)
    axes.set_xticks(range(LAYERS))
    label(axes, look, x="layer", y="norm of the gradient")
    legend(axes, look)
    return figure


def finding() -> Finding:
    """The section."""
    used = [int(index) for index in published(torch.arange(LAYERS))]
    norms = {"published loop": gradients(published), "own generators in each layer": gradients(list)}
    idle = int((norms["published loop"] == 0).sum())
    counts = {block: parameters(block) for block in BLOCKS}
    rows = [(block, f"{count:,}", f"{count * idle // LAYERS:,}") for block, count in counts.items()]
    text = f"""
The transformer of LieRE's published code (`models/vit.py`) gets the rotations of all layers in one tensor. In layer i it
replaces that tensor by its slice i if it still has more than one layer. After layer 0 it has one layer, so every later
layer reuses the slice of layer 0: the layers use the generators of layers {", ".join(map(str, used))}. Written out as a
loop and differentiated, {idle} of {LAYERS} layers have generators whose gradient is exactly zero.

{picture("layers", "Gradients of the generators: in the published loop only layer 0 has one")}

{table(("block", "generators of a ViT-B", "of which never trained"), rows)}

So with the flag for generators of their own in each layer set, the file still trains one set for all layers, and the
parameter counts of the paper include the rest. The loop is in the first published commit; we cannot tell whether the
paper's runs had it. If they had, the paper's comparison of generators for each layer and for all layers would compare
the same thing.

In ropewalk `layers=12` makes generators for 12 layers and `code[i]` is layer i's code. An encoding made without
`layers=` and used in every block is what the published loop computes.
"""
    return Finding(
        name="layers",
        title="LieRE's loop uses layer 0's generators in every layer",
        number=f"{counts[8] * idle // LAYERS:,} of {counts[8]:,} parameters idle (block 8)",
        where="LieRE, published code",
        here="`layers=`: each layer its own; without it: one for all",
        text=text,
        figures={"layers": partial(draw, norms)},
    )

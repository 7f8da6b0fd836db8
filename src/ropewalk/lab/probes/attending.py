"""Where trained heads look: attention weights of a query in the middle, on the average over the validation set."""

import math
from typing import cast

import torch
from torch import Tensor

from ropewalk.code import Code
from ropewalk.lab.data import in_order
from ropewalk.lab.probes.opening import Opened, opened
from ropewalk.lab.store import Run
from ropewalk.models.vit import Block


def patterns(run: Run, layer: int, *, device: torch.device | str | None = None) -> Tensor:
    """Mean attention weights (heads, *grid) of a layer: from the patch in the middle to every patch, float64 on the CPU.

    Of an even number of patches, the middle is the later of the two. What the query gives to a class token and to registers
    is left out, so that weights sum to 1 less that.
    """
    if not 0 <= layer < run.config.depth:
        raise ValueError(f"layer must be from 0 to {run.config.depth - 1}, got {layer}")
    return _patterns(opened(run, device), layer)


@torch.no_grad()
def _patterns(subject: Opened, layer: int) -> Tensor:
    block, data, skipped = cast(Block, subject.model.blocks[layer]), subject.data, subject.model.tokens
    total = torch.zeros(subject.config.heads, math.prod(subject.grid), dtype=torch.float64, device=data.device)

    def look(_: torch.nn.Module, given: tuple[Tensor, Code]) -> None:
        total.add_(weights(block, *given, query=skipped + middle(subject.grid))[..., skipped:].double().sum(0))

    count, hook = data.counts["validation"], block.register_forward_pre_hook(look)
    try:
        for some in data.batches("validation", in_order(count, subject.config.batch)):
            subject.logits(some.images)
    finally:
        hook.remove()
    return total.div(count).cpu().view(-1, *subject.grid)


def middle(grid: tuple[int, ...]) -> int:
    """The place of the patch in the middle, patches counted in row-major order."""
    place = 0
    for side in grid:
        place = place * side + side // 2
    return place


def weights(block: Block, x: Tensor, code: Code, *, query: int) -> Tensor:
    """Attention weights (B H N) of one query of a block whose input is x (B N C)."""
    q, k, _ = code.qkv(block.qkv(block.norm1(x)).unflatten(-1, (3 * block.heads, -1)), block.heads)
    logits: Tensor = q[:, :, query, None] @ k.mT * q.shape[-1] ** -0.5  # (B H 1 N)
    added = code.scores(q, k)
    if added is not None:
        logits = logits + added.expand(*q.shape[:3], k.shape[2])[:, :, query, None]
    return logits.float().softmax(-1).squeeze(-2)

"""Where trained heads look: attention weights of a query in the middle, on the average over the validation set."""

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from ropewalk.code import Code, Sealed, unseal
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.task_types import find_task
from ropewalk.lab.tasks import open_trained_run
from ropewalk.lab.tasks.trained_images import ImageRun, iterate_validation
from ropewalk.models.vit import Block, ViT


def measure_attention_weights(
    run: RunFolder, layers: Sequence[int], *, device: torch.device | str | None = None
) -> dict[int, Tensor]:
    """Mean attention weights (heads, *grid) of layers: from the patch in the middle to every patch, float64 on the CPU.

    Of an even number of patches, the middle is the later of the two. What the query gives to a class token and to registers
    is left out, so that weights sum to 1 less that.
    """
    if (task := find_task(run.config).name) != "classify" or run.config.model:
        found = f"the task {task}" + (f" and the model {run.config.model}" if run.config.model else "")
        raise ValueError(f"attention patterns are read from our own ViT with the task classify; {run.path} has {found}")
    for layer in layers:
        if not 0 <= layer < run.config.depth:
            raise ValueError(f"layer must be from 0 to {run.config.depth - 1}, got {layer}")
    subject = open_trained_run(run, device)
    assert isinstance(subject, ImageRun)
    assert isinstance(subject.model, ViT)
    return _average_weights(subject, subject.model, layers)


@torch.no_grad()
def _average_weights(subject: ImageRun, model: ViT, layers: Sequence[int]) -> dict[int, Tensor]:
    """All layers in one pass over the images."""
    shape, data = (subject.config.heads, math.prod(subject.grid)), subject.data
    totals = {layer: torch.zeros(shape, dtype=torch.float64, device=data.device) for layer in layers}
    hooks = [
        model.blocks[layer].register_forward_pre_hook(_make_weights_hook(subject, model.tokens, totals[layer]))
        for layer in totals
    ]
    try:
        for some in iterate_validation(data, subject.config.batch):
            subject.logits(some.images)
    finally:
        for hook in hooks:
            hook.remove()
    return {layer: total.div(data.counts["validation"]).cpu().view(-1, *subject.grid) for layer, total in totals.items()}


def _make_weights_hook(
    subject: ImageRun, skipped: int, total: Tensor
) -> Callable[[torch.nn.Module, tuple[Tensor, Sealed]], None]:
    """What looks at the input of a block, and adds up its weights on patches, after so many tokens that have no place."""

    def look(block: torch.nn.Module, given: tuple[Tensor, Sealed]) -> None:
        x, code = given
        middle = skipped + find_middle_patch(subject.grid)
        found = compute_query_weights(cast(Block, block), x, unseal(code), query=middle)
        total.add_(found[..., skipped:].double().sum(0))

    return look


def find_middle_patch(grid: tuple[int, ...]) -> int:
    """The place of the patch in the middle, patches counted in row-major order."""
    place = 0
    for side in grid:
        place = place * side + side // 2
    return place


def compute_query_weights(block: Block, x: Tensor, code: Code, *, query: int) -> Tensor:
    """Attention weights (B H N) of one query of a block whose input is x (B N C)."""
    q, k, _ = code.qkv(block.qkv(block.norm1(x)).unflatten(-1, (3 * block.heads, -1)), block.heads)
    logits: Tensor = q[:, :, query, None] @ k.mT * q.shape[-1] ** -0.5  # (B H 1 N)
    added = code.scores(q, k)
    if added is not None:
        logits = logits + added.expand(*q.shape[:3], k.shape[2])[:, :, query, None]
    return logits.float().softmax(-1).squeeze(-2)

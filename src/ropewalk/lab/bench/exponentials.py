"""The exponentials that LieRE at its start needs for all layers of a ViT-S, there and back, beside PyTorch's own."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ropewalk import ops
from ropewalk.encodings.liere import LieRE
from ropewalk.lab.bench import judge
from ropewalk.lab.bench.clock import back, called, device, dispatched, replayed, replayed_back
from ropewalk.lab.bench.job import Job, Row

BLOCKS = (8, 64)
LARGE: dict[str, Any] = {"layers": 12, "heads": 6, "size": (14, 14)}
SMALL: dict[str, Any] = {"layers": 2, "heads": 2, "size": (2, 3)}

Exponential = Callable[[Tensor], Tensor]


def skew_matrices(block: int) -> Tensor:
    """What LieRE exponentiates, (L h n G b b)."""
    shape = LARGE if device() == "cuda" else SMALL
    torch.manual_seed(0)
    encoding = LieRE(head_dim=64, block=block, **shape)
    found = torch.einsum("na,lhagij->lhngij", encoding.grid(*shape["size"]), encoding.blocks().detach())
    return found.contiguous().to(device())


def measured(exponential: Exponential, block: int, *, captured: bool) -> Row:
    """Forward and backward. What waits for the device in between cannot be captured."""
    skew = skew_matrices(block).requires_grad_()
    gradient = torch.randn_like(skew)

    def there() -> list[Tensor]:
        return [exponential(skew)]

    error = {"error": judge_both(there()[0], skew, gradient)}
    there_and_back = (there, [skew], [gradient])
    if not captured:
        return {"ms": called(there, rounds=5), "back ms": called(back(*there_and_back), rounds=5), **error}
    with torch.no_grad():
        row = {"ms": replayed(there), "eager ms": dispatched(there)}
    return row | {"back ms": replayed_back(*there_and_back), "eager back ms": dispatched(back(*there_and_back)), **error}


def judge_both(rotation: Tensor, skew: Tensor, gradient: Tensor) -> float:
    """The error of the rotation and of the gradient that leads back from it, of a sample."""
    (found,) = torch.autograd.grad(rotation, skew, gradient)
    matrices, outs, given, back_outs = judge.sample(skew, rotation, gradient, found)
    right, back_right = judge.exponentials(matrices, given)
    return judge.judged([outs, judge.skew_part(back_outs)], [right, back_right], skew.dtype)


def jobs() -> list[Job]:
    """Ours and PyTorch's, for each size of blocks."""
    contenders = {"expm": (ops.expm, True), "torch.linalg.matrix_exp": (torch.linalg.matrix_exp, False)}
    return [
        Job(
            {"suite": "ops", "shape": _label(block), "name": name},
            functools.partial(measured, exponential, block, captured=captured),
        )
        for block in BLOCKS
        for name, (exponential, captured) in contenders.items()
    ]


def _label(block: int) -> str:
    shape = LARGE if device() == "cuda" else SMALL
    rows, columns = shape["size"]
    return f"{shape['layers']} layers, {shape['heads']} heads, {rows} x {columns} patches, blocks of {block}"

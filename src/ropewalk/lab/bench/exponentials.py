"""The exponentials that LieRE at its start needs for all layers of a ViT-S, there and back, beside PyTorch's own."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ropewalk import ops
from ropewalk.encodings.liere import LieRE
from ropewalk.lab.bench.correctness import check_output_error, compute_skew_part, exponentiate_skew_matrices, sample_matrices
from ropewalk.lab.bench.timing import (
    BenchJob,
    BenchRow,
    get_bench_device,
    make_backward_work,
    time_backward_replay,
    time_calls,
    time_dispatch,
    time_graph_replay,
)

BLOCK_SIZES = (8, 64)
LARGE_SHAPE: dict[str, Any] = {"layers": 12, "heads": 6, "size": (14, 14)}
SMALL_SHAPE: dict[str, Any] = {"layers": 2, "heads": 2, "size": (2, 3)}

ExponentialFunction = Callable[[Tensor], Tensor]


def sample_skew_matrices(block: int) -> Tensor:
    """What LieRE exponentiates, (L h n G b b)."""
    shape = LARGE_SHAPE if get_bench_device() == "cuda" else SMALL_SHAPE
    torch.manual_seed(0)
    encoding = LieRE(head_dim=64, block=block, **shape)
    found = torch.einsum("na,lhagij->lhngij", encoding.grid(*shape["size"]), encoding.blocks().detach())
    return found.contiguous().to(get_bench_device())


def measure_exponential(exponential: ExponentialFunction, block: int, *, captured: bool) -> BenchRow:
    """Forward and backward. What waits for the device in between cannot be captured."""
    skew = sample_skew_matrices(block).requires_grad_()
    gradient = torch.randn_like(skew)

    def there() -> list[Tensor]:
        return [exponential(skew)]

    error = {"error": check_exponential_error(there()[0], skew, gradient)}
    there_and_back = (there, [skew], [gradient])
    if not captured:
        return {
            "ms": time_calls(there, rounds=5),
            "back ms": time_calls(make_backward_work(*there_and_back), rounds=5),
            **error,
        }
    with torch.no_grad():
        row = {"ms": time_graph_replay(there), "eager ms": time_dispatch(there)}
    return row | {
        "back ms": time_backward_replay(*there_and_back),
        "eager back ms": time_dispatch(make_backward_work(*there_and_back)),
        **error,
    }


def check_exponential_error(rotation: Tensor, skew: Tensor, gradient: Tensor) -> float:
    """The error of the rotation and of the gradient that leads back from it, of a sample."""
    (found,) = torch.autograd.grad(rotation, skew, gradient)
    matrices, outs, given, back_outs = sample_matrices(skew, rotation, gradient, found)
    right, back_right = exponentiate_skew_matrices(matrices, given)
    return check_output_error([outs, compute_skew_part(back_outs)], [right, back_right], skew.dtype)


def list_exponential_jobs() -> list[BenchJob]:
    """Ours and PyTorch's, for each size of blocks."""
    contenders = {"expm": (ops.expm, True), "torch.linalg.matrix_exp": (torch.linalg.matrix_exp, False)}
    return [
        BenchJob(
            {"suite": "ops", "shape": _format_label(block), "name": name},
            functools.partial(measure_exponential, exponential, block, captured=captured),
        )
        for block in BLOCK_SIZES
        for name, (exponential, captured) in contenders.items()
    ]


def _format_label(block: int) -> str:
    shape = LARGE_SHAPE if get_bench_device() == "cuda" else SMALL_SHAPE
    rows, columns = shape["size"]
    return f"{shape['layers']} layers, {shape['heads']} heads, {rows} x {columns} patches, blocks of {block}"

"""What it costs to train without cuDNN's attention: PyTorch's kernels there and back, beside each other in one run.

python benchmarks/attention_kernels.py --path results/attention-kernels-h200.json

Gradients of each are compared with those of float64 before they are timed. "ropewalk" is the kernel that
`ropewalk.attend` takes for few tokens. "formula" is softmax(q kᵀ) v, fused by the compiler as far as it goes, with
all scores in memory.
"""

import datetime
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ropewalk.lab.bench.timing import get_bench_device, time_backward_replay, time_calls, time_graph_replay
from ropewalk.lab.environment import describe_machine, list_package_versions
from ropewalk.ops.attend import FEW, Attended

SHAPES = {
    "8 × 8 patches": (1024, 4, 64, 48),
    "8 × 8 patches, 256 samples": (256, 4, 64, 48),
    "8 × 8 patches, 64 samples": (64, 4, 64, 48),
    "8 × 8 patches, wide heads": (256, 6, 64, 64),
    "windows of 7 × 7": (1024, 6, 49, 32),
    "10 × 10 patches": (256, 4, 100, 48),
    "5 × 5 × 5 patches": (64, 4, 125, 48),
    "8 × 16 patches, wide heads": (256, 6, 128, 64),
    "14 × 14 patches": (256, 6, 196, 64),
    "24 × 24 patches": (64, 6, 576, 64),
    "64 × 64 patches": (4, 12, 4096, 64),
}
KERNELS: dict[str, SDPBackend | None] = {
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "ropewalk": None,
    "formula": None,
}
ALLOWED = 0.02
"""Of the norm of the exact gradients."""

Attention = Callable[..., Tensor]


class Wrong(ValueError):
    """Gradients are not what they should be."""


def attention(kernel: str) -> Attention:
    """Attention by one kernel alone."""
    backend = KERNELS[kernel]
    if kernel == "ropewalk":
        return ropewalks
    if backend is None:
        torch.compiler.reset()  # or after some shapes it would run as it is written
        return torch.compile(formula, dynamic=False)

    def attend(*qkv: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(*qkv)

    return attend


def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Products in the dtype of q, the softmax in float32."""
    scores = (q @ k.mT).float() * q.shape[-1] ** -0.5
    return scores.softmax(-1).to(q.dtype) @ v


def ropewalks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The kernel of ropewalk, or a word that there is none."""
    if not (q.is_cuda and q.shape[2] <= FEW):
        raise Wrong(f"the kernel is for {FEW} tokens at most on CUDA, got {q.shape[2]} on {q.device.type}")
    return Attended.apply(q, k, v, q.shape[-1] ** -0.5)


def timed(kernel: str, shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    """Milliseconds there and back as CUDA graphs, and of both as Python calls them; or why there are none."""
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=get_bench_device(), dtype=dtype).requires_grad_() for _ in range(3)]
    gradient, attend = torch.randn(shape, device=get_bench_device(), dtype=dtype), attention(kernel)
    try:
        checked(attend, [x[:2].detach().requires_grad_() for x in inputs], gradient[:2])
        there = functools.partial(attend, *inputs)
        with torch.no_grad():
            forward = time_graph_replay(there)
        backward = time_backward_replay(lambda: [there()], inputs, [gradient])
        both = time_calls(lambda: torch.autograd.grad(there(), inputs, gradient))
        return {"ms": forward, "back ms": backward, "eager ms": both}
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except (Wrong, RuntimeError) as error:
        return {"why": str(error).splitlines()[0]}


def checked(attend: Attention, inputs: list[Tensor], gradient: Tensor) -> None:
    """Refuse gradients that are far from exact ones."""
    exact = [x.detach().double().requires_grad_() for x in inputs]
    wanted = torch.autograd.grad(F.scaled_dot_product_attention(*exact), exact, gradient.double())
    for found, right in zip(torch.autograd.grad(attend(*inputs), inputs, gradient), wanted, strict=True):
        error = (found.double() - right).norm() / right.norm()
        if not error <= ALLOWED:
            raise Wrong(f"gradients are off by {error:.1e} of their norm, more than {ALLOWED}")


def rows(shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> list[dict[str, Any]]:
    """A row for each shape and kernel."""
    found: list[dict[str, Any]] = []
    for label, shape in shapes.items():
        for kernel in KERNELS:
            told = timed(kernel, shape, dtype)
            found.append({"what": label, "shape": list(shape), "kernel": kernel, **told})
            print(f"{label}, {kernel}: {told}", flush=True)
    return found


def main(path: Path | None = None) -> None:
    """Measure and, if a file is named, write it.

    Args:
        path: The file.
    """
    found = rows(SHAPES, torch.bfloat16)
    if path is not None:
        head = {
            "machine": describe_machine(),
            "versions": list_package_versions(),
            "date": datetime.date.today().isoformat(),
        }
        path.write_text(json.dumps({**head, "rows": found}, indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    tyro.cli(main)

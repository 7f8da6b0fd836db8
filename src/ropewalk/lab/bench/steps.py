"""A ViT-S with each encoding, beside the same model with none: training step, inference, memory.

Same residual stream (bfloat16 by autocast), same tokens, same images; medians in one run.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ropewalk.lab.bench.clock import called, device
from ropewalk.models import ViT

CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("none", {}),
    "learned-ape": ("learned-ape", {}),
    "axial": ("axial", {}),
    "axial, learned": ("axial", {"learned": True}),
    "mixed": ("mixed", {}),
    "uniform": ("uniform", {}),
    "golden": ("golden", {}),
    "spherical": ("spherical", {}),
    "spherical, learned": ("spherical", {"learned": True}),
    "comrope-ap, block 8": ("comrope-ap", {"block": 8}),
    "comrope-ld, block 8": ("comrope-ld", {"block": 8}),
    "liere, block 8": ("liere", {"block": 8}),
    "liere, block 64": ("liere", {"block": 64}),
    "string-cayley": ("string-cayley", {}),
    "swin-bias": ("swin-bias", {}),
}
LARGE = {"preset": "small", "size": (224, 224), "patch": 16, "batch": 256, "classes": 1000}
SMALL = {"preset": "tiny", "size": (32, 48), "patch": 8, "batch": 2, "classes": 10}


def rows(names: tuple[str, ...] = (), modes: tuple[str, ...] = ("eager", "compiled")) -> Iterator[dict[str, Any]]:
    """A row for each encoding and mode, those of "none" first."""
    chosen = {name: CONTENDERS[name] for name in CONTENDERS if not names or name in names or name == "none"}
    for mode in modes:
        base: dict[str, Any] = {}
        for name, (encoding, options) in chosen.items():
            figures = _figures(encoding, options, mode == "compiled")
            base = base or figures
            ratios = {f"{key} ratio": figures[key] / base[key] for key in figures if base[key]}
            yield {"suite": "steps", "mode": mode, "name": name, **figures, **ratios}


def _figures(encoding: str, options: dict[str, Any], compiled: bool) -> dict[str, float]:
    setting = LARGE if device() == "cuda" else SMALL
    torch.manual_seed(0)
    torch.compiler.reset()
    preset, size, patch = setting["preset"], setting["size"], setting["patch"]
    model = ViT(preset, encoding=encoding, options=options, size=size, patch=patch, classes=setting["classes"]).to(device())
    images = torch.randn(setting["batch"], 3, *size, device=device())
    labels = torch.randint(setting["classes"], (setting["batch"],), device=device())
    if compiled:
        model.compile()
    train = functools.partial(_train, model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True), images, labels)
    found = {"train ms": 0.0, "train GB": _peak(train)}
    found["train ms"] = called(train, rounds=15)
    infer = functools.partial(_infer, model.eval(), images)
    return found | {"infer ms": called(infer, rounds=15)}


def _train(model: nn.Module, optimiser: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    with torch.autocast(device(), torch.bfloat16):
        loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


@torch.no_grad()
def _infer(model: nn.Module, images: Tensor) -> None:
    with torch.autocast(device(), torch.bfloat16):
        model(images)


def _peak(work: Callable[[], object]) -> float:
    """The most memory in use during one call, in gigabytes, after compilation."""
    for _ in range(3):
        work()
    if device() != "cuda":
        return 0.0
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 1e9

"""A ViT-S with each encoding, beside the same model with none: training step, inference, memory.

Same residual stream (bfloat16 by autocast), same tokens, same images; medians in one run.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ropewalk.lab.bench.clock import device, in_turn
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
LARGE: dict[str, Any] = {"preset": "small", "size": (224, 224), "patch": 16, "batch": 256, "classes": 1000}
SMALL: dict[str, Any] = {"preset": "tiny", "size": (32, 48), "patch": 8, "batch": 2, "classes": 10}


class Contender:
    """A model with an encoding, and what it does: a training step, and inference."""

    def __init__(self, encoding: str, options: dict[str, Any], compiled: bool) -> None:
        setting = LARGE if device() == "cuda" else SMALL
        torch.manual_seed(0)
        before = _resident()
        preset, size, patch, classes = (setting[name] for name in ("preset", "size", "patch", "classes"))
        model = ViT(preset, encoding=encoding, options=options, size=size, patch=patch, classes=classes).to(device())
        images = torch.randn(setting["batch"], 3, *size, device=device())
        labels = torch.randint(classes, (setting["batch"],), device=device())
        if compiled:
            model.compile()
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        self.train = functools.partial(_train, model, optimiser, images, labels)
        self.infer = functools.partial(_infer, model, images)
        self.memory = _peak(self.train) - before

    def against(self, base: "Contender") -> dict[str, float]:
        """Medians, and ratios to the base, the two taking turns so that a busy machine is busy for both."""
        found = {"train GB": self.memory, "train GB ratio": self.memory / base.memory if base.memory else 1.0}
        for name in ("train", "infer"):
            mine, theirs = in_turn(getattr(self, name), getattr(base, name))
            found |= {f"{name} ms": mine, f"{name} ms ratio": mine / theirs}
        return found


def rows(names: tuple[str, ...] = (), modes: tuple[str, ...] = ("eager", "compiled")) -> Iterator[dict[str, Any]]:
    """A row for each encoding and mode, those of "none" first: against itself, which tells what a ratio is worth."""
    chosen = {name: CONTENDERS[name] for name in CONTENDERS if not names or name in names or name == "none"}
    for mode in modes:
        base = Contender(*CONTENDERS["none"], mode == "compiled")
        for name, (encoding, options) in chosen.items():
            contender = Contender(encoding, options, mode == "compiled")
            yield {"suite": "steps", "mode": mode, "name": name, **contender.against(base)}


def _train(model: nn.Module, optimiser: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    with torch.autocast(device(), torch.bfloat16):
        loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


@torch.no_grad()
def _infer(model: nn.Module, images: Tensor) -> None:
    model.eval()
    with torch.autocast(device(), torch.bfloat16):
        model(images)
    model.train()


def _resident() -> float:
    return torch.cuda.memory_allocated() / 1e9 if device() == "cuda" else 0.0


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

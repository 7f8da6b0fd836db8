"""What inference costs: images a second and memory, and how many numbers are learned.

The model and its like without an encoding take turns, forth and back, so that a busy machine is busy for both, and the
fastest round of each counts, since others on the machine only make it slower. Times are of the machine that the probe runs
on, and no two runs of it agree: compare those of one machine, by their ratio.
"""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from ropewalk.lab.bench.clock import rounds_in_turn
from ropewalk.lab.building import model_of
from ropewalk.lab.probes.opening import Opened, Rows
from ropewalk.models import ViT

ROUNDS = 9
FEW = 64
"""The most images in a batch on a CPU."""


def cost(opened: Opened) -> Rows:
    """Images a second through the model, and `without_encoding`; peak_bytes is None where nobody counts them."""
    device = opened.data.device
    count = opened.config.batch if device.type == "cuda" else min(opened.config.batch, FEW)
    images = torch.zeros(count, opened.data.channels, *opened.data.size, device=device)
    works = [partial(_forward, model, images, opened.config.precision) for model in (opened.model, _bare(opened))]
    own, bare = (1e3 * count / min(each) for each in rounds_in_turn(*works, rounds=ROUNDS, warm=2, where=device.type))
    yield {
        "images_per_second": own,
        "without_encoding": bare,
        "peak_bytes": _peak(works[0], device),
        "parameters": _numbers(opened.model),
        "encoding_parameters": _numbers(opened.encoding),
        "batch": count,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def _bare(opened: Opened) -> ViT:
    """The same model without an encoding."""
    config, data = replace(opened.config, encoding="none", options={}, span=None), opened.data
    with torch.random.fork_rng(devices=[]):
        made = model_of(config, size=data.size, channels=data.channels, classes=len(data.classes))
    return made.eval().to(data.device)


@torch.no_grad()
def _forward(model: nn.Module, images: Tensor, precision: str) -> None:
    with torch.autocast(images.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        model(images)


def _peak(work: partial[None], device: torch.device) -> int | None:
    """The most bytes in use during a call, the model's own included."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


def _numbers(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())

"""What inference costs: images or bytes of text a second and memory, and how many numbers are learned.

The model and its like without an encoding take turns, forth and back, so that a busy machine is busy for both, and the
fastest round of each counts, since others on the machine only make it slower. Times are of the machine that the probe runs
on, and no two runs of it agree: compare those of one machine, by their ratio.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ropewalk.lab.bench.clock import rounds_in_turn
from ropewalk.lab.building import model_of
from ropewalk.lab.probes.opening import Opened, Rows
from ropewalk.lab.probes.reading import Read
from ropewalk.lab.tasks.text import reader_of

if TYPE_CHECKING:
    from ropewalk.lab.probes.looking import Maps
    from ropewalk.lab.starting import Model

ROUNDS = 9
FEW = 64
"""The most images or texts in a batch on a CPU."""


def cost(opened: Opened) -> Rows:
    """Images a second through the model, and `without_encoding`; peak_bytes is None where nobody counts them."""
    device = opened.data.device
    count = opened.config.batch if device.type == "cuda" else min(opened.config.batch, FEW)
    images = torch.zeros(count, opened.data.channels, *opened.data.size, device=device)
    yield told(opened.model, _bare(opened), images, opened.config.precision, "images") | {"batch": count}


def cost_of_reading(subject: Read) -> Rows:
    """Bytes a second through the model in windows of the length of training, without a cache, and `without_encoding`."""
    config, device = subject.config, subject.text.parts["train"].device
    count = config.batch if device.type == "cuda" else min(config.batch, FEW)
    tokens = torch.zeros(count, subject.length, dtype=torch.int64, device=device)
    with torch.random.fork_rng(devices=[]):
        bare = reader_of(replace(config, encoding="none", options={}, span=None)).eval().to(device)
    yield told(subject.model, bare, tokens, config.precision, "bytes") | {"batch": count}


def told(own: "Model | Maps", bare: nn.Module, given: Tensor, precision: str, things: str) -> dict[str, Any]:
    """What a model costs beside its like without an encoding; text counts byte by byte."""
    device, many = given.device, given.numel() if things == "bytes" else len(given)
    works = [partial(_forward, model, given, precision) for model in (own, bare)]
    mine, plain = (1e3 * many / min(each) for each in rounds_in_turn(*works, rounds=ROUNDS, warm=2, where=device.type))
    return {
        f"{things}_per_second": mine,
        "without_encoding": plain,
        "peak_bytes": _peak(works[0], device),
        "parameters": _numbers(own),
        "encoding_parameters": _numbers(own.encoding),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def _bare(opened: Opened) -> nn.Module:
    """The same model without an encoding."""
    config, data = replace(opened.config, encoding="none", options={}, span=None), opened.data
    with torch.random.fork_rng(devices=[]):
        made = model_of(config, size=data.size, channels=data.channels, classes=len(data.classes))
    return made.eval().to(data.device)


@torch.no_grad()
def _forward(model: nn.Module, given: Tensor, precision: str) -> None:
    with torch.autocast(given.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        model(given)


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

"""Probes of runs that find things in images: what their maps cost, and how soon training was how good.

What inference costs: images or bytes of text a second and memory, and how many numbers are learned.

The model and its like without an encoding take turns, forth and back, so that a busy machine is busy for both, and the
fastest round of each counts, since others on the machine only make it slower. Times are of the machine that the probe runs
on, and no two runs of it agree: compare those of one machine, by their ratio.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ropewalk.encoding import Encoding
from ropewalk.lab.bench.timing import time_interleaved_rounds
from ropewalk.lab.model_building import build_model
from ropewalk.lab.probes.open_run import DetectionRun, ImageRun, ProbeRows
from ropewalk.lab.probes.text import TextRun
from ropewalk.lab.tasks.detect import build_detector, check_view_size
from ropewalk.lab.tasks.text import build_language_model
from ropewalk.lab.vision_heads.detector import ViTDetector

if TYPE_CHECKING:
    from ropewalk.lab.init_from import TrainableModel


def probe_detection_cost(subject: DetectionRun) -> ProbeRows:
    """Images of the size of training a second through ViT and pyramid, and `without_encoding`."""
    config, size = subject.config, check_view_size(subject.config)
    count = config.batch if subject.device.type == "cuda" else min(config.batch, CPU_BATCH_LIMIT)
    with torch.random.fork_rng(devices=[]):
        bare = build_detector(replace(config, encoding="none", options={}, span=None, start=None), size, subject.classes)
    images = torch.zeros(count, 3, *size, device=subject.device)
    own, plain = (DetectorLevels(model.eval().to(subject.device)) for model in (subject.model, bare))
    yield measure_model_cost(own, plain, images, config.precision, "images") | {"batch": count}


class DetectorLevels(nn.Module):
    """What of a detector depends on positions: with its heads, times would go by what is found."""

    def __init__(self, detector: ViTDetector) -> None:
        super().__init__()
        self.detector = detector

    @property
    def encoding(self) -> Encoding:
        """That of the detector."""
        return self.detector.encoding

    def forward(self, images: Tensor) -> list[Tensor]:
        return self.detector.levels(images)


TIMING_ROUNDS = 9
CPU_BATCH_LIMIT = 64
"""The most images or texts in a batch on a CPU."""


def probe_image_cost(opened: ImageRun) -> ProbeRows:
    """Images a second through the model, and `without_encoding`; peak_bytes is None where nobody counts them."""
    device = opened.data.device
    count = opened.config.batch if device.type == "cuda" else min(opened.config.batch, CPU_BATCH_LIMIT)
    images = torch.zeros(count, opened.data.channels, *opened.data.size, device=device)
    yield measure_model_cost(opened.model, build_bare_model(opened), images, opened.config.precision, "images") | {
        "batch": count
    }


def probe_text_cost(subject: TextRun) -> ProbeRows:
    """Bytes a second through the model in windows of the length of training, without a cache, and `without_encoding`."""
    config, device = subject.config, subject.text.parts["train"].device
    count = config.batch if device.type == "cuda" else min(config.batch, CPU_BATCH_LIMIT)
    tokens = torch.zeros(count, subject.length, dtype=torch.int64, device=device)
    with torch.random.fork_rng(devices=[]):
        bare = build_language_model(replace(config, encoding="none", options={}, span=None)).eval().to(device)
    yield measure_model_cost(subject.model, bare, tokens, config.precision, "bytes") | {"batch": count}


def measure_model_cost(
    own: "TrainableModel | DetectorLevels", bare: nn.Module, given: Tensor, precision: str, things: str
) -> dict[str, Any]:
    """What a model costs beside its like without an encoding; text counts byte by byte."""
    device, many = given.device, given.numel() if things == "bytes" else len(given)
    works = [partial(_forward, model, given, precision) for model in (own, bare)]
    mine, plain = (
        1e3 * many / min(each) for each in time_interleaved_rounds(*works, rounds=TIMING_ROUNDS, warm=2, where=device.type)
    )
    return {
        f"{things}_per_second": mine,
        "without_encoding": plain,
        "peak_bytes": _measure_peak_memory(works[0], device),
        "parameters": _count_parameters(own),
        "encoding_parameters": _count_parameters(own.encoding),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def build_bare_model(opened: ImageRun) -> nn.Module:
    """The same model without an encoding."""
    config, data = replace(opened.config, encoding="none", options={}, span=None), opened.data
    with torch.random.fork_rng(devices=[]):
        made = build_model(config, size=data.size, channels=data.channels, classes=len(data.classes))
    return made.eval().to(data.device)


@torch.no_grad()
def _forward(model: nn.Module, given: Tensor, precision: str) -> None:
    with torch.autocast(given.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        model(given)


def _measure_peak_memory(work: partial[None], device: torch.device) -> int | None:
    """The most bytes in use during a call, the model's own included."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


def _count_parameters(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())

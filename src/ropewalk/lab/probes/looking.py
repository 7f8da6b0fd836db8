"""Probes of runs that find things in images: what their maps cost, and how soon training was how good."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ropewalk.encoding import Encoding
from ropewalk.lab.config import Config
from ropewalk.lab.dense.detector import Detector
from ropewalk.lab.dense.origin import Origin
from ropewalk.lab.metric import metric_of
from ropewalk.lab.probes.costing import FEW, told
from ropewalk.lab.probes.opening import Rows
from ropewalk.lab.store import Run
from ropewalk.lab.tasks.detect import detector_of, size_of

SHARES = (0.5, 0.8, 0.9)
"""Of what a run came to in its last validation."""


@dataclass(frozen=True)
class Looked:
    """A run that is probed, with its model on a device."""

    run: Run
    model: Detector
    classes: int
    device: torch.device

    @property
    def config(self) -> Config:
        """Its settings."""
        return self.run.config


def looked(run: Run, device: torch.device | str) -> Looked:
    """A run with the weights of its checkpoint, their moving average where there is one; it needs no data."""
    weights, facts = run.judged()
    classes, origin = facts["data"]["classes"], Origin.within(facts["data"])
    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
        model = detector_of(run.config, size_of(run.config), classes, origin)
    model.load_state_dict(weights)
    return Looked(run, model.eval().requires_grad_(False).to(device), classes, torch.device(device))


def reached_share(subject: Looked) -> Rows:
    """The step of the first validation at or above shares of the last one, and how good that is."""
    name = f"validation_{metric_of(subject.config.document()).key}"
    seen = [(record["step"], record[name]) for record in subject.run.metrics() if record.get(name) is not None]
    for share in SHARES if seen else ():
        level = share * seen[-1][1]
        yield {"share": share, "value": level, "step": next(step for step, value in seen if value >= level)}


def cost_of_looking(subject: Looked) -> Rows:
    """Images of the size of training a second through ViT and pyramid, and `without_encoding`."""
    config, size = subject.config, size_of(subject.config)
    count = config.batch if subject.device.type == "cuda" else min(config.batch, FEW)
    with torch.random.fork_rng(devices=[]):
        bare = detector_of(replace(config, encoding="none", options={}, span=None, start=None), size, subject.classes)
    images = torch.zeros(count, 3, *size, device=subject.device)
    own, plain = (Maps(model.eval().to(subject.device)) for model in (subject.model, bare))
    yield told(own, plain, images, config.precision, "images") | {"batch": count}


class Maps(nn.Module):
    """What of a detector depends on positions: with its heads, times would go by what is found."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = detector

    @property
    def encoding(self) -> Encoding:
        """That of the detector."""
        return self.detector.encoding

    def forward(self, images: Tensor) -> list[Tensor]:
        return self.detector.levels(images)

"""A run taken up again: its model as it was judged, its data, and how well it answers."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.lab.anatomy import on_cpu
from ropewalk.lab.building import model_of
from ropewalk.lab.config import Config
from ropewalk.lab.data import Batch, Data, in_order
from ropewalk.lab.dense.origin import Origin
from ropewalk.lab.evaluate import Scores, normalised
from ropewalk.lab.patching import grid_of
from ropewalk.lab.store import Run
from ropewalk.lab.tasks.vision import open_data
from ropewalk.models import ViT

if TYPE_CHECKING:
    from ropewalk.lab.dense.segmenter import Segmenter
    from ropewalk.lab.hosting import Hosted

Rows = Iterable[dict[str, Any]]
Answer = Callable[[Batch], Tensor]
"""A way to give the logits (B classes) of a batch."""


class Empty(ValueError):
    """There are no images to look at."""


@dataclass(frozen=True)
class Opened:
    """A run that is probed, with its model and its data on one device."""

    run: Run
    model: "ViT | Hosted | Segmenter"
    data: Data

    @property
    def config(self) -> Config:
        """Its settings."""
        return self.run.config

    @property
    def encoding(self) -> Encoding:
        """The trained encoding."""
        return self.model.encoding

    @property
    def depth(self) -> int:
        """Layers of the model."""
        return self.encoding.layers or self.config.depth

    @property
    def grid(self) -> tuple[int, ...]:
        """The patches of an image in training, along each axis."""
        return grid_of(self.data.size, self.config.patch)

    def logits(self, images: Tensor, positions: Tensor | None = None, *, resolution: str = "extrapolate") -> Tensor:
        """Of images of bytes (B C *size), in the precision of training and normalised as there, whatever their size."""
        x = normalised(images.float() / 255, self.data)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            logits: Tensor = self.model(x, positions, resolution=resolution)
        return logits.float()

    @cached_property
    def unchanged(self) -> dict[str, Any]:
        """How well it answers where nothing is changed: several probes begin with it."""
        return mean(judged(self.data, [lambda batch: self.logits(batch.images)], batch=self.config.batch))


def opened(run: Run, device: torch.device | str | None = None) -> Opened:
    """A run on a device, which is a GPU if there is one and none is named."""
    where = ("cuda" if torch.cuda.is_available() else "cpu") if device is None else device
    return Opened(run, restored(run).to(where), open_data(run.config).to(where))


def restored(run: Run) -> "ViT | Hosted | Segmenter":
    """The model of a run with the weights of its checkpoint, their moving average where there is one; it needs no data."""
    if run.config.length is not None:
        raise ValueError(f"a run on images was wanted, and {run.path} is one on text")
    if run.config.task in ("detect", "masks"):
        raise ValueError(f"a run that finds classes of images was wanted, and the task of {run.path} is {run.config.task}")
    weights, facts = run.judged()
    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
        data = facts["data"]
        shape = {"size": tuple(data["size"]), "channels": data["channels"], "classes": data["classes"]}
        model = model_of(run.config, **shape, origin=Origin.within(data))
    model.load_state_dict(weights)
    return model.eval().requires_grad_(False)


def validation(data: Data, batch: int) -> Iterator[Batch]:
    """All images of the validation set, in order."""
    if not data.counts["validation"]:
        raise Empty(f"the validation set of {data.name} must have images to look at, but it is empty")
    return data.batches("validation", in_order(data.counts["validation"], batch))


@torch.no_grad()
def judged(data: Data, answers: Sequence[Answer], *, batch: int) -> list[Scores]:
    """How well each way to answer does on the validation set, through which they go together."""
    count = data.counts["validation"]
    sums = torch.zeros(len(answers), 2, dtype=torch.float64, device=data.device)
    for some in validation(data, batch):
        for total, answer in zip(sums, answers, strict=True):
            logits = answer(some)
            total[0] += (logits.argmax(-1) == some.labels).sum()
            total[1] += F.cross_entropy(logits, some.labels, reduction="sum")
    return [Scores(right / count, lost / count) for right, lost in sums.tolist()]


def mean(scores: Sequence[Scores]) -> dict[str, Any]:
    """Accuracy and loss on the average; or why there are none."""
    accuracy, loss = (math.fsum(each) / len(scores) for each in zip(*scores, strict=True))
    if not math.isfinite(loss):
        return {"why": f"logits must be finite, got a loss of {loss}"}
    return {"accuracy": accuracy, "loss": loss}


def refusal(encoding: Encoding, positions: Tensor) -> str | None:
    """Why an encoding has nothing to say of these positions, in its own words. It looks at values on a CPU alone."""
    try:
        on_cpu(encoding)(positions.cpu())
    except ValueError as error:
        return str(error)
    return None

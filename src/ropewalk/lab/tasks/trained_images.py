"""A trained model of images with its data, and how well it answers on the validation set."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.lab.data.base import ImageBatch, ImageData
from ropewalk.lab.data.sampling import sequential_order
from ropewalk.lab.patch_grid import compute_patch_grid
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.task_types import find_task
from ropewalk.lab.tasks import load_trained_model
from ropewalk.lab.tasks.base import TrainedRun, normalize_images
from ropewalk.models import ViT

if TYPE_CHECKING:
    from ropewalk.lab.timm_model import TimmModel
    from ropewalk.lab.vision_heads.segmenter import ViTSegmenter

AnswerFunction = Callable[[ImageBatch], Tensor]
"""A way to compute the logits (B classes) of a batch."""


class ClassificationScores(NamedTuple):
    """The share of samples whose class is predicted correctly, and the mean cross entropy."""

    accuracy: float
    loss: float


class EmptyDataError(ValueError):
    """The validation set is empty."""


@dataclass(frozen=True)
class ImageRun(TrainedRun):
    """A run on images, with its model and its data on one device."""

    model: "ViT | TimmModel | ViTSegmenter"
    data: ImageData

    @property
    def device(self) -> torch.device:
        return self.data.device

    @property
    def model_facts(self) -> Mapping[str, Any]:
        return {"size": self.data.size, "channels": self.data.channels, "classes": len(self.data.classes)}

    def make_blank_inputs(self, count: int) -> Tensor:
        return torch.zeros(count, self.data.channels, *self.data.size, device=self.device)

    @property
    def depth(self) -> int:
        """Layers of the model."""
        return self.encoding.layers or self.config.depth

    @property
    def grid(self) -> tuple[int, ...]:
        """The patches of an image in training, along each axis."""
        return compute_patch_grid(self.data.size, self.config.patch)

    def logits(self, images: Tensor, positions: Tensor | None = None, *, resolution: str | None = None) -> Tensor:
        """Logits of images of bytes (B C *size) of any size, in the precision and with the normalization of training."""
        x = normalize_images(images.float() / 255, self.data)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            logits: Tensor = self.model(x, positions, resolution=resolution)
        return logits.float()

    @cached_property
    def unmodified_scores(self) -> dict[str, Any]:
        """Scores on unmodified images, which several probes compare with."""
        return average_scores(score_answers(self.data, [lambda batch: self.logits(batch.images)], batch=self.config.batch))


def load_image_model(run: RunFolder) -> "ViT | TimmModel | ViTSegmenter":
    """The model of a run that predicts classes of images or of their pixels, as it was evaluated. It needs no data."""
    if (task := find_task(run.config).name) not in ("classify", "segment"):
        raise ValueError(f"expected a run on images with the task classify or segment; the task of {run.path} is {task}")
    model: ViT | TimmModel | ViTSegmenter = load_trained_model(run)
    return model


def iterate_validation(data: ImageData, batch: int) -> Iterator[ImageBatch]:
    """All images of the validation set, in order."""
    if not data.counts["validation"]:
        raise EmptyDataError(f"the validation set of {data.name} is empty: there are no images to evaluate")
    return data.batches("validation", sequential_order(data.counts["validation"], batch))


@torch.no_grad()
def score_answers(data: ImageData, answers: Sequence[AnswerFunction], *, batch: int) -> list[ClassificationScores]:
    """Scores of several ways to compute logits on the validation set, which is read once."""
    count = data.counts["validation"]
    sums = torch.zeros(len(answers), 2, dtype=torch.float64, device=data.device)
    for some in iterate_validation(data, batch):
        for total, answer in zip(sums, answers, strict=True):
            logits = answer(some)
            total[0] += (logits.argmax(-1) == some.labels).sum()
            total[1] += F.cross_entropy(logits, some.labels, reduction="sum")
    return [ClassificationScores(right / count, lost / count) for right, lost in sums.tolist()]


def average_scores(scores: Sequence[ClassificationScores]) -> dict[str, Any]:
    """Mean accuracy and loss, or why there are none."""
    accuracy, loss = (math.fsum(each) / len(scores) for each in zip(*scores, strict=True))
    if not math.isfinite(loss):
        return {"why": f"logits must be finite, got a loss of {loss}"}
    return {"accuracy": accuracy, "loss": loss}

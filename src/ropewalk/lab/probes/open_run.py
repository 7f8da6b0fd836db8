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
from ropewalk.lab.config import Config
from ropewalk.lab.data.base import ImageBatch, ImageData
from ropewalk.lab.data.sampling import sequential_order
from ropewalk.lab.inspect.code_structure import ensure_on_cpu
from ropewalk.lab.model_building import BackboneOrigin, build_model
from ropewalk.lab.patch_size import compute_patch_grid
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks.base import normalize_images
from ropewalk.lab.tasks.classify import ClassificationScores, open_image_data
from ropewalk.lab.tasks.detect import build_detector, check_view_size
from ropewalk.lab.vision_heads.detector import ViTDetector
from ropewalk.models import ViT

if TYPE_CHECKING:
    from ropewalk.lab.timm_model import TimmModel
    from ropewalk.lab.vision_heads.segmenter import ViTSegmenter


ProbeRows = Iterable[dict[str, Any]]
AnswerFunction = Callable[[ImageBatch], Tensor]
"""A way to give the logits (B classes) of a batch."""


class EmptyDataError(ValueError):
    """There are no images to look at."""


@dataclass(frozen=True)
class ImageRun:
    """A run that is probed, with its model and its data on one device."""

    run: RunFolder
    model: "ViT | TimmModel | ViTSegmenter"
    data: ImageData

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
        return compute_patch_grid(self.data.size, self.config.patch)

    def logits(self, images: Tensor, positions: Tensor | None = None, *, resolution: str = "extrapolate") -> Tensor:
        """Of images of bytes (B C *size), in the precision of training and normalised as there, whatever their size."""
        x = normalize_images(images.float() / 255, self.data)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            logits: Tensor = self.model(x, positions, resolution=resolution)
        return logits.float()

    @cached_property
    def unmodified_scores(self) -> dict[str, Any]:
        """How well it answers where nothing is changed: several probes begin with it."""
        return average_scores(score_answers(self.data, [lambda batch: self.logits(batch.images)], batch=self.config.batch))


def open_image_run(run: RunFolder, device: torch.device | str | None = None) -> ImageRun:
    """A run on a device, which is a GPU if there is one and none is named."""
    where = ("cuda" if torch.cuda.is_available() else "cpu") if device is None else device
    return ImageRun(run, load_image_model(run).to(where), open_image_data(run.config).to(where))


def load_image_model(run: RunFolder) -> "ViT | TimmModel | ViTSegmenter":
    """The model of a run with the weights of its checkpoint, their moving average where there is one; it needs no data."""
    if run.config.length is not None:
        raise ValueError(f"a run on images was wanted, and {run.path} is one on text")
    if run.config.task in ("detect", "masks"):
        raise ValueError(f"a run that finds classes of images was wanted, and the task of {run.path} is {run.config.task}")
    weights, facts = run.load_weights()
    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
        data = facts["data"]
        shape = {"size": tuple(data["size"]), "channels": data["channels"], "classes": data["classes"]}
        model = build_model(run.config, **shape, origin=BackboneOrigin.from_facts(data))
    model.load_state_dict(weights)
    return model.eval().requires_grad_(False)


def iterate_validation(data: ImageData, batch: int) -> Iterator[ImageBatch]:
    """All images of the validation set, in order."""
    if not data.counts["validation"]:
        raise EmptyDataError(f"the validation set of {data.name} must have images to look at, but it is empty")
    return data.batches("validation", sequential_order(data.counts["validation"], batch))


@torch.no_grad()
def score_answers(data: ImageData, answers: Sequence[AnswerFunction], *, batch: int) -> list[ClassificationScores]:
    """How well each way to answer does on the validation set, through which they go together."""
    count = data.counts["validation"]
    sums = torch.zeros(len(answers), 2, dtype=torch.float64, device=data.device)
    for some in iterate_validation(data, batch):
        for total, answer in zip(sums, answers, strict=True):
            logits = answer(some)
            total[0] += (logits.argmax(-1) == some.labels).sum()
            total[1] += F.cross_entropy(logits, some.labels, reduction="sum")
    return [ClassificationScores(right / count, lost / count) for right, lost in sums.tolist()]


def average_scores(scores: Sequence[ClassificationScores]) -> dict[str, Any]:
    """Accuracy and loss on the average; or why there are none."""
    accuracy, loss = (math.fsum(each) / len(scores) for each in zip(*scores, strict=True))
    if not math.isfinite(loss):
        return {"why": f"logits must be finite, got a loss of {loss}"}
    return {"accuracy": accuracy, "loss": loss}


def find_refusal(encoding: Encoding, positions: Tensor) -> str | None:
    """Why an encoding has nothing to say of these positions, in its own words. It looks at values on a CPU alone."""
    try:
        ensure_on_cpu(encoding)(positions.cpu())
    except ValueError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class DetectionRun:
    """A run that is probed, with its model on a device."""

    run: RunFolder
    model: ViTDetector
    classes: int
    device: torch.device

    @property
    def config(self) -> Config:
        """Its settings."""
        return self.run.config


def open_detection_run(run: RunFolder, device: torch.device | str) -> DetectionRun:
    """A run with the weights of its checkpoint, their moving average where there is one; it needs no data."""
    weights, facts = run.load_weights()
    classes, origin = facts["data"]["classes"], BackboneOrigin.from_facts(facts["data"])
    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
        model = build_detector(run.config, check_view_size(run.config), classes, origin)
    model.load_state_dict(weights)
    return DetectionRun(run, model.eval().requires_grad_(False).to(device), classes, torch.device(device))

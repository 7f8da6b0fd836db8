"""Accuracy and loss of a model on a part of the data.

Images with classes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.lab.augment.pipeline import AugmentPipeline
from ropewalk.lab.config import Config
from ropewalk.lab.data.base import CropRange, ImageBatch, ImageData
from ropewalk.lab.data.image_folder import FolderData
from ropewalk.lab.data.sampling import epoch_order, sequential_order
from ropewalk.lab.data.torchvision_sets import open_dataset
from ropewalk.lab.model_building import build_model
from ropewalk.lab.patch_size import compute_patch_grid
from ropewalk.lab.position_augment import perturb_positions
from ropewalk.lab.tasks.base import normalize_images


class ClassificationScores(NamedTuple):
    """The share of samples whose class is found, and the mean cross entropy."""

    accuracy: float
    loss: float


@torch.no_grad()
def evaluate_classifier(
    model: nn.Module, data: ImageData, split: str, accelerator: Accelerator, *, batch: int
) -> tuple[ClassificationScores, Tensor]:
    """The scores of a split, and whether each image is classified correctly, bool (count,), ordered by its index.

    Each process takes its share of every batch.
    """
    model.eval()
    count = data.counts[split]
    loss = torch.zeros((), dtype=torch.float64, device=accelerator.device)
    # Of each position in the split: the index of its image, and whether it is correct. A process leaves zeros for others'.
    answers = torch.zeros(2, count, dtype=torch.int64, device=accelerator.device)
    order = sequential_order(count, batch, accelerator.process_index, accelerator.num_processes)
    for positions, some in zip(order, data.batches(split, order, epoch=0), strict=True):
        images = pad_batch(some.images, len(order[0]))
        logits = model(normalize_images(images.float() / 255, data)).float()[: len(some.labels)]
        correct = logits.argmax(-1) == some.labels
        answers[:, positions.to(accelerator.device)] = torch.stack([some.index, correct.long()])
        loss += F.cross_entropy(logits, some.labels, reduction="sum")
    index, correct = accelerator.reduce(answers, "sum")
    loss = accelerator.reduce(loss, "sum")
    return ClassificationScores(correct.sum().item() / count, loss.item() / count), correct[index.argsort()].bool()


def pad_batch(images: Tensor, count: int) -> Tensor:
    """As many images, the last ones black: all batches have one shape, so that nothing is compiled for the last alone."""
    return F.pad(images, (*[0] * (2 * images.ndim - 1), count - len(images)))


AUGMENT_STRENGTHS = tuple(
    each.name for each in fields(AugmentPipeline) if each.name not in ("operations", "seed", "size", "mixup", "cutmix")
)
"""Options of augmentation that a run may set."""


class ClassificationTask:
    """Finds the class of an image."""

    def __init__(self, config: Config, device: torch.device | str) -> None:
        self.config, self.index_seed = config, config.seed
        self.data = open_image_data(config).to(device)
        if not self.data.counts["validation"]:
            raise ValueError(
                f"a run needs a validation set, got none of {self.data}; raise `validation`, {config.validation}"
            )
        size, classes = config.size or self.data.size, len(self.data.classes)
        self.model = build_model(config, size=size, channels=self.data.channels, classes=classes).to(device)
        self.steps = self.data.counts["train"] // config.batch
        self.augment = build_augment(config, self.data)

    def batches(self, epoch: int, rank: int, world: int, *, first: int = 0) -> Iterator[ImageBatch]:
        """One process's share of each batch of an epoch, from batch `first` on."""
        count, config = self.data.counts["train"], self.config
        order = epoch_order(count, config.batch, seed=config.seed, epoch=epoch, rank=rank, world=world)
        return self.data.batches("train", order[first:], epoch=epoch)

    def facts(self) -> dict[str, Any]:
        """What tells its data from others."""
        return self.data.facts()

    def loss(self, model: nn.Module, batch: ImageBatch, *, epoch: int, step: int, rank: int) -> Tensor:
        """Of images that are augmented, at positions that may be moved."""
        classes = len(self.data.classes)
        x, targets = self.augment(batch.images, batch.labels, batch.index, epoch=epoch, classes=classes)
        grid = compute_patch_grid(x.shape[2:], self.config.patch)
        share = slice(rank * len(x), (rank + 1) * len(x))
        places = perturb_positions(self.config, self.model.encoding, grid, step=step, share=share)
        places = None if places is None else places.to(x.device, non_blocking=True)
        return classification_loss(model(normalize_images(x, self.data), places), targets, self.config)

    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Accuracy and loss."""
        return self.score_images(model, split, accelerator)[0]

    def score_images(self, model: nn.Module, split: str, accelerator: Accelerator) -> tuple[Mapping[str, float], Tensor]:
        """Accuracy and loss, and whether each image is classified correctly, in the dataset's own order."""
        scores, correct = evaluate_classifier(model, self.data, split, accelerator, batch=self.config.batch)
        return scores._asdict(), correct


def build_augment(config: Config, data: ImageData) -> AugmentPipeline:
    """What is done to images on the device; those of folders have had their random crop when they were read."""
    operations = tuple(name for name in config.augment if not (name == "resized-crop" and isinstance(data, FolderData)))
    if unknown := sorted(set(config.strength) - set(AUGMENT_STRENGTHS)):
        raise ValueError(f"strength has no {', '.join(unknown)}; it takes {', '.join(AUGMENT_STRENGTHS)}")
    return AugmentPipeline(operations, seed=config.seed, mixup=config.mixup, cutmix=config.cutmix, **config.strength)


def open_image_data(config: Config) -> ImageData:
    """The data of a run."""
    if config.task == "segment":
        from ropewalk.lab.tasks.segment import open_segmentation_data

        return open_segmentation_data(config)
    names = ("root", "seed", "validation", "fraction", "size", "workers")
    given: dict[str, Any] = {name: getattr(config, name) for name in names}
    strength = {name: tuple(config.strength[name]) for name in ("scale", "ratio") if name in config.strength}
    return open_dataset(config.data, **given, crop=CropRange(**strength) if "resized-crop" in config.augment else None)


def classification_loss(logits: Tensor, targets: Tensor, config: Config) -> Tensor:
    """Of soft targets (B classes), smoothed."""
    logits, classes = logits.float(), targets.shape[-1]
    targets = (targets > 0).float() if config.loss == "binary" else targets  # of a mixture both are there, as in DeiT
    targets = targets * (1 - config.smoothing) + config.smoothing / classes
    if config.loss == "binary":
        return F.binary_cross_entropy_with_logits(logits, targets)
    return F.cross_entropy(logits, targets)

"""The task classify: the class of an image, a volume or a clip."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.lab.augment.pipeline import AugmentPipeline
from ropewalk.lab.config import Config, check_unused_settings
from ropewalk.lab.data.base import CropRange, ImageBatch, ImageData
from ropewalk.lab.data.dataset_registry import open_dataset
from ropewalk.lab.data.image_folder import FolderData
from ropewalk.lab.data.sampling import epoch_order, sequential_order
from ropewalk.lab.init_from import TrainableModel
from ropewalk.lab.model_building import build_model, check_axes, check_span
from ropewalk.lab.patch_grid import compute_patch_grid, format_patch, patch_divides_image, perturb_positions
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks.base import CHECKED_SAMPLES, Trial, load_trained_weights, normalize_images
from ropewalk.lab.tasks.trained_images import ImageRun
from ropewalk.validation import describe_unknown


@torch.no_grad()
def evaluate_classifier(
    model: nn.Module, data: ImageData, split: str, accelerator: Accelerator, *, batch: int
) -> tuple[dict[str, float], Tensor]:
    """The scores of a split by name, and whether each image is classified correctly, bool (count,), ordered by its index.

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
    return {"accuracy": correct.sum().item() / count, "loss": loss.item() / count}, correct[index.argsort()].bool()


def pad_batch(images: Tensor, count: int) -> Tensor:
    """Append black images up to `count`: all batches have one shape, so that the last one is not compiled separately."""
    return F.pad(images, (*[0] * (2 * images.ndim - 1), count - len(images)))


AUGMENT_STRENGTHS = tuple(
    each.name for each in fields(AugmentPipeline) if each.name not in ("operations", "seed", "size", "mixup", "cutmix")
)
"""Options of augmentation that `strength` may have."""


class ClassificationTask:
    """Predicts the class of an image."""

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
        """What identifies the data."""
        return self.data.facts()

    def loss(self, model: nn.Module, batch: ImageBatch, *, epoch: int, step: int, rank: int) -> Tensor:
        """The loss on augmented images, at positions that may be augmented too."""
        classes = len(self.data.classes)
        x, targets = self.augment(batch.images, batch.labels, batch.index, epoch=epoch, classes=classes)
        grid = compute_patch_grid(x.shape[2:], self.config.patch)
        share = slice(rank * len(x), (rank + 1) * len(x))
        positions = perturb_positions(self.config, self.model.encoding, grid, step=step, share=share)
        positions = None if positions is None else positions.to(x.device, non_blocking=True)
        return classification_loss(model(normalize_images(x, self.data), positions), targets, self.config)

    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Accuracy and loss."""
        return self.score_images(model, split, accelerator)[0]

    def score_images(self, model: nn.Module, split: str, accelerator: Accelerator) -> tuple[Mapping[str, float], Tensor]:
        """Accuracy and loss, and whether each image is classified correctly, in the dataset's own order."""
        return evaluate_classifier(model, self.data, split, accelerator, batch=self.config.batch)

    @classmethod
    def open_trial(cls, config: Config, processes: int) -> Trial:
        """Check that patches fill the images and batches the data; trials are shown blank images with augmentation."""
        check_unused_settings(config)
        data = open_image_data(config)
        size = config.size or data.size
        check_image_counts(config, data, size, processes, pairs=True)
        blank, index = torch.zeros(CHECKED_SAMPLES, data.channels, *size, dtype=torch.uint8), torch.arange(CHECKED_SAMPLES)
        classes = len(data.classes)
        images, _ = build_augment(config, data)(blank, torch.zeros_like(index), index, epoch=0, classes=classes)

        def check_forward(each: Config) -> None:
            check_axes(each, len(size))
            model = build_model(replace(each, depth=1), size=size, channels=data.channels, classes=classes)
            check_span(each, model.encoding)
            grid, share = compute_patch_grid(size, each.patch), slice(CHECKED_SAMPLES)
            model(images, perturb_positions(each, model.encoding, grid, step=0, share=share))

        return check_forward

    @classmethod
    def build_from_facts(cls, config: Config, facts: Mapping[str, Any]) -> TrainableModel:
        """Our ViT or one of timm's, for images of this size."""
        return build_model(config, size=tuple(facts["size"]), channels=facts["channels"], classes=facts["classes"])

    @classmethod
    def open_trained(cls, run: RunFolder, device: torch.device) -> ImageRun:
        """A finished run with its data."""
        return ImageRun(run, load_trained_weights(cls, run).to(device), open_image_data(run.config).to(device))


def check_image_counts(config: Config, data: ImageData, size: tuple[int, ...], processes: int, *, pairs: bool) -> None:
    """Refuse patches that do not fill the images, batches larger than the data, and data without a validation set."""
    if not patch_divides_image(size, config.patch):
        came = f"a patch of {format_patch(config.patch)} and images of {format_patch(size)}"
        raise ValueError(f"the patch must divide the sides of the images, got {came}")
    count = data.counts["train"]
    if count < config.batch:
        raise ValueError(f"a batch must be no larger than the data, got a batch of {config.batch} and {count} to train on")
    if not data.counts["validation"]:
        raise ValueError(
            f"there must be a validation set, got none of {data}; raise validation, which is {config.validation}"
        )
    epoch_order(count, config.batch, seed=config.seed, epoch=0, world=processes, pairs=pairs)


def build_augment(config: Config, data: ImageData) -> AugmentPipeline:
    """Augmentation on the device; images of folders have had their random crop when they were read."""
    operations = tuple(name for name in config.augment if not (name == "resized-crop" and isinstance(data, FolderData)))
    if unknown := sorted(set(config.strength) - set(AUGMENT_STRENGTHS)):
        raise ValueError(describe_unknown("option", unknown, AUGMENT_STRENGTHS, of="strength"))
    return AugmentPipeline(operations, seed=config.seed, mixup=config.mixup, cutmix=config.cutmix, **config.strength)


def open_image_data(config: Config) -> ImageData:
    """The images of a run with the task classify."""
    names = ("root", "seed", "validation", "fraction", "size", "workers")
    given: dict[str, Any] = {name: getattr(config, name) for name in names}
    strength = {name: tuple(config.strength[name]) for name in ("scale", "ratio") if name in config.strength}
    return open_dataset(config.data, **given, crop=CropRange(**strength) if "resized-crop" in config.augment else None)


def classification_loss(logits: Tensor, targets: Tensor, config: Config) -> Tensor:
    """The loss for soft targets (B classes), with label smoothing."""
    logits, classes = logits.float(), targets.shape[-1]
    targets = (
        (targets > 0).float() if config.loss == "binary" else targets
    )  # both classes of a mixture are targets, as in DeiT
    targets = targets * (1 - config.smoothing) + config.smoothing / classes
    if config.loss == "binary":
        return F.binary_cross_entropy_with_logits(logits, targets)
    return F.cross_entropy(logits, targets)

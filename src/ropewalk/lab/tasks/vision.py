"""Images with classes."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.lab.augment import Augment
from ropewalk.lab.building import model_of
from ropewalk.lab.config import Config
from ropewalk.lab.data import Batch, Crop, Data, epoch_order, load
from ropewalk.lab.data.folder import Folder
from ropewalk.lab.evaluate import evaluate, normalised
from ropewalk.lab.patching import grid_of
from ropewalk.lab.placing import moved

STRENGTHS = tuple(
    each.name for each in fields(Augment) if each.name not in ("operations", "seed", "size", "mixup", "cutmix")
)
"""Options of augmentation that a run may set."""


class Vision:
    """Finds the class of an image."""

    def __init__(self, config: Config, device: torch.device | str) -> None:
        self.config = config
        self.data = open_data(config).to(device)
        if not self.data.counts["validation"]:
            raise ValueError(
                f"a run needs a validation set, got none of {self.data}; raise `validation`, {config.validation}"
            )
        size, classes = config.size or self.data.size, len(self.data.classes)
        self.model = model_of(config, size=size, channels=self.data.channels, classes=classes).to(device)
        self.steps = self.data.counts["train"] // config.batch
        self.augment = augment_of(config, self.data)

    def batches(self, epoch: int, rank: int, world: int) -> Iterator[Batch]:
        """One process's share of each batch of an epoch."""
        count, config = self.data.counts["train"], self.config
        order = epoch_order(count, config.batch, seed=config.seed, epoch=epoch, rank=rank, world=world)
        return self.data.batches("train", order, epoch=epoch)

    def facts(self) -> dict[str, Any]:
        """What tells its data from others."""
        return self.data.facts()

    def loss(self, model: nn.Module, batch: Batch, *, epoch: int, step: int, rank: int) -> Tensor:
        """Of images that are augmented, at positions that may be moved."""
        classes = len(self.data.classes)
        x, targets = self.augment(batch.images, batch.labels, batch.index, epoch=epoch, classes=classes)
        grid = grid_of(x.shape[2:], self.config.patch)
        share = slice(rank * len(x), (rank + 1) * len(x))
        places = moved(self.config, self.model.encoding, grid, step=step, share=share)
        places = None if places is None else places.to(x.device, non_blocking=True)
        return loss_of(model(normalised(x, self.data), places), targets, self.config)

    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Accuracy and loss."""
        return evaluate(model, self.data, split, accelerator, batch=self.config.batch)._asdict()


def augment_of(config: Config, data: Data) -> Augment:
    """What is done to images on the device; those of folders have had their random crop when they were read."""
    operations = tuple(name for name in config.augment if not (name == "resized-crop" and isinstance(data, Folder)))
    if unknown := sorted(set(config.strength) - set(STRENGTHS)):
        raise ValueError(f"strength has no {', '.join(unknown)}; it takes {', '.join(STRENGTHS)}")
    return Augment(operations, seed=config.seed, mixup=config.mixup, cutmix=config.cutmix, **config.strength)


def open_data(config: Config) -> Data:
    """The data of a run."""
    if config.task == "segment":
        from ropewalk.lab.dense.opening import open_maps

        return open_maps(config)
    names = ("root", "seed", "validation", "fraction", "size", "workers")
    given: dict[str, Any] = {name: getattr(config, name) for name in names}
    strength = {name: tuple(config.strength[name]) for name in ("scale", "ratio") if name in config.strength}
    return load(config.data, **given, crop=Crop(**strength) if "resized-crop" in config.augment else None)


def loss_of(logits: Tensor, targets: Tensor, config: Config) -> Tensor:
    """Of soft targets (B classes), smoothed."""
    logits, classes = logits.float(), targets.shape[-1]
    targets = (targets > 0).float() if config.loss == "binary" else targets  # of a mixture both are there, as in DeiT
    targets = targets * (1 - config.smoothing) + config.smoothing / classes
    if config.loss == "binary":
        return F.binary_cross_entropy_with_logits(logits, targets)
    return F.cross_entropy(logits, targets)

"""Images in which every pixel has a class."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.lab.config import Config
from ropewalk.lab.data import Batch, epoch_order
from ropewalk.lab.data.maps import IGNORED
from ropewalk.lab.data.order import spread
from ropewalk.lab.dense.base import alone
from ropewalk.lab.dense.opening import colours_of, open_maps
from ropewalk.lab.dense.origin import origin_of
from ropewalk.lab.dense.overlap import confusion, iou, mean_iou, pixel_accuracy
from ropewalk.lab.dense.segmenter import segmenter_of
from ropewalk.lab.diagnosis import uncompiled
from ropewalk.lab.evaluate import normalised
from ropewalk.lab.patching import grid_of
from ropewalk.lab.placing import moved

SHOWN = 4
"""Images in a picture."""


class Segmenting:
    """Finds the class of every pixel. Training views have one size; other images go alone, each at its own."""

    def __init__(self, config: Config, device: torch.device | str) -> None:
        self.config = config
        self.data = open_maps(config).to(device)
        for split in ("validation", "test"):
            if not self.data.counts[split]:
                raise ValueError(f"a run needs a {split} set, got none of {self.data}; raise `validation` if it is that one")
        self.classes, self.origin = len(self.data.classes), origin_of(config)
        self.model = segmenter_of(config, self.data.size, self.classes, self.origin).to(device)
        self.steps = self.data.counts["train"] // config.batch
        self.augment = colours_of(config)

    def batches(self, epoch: int, rank: int, world: int) -> Iterator[Batch]:
        """One process's share of each batch of an epoch."""
        count, config = self.data.counts["train"], self.config
        order = epoch_order(count, config.batch, seed=config.seed, epoch=epoch, rank=rank, world=world, pairs=False)
        return self.data.batches("train", order, epoch=epoch)

    def facts(self) -> dict[str, Any]:
        """What tells its data from others, and what it goes on from."""
        return {**self.data.facts(), **(self.origin.facts() if self.origin else {})}

    def loss(self, model: nn.Module, batch: Batch, *, epoch: int, step: int, rank: int) -> Tensor:
        """Of views in colours that may be changed, at positions that may be moved."""
        none = torch.zeros_like(batch.index)
        x, _ = self.augment(batch.images, none, batch.index, epoch=epoch, classes=1)
        grid = grid_of(x.shape[2:], self.config.patch)
        share = slice(rank * len(x), (rank + 1) * len(x))
        way = self.model.resolution
        places = moved(self.config, self.model.encoding, grid, step=step, share=share, resolution=way)
        places = None if places is None else places.to(x.device, non_blocking=True)
        return loss_of(model(self.normalised(x), places), batch.labels, self.config.smoothing)

    def normalised(self, images: Tensor) -> Tensor:
        """Images in [0, 1], normalised as those that are trained on, or that weights were trained on."""
        return normalised(images, self.origin or self.data)

    @torch.no_grad()
    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Mean IoU, the share of pixels whose class is found, and the loss of a pixel; of the test also the IoU by class.

        All are judged at the pixels of the files. Nothing is compiled: each size would be compiled for itself.
        """
        model = alone(model).eval()
        rank, world = accelerator.process_index, accelerator.num_processes
        order = list(torch.arange(self.data.counts[split])[rank::world, None])
        counts = torch.zeros(self.classes, self.classes, dtype=torch.int64, device=accelerator.device)
        lost = torch.zeros((), dtype=torch.float64, device=accelerator.device)
        with uncompiled(self.model):
            for some in self.data.batches(split, order):
                logits = self.logits(model, some)
                counts += confusion(some.labels, logits.argmax(1), self.classes)
                lost += F.cross_entropy(logits, some.labels, ignore_index=IGNORED, reduction="sum")
        counts, lost = accelerator.reduce(counts, "sum"), accelerator.reduce(lost, "sum")
        return self._told(counts.cpu(), lost.item(), split)

    def logits(self, model: nn.Module, some: Batch) -> Tensor:
        """Of images, at the pixels of their maps."""
        found: Tensor = model(self.normalised(some.images.float() / 255), size=tuple(some.labels.shape[1:]))
        return found

    @torch.no_grad()
    def picture(self, model: nn.Module) -> bytes:
        """A few test images, at even distances among them, beside their maps and what is found."""
        from ropewalk.lab.dense.painting import Example, painted

        model, examples = alone(model).eval(), []
        places = list(spread(self.data.counts["test"], SHOWN)[:, None])
        with uncompiled(self.model):
            for some in self.data.batches("test", places):
                truth, answer = some.labels[0], self.logits(model, some).argmax(1)[0]
                image = F.interpolate(some.images.float(), tuple(truth.shape), mode="bilinear", antialias=True)[0].byte()
                examples.append(Example(*(each.cpu().numpy() for each in (image.movedim(0, -1), truth, answer))))
        return painted(examples, self.data.classes)

    def _told(self, counts: Tensor, lost: float, split: str) -> dict[str, float]:
        seen = int(counts.sum())
        if not seen:
            raise ValueError(f"maps of {split} must have pixels that are not {IGNORED}, got none in {self.data}")
        found = {"iou": mean_iou(counts), "pixel_accuracy": pixel_accuracy(counts), "loss": lost / seen}
        if split != "test":
            return found
        each = zip(self.data.classes, iou(counts).tolist(), strict=True)
        return found | {f"iou_{name}": value for name, value in each if value == value}


def loss_of(logits: Tensor, maps: Tensor, smoothing: float) -> Tensor:
    """The mean over images of the mean cross entropy of their pixels that are known.

    It takes image by image, so that shares of several processes make that of one, and an image of which nothing is known
    counts as zero.
    """
    each = F.cross_entropy(logits, maps, ignore_index=IGNORED, label_smoothing=smoothing, reduction="none")
    known = (maps != IGNORED).flatten(1).sum(1)
    return (each.flatten(1).sum(1) / known.clamp(min=1)).mean()

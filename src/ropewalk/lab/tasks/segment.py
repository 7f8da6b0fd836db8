"""The data of a run on maps, and which settings such runs have.

How far maps of classes agree: counts of pixels, from which all scores follow.

    counts = confusion(truth, answer, classes)   # (classes classes), truths in rows, answers in columns
    mean_iou(counts), pixel_accuracy(counts)

Counts are whole numbers: those of several images, or processes, are added and give what all of them together give.

Images in which every pixel has a class.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.lab.augment.pipeline import AugmentPipeline, check_positive_range
from ropewalk.lab.config import Config
from ropewalk.lab.data.base import ImageBatch
from ropewalk.lab.data.image_arrays import resolve_sides
from ropewalk.lab.data.image_files import IGNORED_LABEL
from ropewalk.lab.data.sampling import epoch_order, spread_evenly
from ropewalk.lab.data.segmentation import SegmentationData
from ropewalk.lab.data.views import ViewOptions
from ropewalk.lab.init_from import load_origin
from ropewalk.lab.model_building import build_segmenter
from ropewalk.lab.patch_size import compute_patch_grid, get_square_side
from ropewalk.lab.position_augment import perturb_positions
from ropewalk.lab.tasks.base import check_dense_config, normalize_images
from ropewalk.lab.training_diagnosis import disable_compilation
from ropewalk.lab.vision_heads.backbone import unwrap_model

DEFAULT_VIEW_SIZE = 320
"""Of views, if none is asked for."""
SEGMENT_OPERATIONS = ("flip", "crop", "jitter")
"""Of augmentation: the first two are done where files are read, the last on the device."""
SEGMENT_STRENGTHS = ("scale", "brightness", "contrast", "saturation")
MAX_VIEW_SCALE = 16
"""The largest factor by which a view may be scaled."""


def open_segmentation_data(config: Config) -> SegmentationData:
    """The data of a run, if its settings are of maps."""
    check_segment_config(config)
    rows, columns = resolve_sides(config.size or (DEFAULT_VIEW_SIZE, DEFAULT_VIEW_SIZE), 2)
    view = ViewOptions("crop" in config.augment, "flip" in config.augment, read_view_scale(config))
    names = ("seed", "validation", "fraction", "workers")
    given: dict[str, Any] = {"patch": get_square_side(config.patch)} | {name: getattr(config, name) for name in names}
    return SegmentationData(Path(config.data).expanduser(), size=(rows, columns), view=view, **given)


def read_view_scale(config: Config) -> tuple[float, float]:
    """The factors by which views are scaled, as they were asked for."""
    given: Any = config.strength.get("scale", ViewOptions().scale)
    return tuple(given) if isinstance(given, list) else given  # JSON knows lists alone


def build_color_augment(config: Config) -> AugmentPipeline:
    """What is done to views on the device."""
    options = {name: value for name, value in config.strength.items() if name != "scale"}
    return AugmentPipeline(tuple(name for name in config.augment if name == "jitter"), seed=config.seed, **options)


def check_segment_config(config: Config) -> None:
    """Refuse settings that maps have no use for."""
    check_dense_config(config, SEGMENT_OPERATIONS)
    if strange := sorted(set(config.strength) - set(SEGMENT_STRENGTHS)):
        raise ValueError(f"strength takes {', '.join(SEGMENT_STRENGTHS)} for {config.task}, got {', '.join(strange)}")
    build_color_augment(config)
    check_positive_range("scale", read_view_scale(config), MAX_VIEW_SCALE)


def count_confusion(truth: Tensor, answer: Tensor, classes: int) -> Tensor:
    """How many pixels of each class were taken for each, int64; those of which nothing is known are left out."""
    known = truth != IGNORED_LABEL
    pairs = truth[known] * classes + answer[known]
    return torch.bincount(pairs, minlength=classes * classes).view(classes, classes)


def class_iou(counts: Tensor) -> Tensor:
    """Of each class, the pixels that are its own and were found over those that are its own or were taken for it, float64.

    It is NaN for a class that does not occur.
    """
    right, own, taken = counts.diagonal(), counts.sum(1), counts.sum(0)
    return torch.where(own > 0, right.double() / (own + taken - right), torch.nan)


def mean_iou(counts: Tensor) -> float:
    """The mean over the classes that occur."""
    return class_iou(counts).nanmean().item()


def pixel_accuracy(counts: Tensor) -> float:
    """The share of pixels whose class was found."""
    return (counts.diagonal().sum().double() / counts.sum()).item()


SEGMENT_PICTURES = 4
"""Images in a picture."""


class SegmentationTask:
    """Finds the class of every pixel. Training views have one size; other images go alone, each at its own."""

    def __init__(self, config: Config, device: torch.device | str) -> None:
        self.config = config
        self.data = open_segmentation_data(config).to(device)
        for split in ("validation", "test"):
            if not self.data.counts[split]:
                raise ValueError(f"a run needs a {split} set, got none of {self.data}; raise `validation` if it is that one")
        self.classes, self.origin = len(self.data.classes), load_origin(config)
        self.model = build_segmenter(config, self.data.size, self.classes, self.origin).to(device)
        self.steps = self.data.counts["train"] // config.batch
        self.augment = build_color_augment(config)

    def batches(self, epoch: int, rank: int, world: int, *, first: int = 0) -> Iterator[ImageBatch]:
        """One process's share of each batch of an epoch, from batch `first` on."""
        count, config = self.data.counts["train"], self.config
        order = epoch_order(count, config.batch, seed=config.seed, epoch=epoch, rank=rank, world=world, pairs=False)
        return self.data.batches("train", order[first:], epoch=epoch)

    def facts(self) -> dict[str, Any]:
        """What tells its data from others, and what it goes on from."""
        return {**self.data.facts(), **(self.origin.facts() if self.origin else {})}

    def loss(self, model: nn.Module, batch: ImageBatch, *, epoch: int, step: int, rank: int) -> Tensor:
        """Of views in colours that may be changed, at positions that may be moved."""
        none = torch.zeros_like(batch.index)
        x, _ = self.augment(batch.images, none, batch.index, epoch=epoch, classes=1)
        grid = compute_patch_grid(x.shape[2:], self.config.patch)
        share = slice(rank * len(x), (rank + 1) * len(x))
        way = self.model.resolution
        places = perturb_positions(self.config, self.model.encoding, grid, step=step, share=share, resolution=way)
        places = None if places is None else places.to(x.device, non_blocking=True)
        return segmentation_loss(model(self.normalize_images(x), places), batch.labels, self.config.smoothing)

    def normalize_images(self, images: Tensor) -> Tensor:
        """Images in [0, 1], normalised as those that are trained on, or that weights were trained on."""
        return normalize_images(images, self.origin or self.data)

    @torch.no_grad()
    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Mean IoU, the share of pixels whose class is found, and the loss of a pixel; of the test also the IoU by class.

        All are judged at the pixels of the files. Nothing is compiled: each size would be compiled for itself.
        """
        model = unwrap_model(model).eval()
        rank, world = accelerator.process_index, accelerator.num_processes
        order = list(torch.arange(self.data.counts[split])[rank::world, None])
        counts = torch.zeros(self.classes, self.classes, dtype=torch.int64, device=accelerator.device)
        lost = torch.zeros((), dtype=torch.float64, device=accelerator.device)
        with disable_compilation(self.model):
            for some in self.data.batches(split, order):
                logits = self.logits(model, some)
                counts += count_confusion(some.labels, logits.argmax(1), self.classes)
                lost += F.cross_entropy(logits, some.labels, ignore_index=IGNORED_LABEL, reduction="sum")
        counts, lost = accelerator.reduce(counts, "sum"), accelerator.reduce(lost, "sum")
        return self._told(counts.cpu(), lost.item(), split)

    def logits(self, model: nn.Module, some: ImageBatch) -> Tensor:
        """Of images, at the pixels of their maps."""
        found: Tensor = model(self.normalize_images(some.images.float() / 255), size=tuple(some.labels.shape[1:]))
        return found

    @torch.no_grad()
    def picture(self, model: nn.Module) -> bytes:
        """A few test images, at even distances among them, beside their maps and what is found."""
        from ropewalk.lab.vision_heads.draw_predictions import SegmentationExample, draw_segmentations

        model, examples = unwrap_model(model).eval(), []
        places = list(spread_evenly(self.data.counts["test"], SEGMENT_PICTURES)[:, None])
        with disable_compilation(self.model):
            for some in self.data.batches("test", places):
                truth, answer = some.labels[0], self.logits(model, some).argmax(1)[0]
                image = F.interpolate(some.images.float(), tuple(truth.shape), mode="bilinear", antialias=True)[0].byte()
                examples.append(SegmentationExample(*(each.cpu().numpy() for each in (image.movedim(0, -1), truth, answer))))
        return draw_segmentations(examples, self.data.classes)

    def _told(self, counts: Tensor, lost: float, split: str) -> dict[str, float]:
        seen = int(counts.sum())
        if not seen:
            raise ValueError(f"maps of {split} must have pixels that are not {IGNORED_LABEL}, got none in {self.data}")
        found = {"iou": mean_iou(counts), "pixel_accuracy": pixel_accuracy(counts), "loss": lost / seen}
        if split != "test":
            return found
        each = zip(self.data.classes, class_iou(counts).tolist(), strict=True)
        return found | {f"iou_{name}": value for name, value in each if value == value}


def segmentation_loss(logits: Tensor, maps: Tensor, smoothing: float) -> Tensor:
    """The mean over images of the mean cross entropy of their pixels that are known.

    It takes image by image, so that shares of several processes make that of one, and an image of which nothing is known
    counts as zero.
    """
    each = F.cross_entropy(logits, maps, ignore_index=IGNORED_LABEL, label_smoothing=smoothing, reduction="none")
    known = (maps != IGNORED_LABEL).flatten(1).sum(1)
    return (each.flatten(1).sum(1) / known.clamp(min=1)).mean()

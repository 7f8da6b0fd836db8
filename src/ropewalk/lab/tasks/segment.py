"""The task segment: semantic segmentation, a class for each pixel of an image.

    counts = count_confusion(truth, answer, classes)   # (classes classes), truths in rows, predictions in columns
    mean_iou(counts), pixel_accuracy(counts)

All scores are computed from integer counts of pixels, which are summed over images and processes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.lab.augment.pipeline import AugmentPipeline, check_positive_range
from ropewalk.lab.config import Config
from ropewalk.lab.data.base import ImageBatch, resolve_sides
from ropewalk.lab.data.image_files import IGNORED_LABEL
from ropewalk.lab.data.sampling import epoch_order, spread_evenly
from ropewalk.lab.data.segmentation import SegmentationData
from ropewalk.lab.data.views import ViewOptions
from ropewalk.lab.hash_random import derive_seed
from ropewalk.lab.init_from import TrainableModel, load_origin
from ropewalk.lab.model_building import BackboneOrigin, build_backbone, check_axes, check_span
from ropewalk.lab.patch_grid import compute_patch_grid, get_square_side, perturb_positions
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks.base import CHECKED_SAMPLES, Trial, check_dense_config, load_trained_weights, normalize_images
from ropewalk.lab.tasks.classify import check_image_counts
from ropewalk.lab.tasks.trained_images import ImageRun
from ropewalk.lab.training_diagnosis import disable_compilation
from ropewalk.lab.vision_heads.backbone import unwrap_model
from ropewalk.lab.vision_heads.draw_predictions import SegmentationExample, draw_segmentations
from ropewalk.lab.vision_heads.segmenter import ViTSegmenter
from ropewalk.validation import describe_unknown

SEGMENTER_HEAD_STREAM = 1011
"""Random stream of the head's weights."""

DEFAULT_VIEW_SIZE = 320
"""Side of the training views, if `size` is none."""
SEGMENT_OPERATIONS = ("flip", "crop", "jitter")
"""Augmentation: flip and crop are applied when a file is read, jitter on the device."""
SEGMENT_STRENGTHS = ("scale", "brightness", "contrast", "saturation")
MAX_VIEW_SCALE = 16
"""The largest factor by which a view may be scaled."""


def open_segmentation_data(config: Config) -> SegmentationData:
    """Check the settings of a run and open its data."""
    check_segment_config(config)
    rows, columns = resolve_sides(config.size or (DEFAULT_VIEW_SIZE, DEFAULT_VIEW_SIZE), 2)
    view = ViewOptions("crop" in config.augment, "flip" in config.augment, read_view_scale(config))
    names = ("seed", "validation", "fraction", "workers")
    given: dict[str, Any] = {"patch": get_square_side(config.patch)} | {name: getattr(config, name) for name in names}
    return SegmentationData(Path(config.data).expanduser(), size=(rows, columns), view=view, **given)


def read_view_scale(config: Config) -> tuple[float, float]:
    """The range of factors by which views are scaled."""
    given: Any = config.strength.get("scale", ViewOptions().scale)
    return tuple(given) if isinstance(given, list) else given  # JSON knows lists alone


def build_color_augment(config: Config) -> AugmentPipeline:
    """The part of the augmentation that runs on the device."""
    options = {name: value for name, value in config.strength.items() if name != "scale"}
    return AugmentPipeline(tuple(name for name in config.augment if name == "jitter"), seed=config.seed, **options)


def check_segment_config(config: Config) -> None:
    """Refuse settings that have no effect, and options of augmentation that are unknown or out of range."""
    check_dense_config(config, SEGMENT_OPERATIONS)
    if strange := sorted(set(config.strength) - set(SEGMENT_STRENGTHS)):
        raise ValueError(describe_unknown("option", strange, SEGMENT_STRENGTHS, of="strength in the task segment"))
    build_color_augment(config)
    check_positive_range("scale", read_view_scale(config), MAX_VIEW_SCALE)


def build_segmenter(
    config: Config, size: tuple[int, ...], classes: int, origin: BackboneOrigin | None = None
) -> ViTSegmenter:
    """The model of a run. The weights of its head are drawn from the seed: the same ones for every encoding."""
    backbone = build_backbone(config, size, classes, origin)
    torch.manual_seed(derive_seed(config.seed, SEGMENTER_HEAD_STREAM))
    return ViTSegmenter(backbone, classes, config.head or "linear")


def count_confusion(truth: Tensor, answer: Tensor, classes: int) -> Tensor:
    """Count pixels by their class and their predicted class, int64, without ignored pixels."""
    known = truth != IGNORED_LABEL
    pairs = truth[known] * classes + answer[known]
    return torch.bincount(pairs, minlength=classes * classes).view(classes, classes)


def class_iou(counts: Tensor) -> Tensor:
    """Intersection over union of each class, float64; NaN for a class that does not occur."""
    right, own, taken = counts.diagonal(), counts.sum(1), counts.sum(0)
    return torch.where(own > 0, right.double() / (own + taken - right), torch.nan)


def mean_iou(counts: Tensor) -> float:
    """The mean over the classes that occur."""
    return class_iou(counts).nanmean().item()


def pixel_accuracy(counts: Tensor) -> float:
    """The share of pixels whose class is predicted correctly."""
    return (counts.diagonal().sum().double() / counts.sum()).item()


SEGMENT_PICTURES = 4
"""Number of images in predictions.png."""


class SegmentationTask:
    """Predicts the class of every pixel. Training views have one size; images are evaluated one by one at their own."""

    def __init__(self, config: Config, device: torch.device | str) -> None:
        self.config = config
        self.data = open_segmentation_data(config).to(device)
        for split in ("validation", "test"):
            if not self.data.counts[split]:
                hint = "; set `validation` above 0 to hold some out" if split == "validation" else ""
                raise ValueError(f"a run needs a {split} set, got none in {self.data}{hint}")
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
        """What identifies the data, and what the ViT was initialized from."""
        return {**self.data.facts(), **(self.origin.facts() if self.origin else {})}

    def loss(self, model: nn.Module, batch: ImageBatch, *, epoch: int, step: int, rank: int) -> Tensor:
        """The loss on views with color jitter, with augmented positions if the settings have them."""
        none = torch.zeros_like(batch.index)
        x, _ = self.augment(batch.images, none, batch.index, epoch=epoch, classes=1)
        grid = compute_patch_grid(x.shape[2:], self.config.patch)
        share = slice(rank * len(x), (rank + 1) * len(x))
        resolution = self.model.resolution
        positions = perturb_positions(self.config, self.model.encoding, grid, step=step, share=share, resolution=resolution)
        positions = None if positions is None else positions.to(x.device, non_blocking=True)
        return segmentation_loss(model(self.normalize_images(x), positions), batch.labels, self.config.smoothing)

    def normalize_images(self, images: Tensor) -> Tensor:
        """Normalize images in [0, 1] as in training, or as in the training of the weights the model is initialized from."""
        return normalize_images(images, self.origin or self.data)

    @torch.no_grad()
    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Mean IoU, pixel accuracy and the mean loss of a pixel; on the test set also the IoU of each class.

        Images are evaluated at the size of their files. Nothing is compiled: each size would be compiled separately.
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
        return self._summarize_counts(counts.cpu(), lost.item(), split)

    @classmethod
    def open_trial(cls, config: Config, processes: int) -> Trial:
        """Check the files; the returned check runs a model on blank images of the training size and of two others."""
        data = open_segmentation_data(config)
        data.look()
        if not data.counts["test"]:
            raise ValueError(f"there must be a test set, got none of {data}")
        size, classes = data.size, len(data.classes)
        check_image_counts(config, data, size, processes, pairs=False)
        images = torch.zeros(CHECKED_SAMPLES, data.channels, *size)

        def check_forward(each: Config) -> None:
            check_axes(each, len(size))
            model = build_segmenter(replace(each, depth=1), size, classes, load_origin(each))
            check_span(each, model.encoding)
            grid, share = compute_patch_grid(size, each.patch), slice(CHECKED_SAMPLES)
            resolution = model.resolution
            model(images, perturb_positions(each, model.encoding, grid, step=0, share=share, resolution=resolution))
            for sides in ((2 * size[0], size[1]), (size[0], size[1] + get_square_side(each.patch))):
                model.eval()(images.new_zeros(1, data.channels, *sides))

        return check_forward

    @classmethod
    def build_from_facts(cls, config: Config, facts: Mapping[str, Any]) -> TrainableModel:
        """The model of a run, from the recorded facts of its data."""
        return build_segmenter(config, tuple(facts["size"]), facts["classes"], BackboneOrigin.from_facts(facts))

    @classmethod
    def open_trained(cls, run: RunFolder, device: torch.device) -> ImageRun:
        """A finished run with its data."""
        return ImageRun(run, load_trained_weights(cls, run).to(device), open_segmentation_data(run.config).to(device))

    def logits(self, model: nn.Module, some: ImageBatch) -> Tensor:
        """Logits of images at the resolution of their segmentation masks."""
        found: Tensor = model(self.normalize_images(some.images.float() / 255), size=tuple(some.labels.shape[1:]))
        return found

    @torch.no_grad()
    def picture(self, model: nn.Module) -> bytes:
        """A few evenly spaced test images beside their annotations and the predictions."""
        model, examples = unwrap_model(model).eval(), []
        places = list(spread_evenly(self.data.counts["test"], SEGMENT_PICTURES)[:, None])
        with disable_compilation(self.model):
            for some in self.data.batches("test", places):
                truth, answer = some.labels[0], self.logits(model, some).argmax(1)[0]
                image = F.interpolate(some.images.float(), tuple(truth.shape), mode="bilinear", antialias=True)[0].byte()
                examples.append(SegmentationExample(*(each.cpu().numpy() for each in (image.movedim(0, -1), truth, answer))))
        return draw_segmentations(examples, self.data.classes)

    def _summarize_counts(self, counts: Tensor, lost: float, split: str) -> dict[str, float]:
        seen = int(counts.sum())
        if not seen:
            raise ValueError(
                f"annotations of {split} must have pixels that are not {IGNORED_LABEL}, got none in {self.data}"
            )
        found = {"iou": mean_iou(counts), "pixel_accuracy": pixel_accuracy(counts), "loss": lost / seen}
        if split != "test":
            return found
        each = zip(self.data.classes, class_iou(counts).tolist(), strict=True)
        return found | {f"iou_{name}": value for name, value in each if value == value}


def segmentation_loss(logits: Tensor, maps: Tensor, smoothing: float) -> Tensor:
    """The mean over images of the mean cross entropy of their pixels that are not ignored.

    Averaging by image makes the result independent of how a batch is shared among processes. An image whose pixels are all
    ignored counts as zero.
    """
    each = F.cross_entropy(logits, maps, ignore_index=IGNORED_LABEL, label_smoothing=smoothing, reduction="none")
    known = (maps != IGNORED_LABEL).flatten(1).sum(1)
    return (each.flatten(1).sum(1) / known.clamp(min=1)).mean()

"""The tasks detect and masks: boxes and classes of objects, and in the task masks their segmentation masks.

Average precision is computed by pycocotools. Boxes and masks are predicted at the evaluation size of an image, and rescaled
to the size of its file.
"""

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torchvision.models.detection.roi_heads import paste_masks_in_image  # type: ignore[import-untyped]

from ropewalk.encoding import Encoding
from ropewalk.lab.config import Config
from ropewalk.lab.data.coco import CocoData, encode_masks, import_pycocotools
from ropewalk.lab.data.detection import DetectionData, ImageScene
from ropewalk.lab.data.loader import SampleReader
from ropewalk.lab.data.pennfudan import PennFudanData, is_pennfudan
from ropewalk.lab.data.sampling import epoch_order, spread_evenly
from ropewalk.lab.data.views import EvaluationScene, SceneViews, ViewBatch, ViewOptions, WholeScenes
from ropewalk.lab.hash_random import derive_seed
from ropewalk.lab.init_from import TrainableModel, load_origin
from ropewalk.lab.model_building import BackboneOrigin, build_backbone, check_axes, check_span
from ropewalk.lab.patch_grid import get_square_side
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks.base import (
    CHECKED_SAMPLES,
    TrainedRun,
    Trial,
    check_dense_config,
    load_trained_weights,
    normalize_images,
)
from ropewalk.lab.vision_heads.backbone import unwrap_model
from ropewalk.lab.vision_heads.detector import Detections, ViTDetector
from ropewalk.lab.vision_heads.draw_predictions import draw_detections


def open_detection_data(path: str, *, validation: float, fraction: float, masks: bool) -> DetectionData:
    """The images of a folder in the layout of Penn-Fudan or COCO.

    `validation` is the share of COCO's training images that is held out for validation, `fraction` the share of the rest
    that is trained on.
    """
    folder = Path(path).expanduser()
    if is_pennfudan(folder):
        return PennFudanData(folder, fraction=fraction, masks=masks)
    if (folder / "annotations").is_dir():
        return CocoData(folder, validation=validation, fraction=fraction, masks=masks)
    wanted = (
        "PNGImages/ and PedMasks/ (Penn-Fudan), or annotations/ with instances_train*.json and instances_val*.json (COCO)"
    )
    raise ValueError(f"data with boxes must be a folder with {wanted}, got {path!r}")


PRECISION_NAMES = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
"""Mean over IoU thresholds from 0.5 to 0.95, at 0.5, at 0.75, and of objects below 32², up to 96², and above 96² pixels."""

ResultEntry = dict[str, Any]


def truth_entry(scene: ImageScene, number: int) -> ResultEntry:
    """The objects of an image as COCO annotations; `number` is the id of the image."""
    outlines = _encode_optional_masks(scene.masks, len(scene.boxes))
    things = zip(scene.boxes, scene.labels, scene.crowd, scene.areas, outlines, strict=True)
    entries = [
        _box_entry(box, label, number) | {"iscrowd": int(crowd), "area": float(area)} | outline
        for box, label, crowd, area, outline in things
    ]
    rows, columns = scene.sides
    return {"image": {"id": number, "height": rows, "width": columns}, "things": entries}


def detection_entries(found: Mapping[str, Tensor], number: int) -> list[ResultEntry]:
    """The predictions for an image, in pixels of its file, as COCO results."""
    outlines = _encode_optional_masks(found.get("masks"), len(found["boxes"]))
    things = zip(found["boxes"].cpu(), found["labels"].cpu(), found["scores"].tolist(), outlines, strict=True)
    return [_box_entry(box, label, number) | {"score": score} | outline for box, label, score, outline in things]


def average_precisions(
    truths: Sequence[ResultEntry], answers: Sequence[ResultEntry], classes: int, kind: str
) -> dict[str, float]:
    """Average precisions of kind "box" or "mask": box_ap, box_ap50, …; object sizes that do not occur are left out."""
    images = sorted((each["image"] for each in truths), key=lambda image: image["id"])
    right = _number_entries(thing for each in truths for thing in each["things"])
    given = _number_entries(_add_area(each, kind) for each in answers)
    with contextlib.redirect_stdout(io.StringIO()):
        both = (_build_coco(images, entries, classes) for entries in (right, given))
        judge = import_pycocotools("cocoeval").COCOeval(*both, "bbox" if kind == "box" else "segm")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    found = dict(zip(PRECISION_NAMES, judge.stats[:6].tolist(), strict=True))
    return {f"{kind}_{name}": value for name, value in found.items() if value >= 0}


def _build_coco(images: list[ResultEntry], entries: list[ResultEntry], classes: int) -> Any:
    coco = import_pycocotools("coco").COCO()
    kinds = [{"id": number, "name": str(number)} for number in range(1, classes + 1)]
    coco.dataset = {"images": images, "annotations": entries, "categories": kinds}
    coco.createIndex()
    return coco


def _number_entries(entries: Any) -> list[ResultEntry]:
    """Sort by image, and assign ids from 1: pycocotools treats the id 0 as no match."""
    return [each | {"id": i} for i, each in enumerate(sorted(entries, key=lambda each: each["image_id"]), start=1)]


def _add_area(entry: ResultEntry, kind: str) -> ResultEntry:
    """Add the area that decides whether an object counts as small or large."""
    area = (
        entry["bbox"][2] * entry["bbox"][3]
        if kind == "box"
        else float(import_pycocotools("mask").area(entry["segmentation"]))
    )
    return entry | {"area": area, "iscrowd": 0}


def _box_entry(box: Tensor, label: Tensor, number: int) -> ResultEntry:
    x, y, right, bottom = map(float, box)
    return {"image_id": number, "category_id": int(label), "bbox": [x, y, right - x, bottom - y]}


def _encode_optional_masks(masks: Tensor | None, count: int) -> list[ResultEntry]:
    """Segmentation masks as run-length encodings, if there are masks."""
    return [{}] * count if masks is None else [{"segmentation": outline} for outline in encode_masks(masks)]


_ImageDetections = dict[str, Tensor]


def rescale_detections(found: _ImageDetections, seen: Sequence[int], sides: Sequence[int]) -> _ImageDetections:
    """Rescale predictions from the evaluation size of an image to that of its file; masks become bool (n, rows, columns)."""
    factor = torch.tensor([sides[1] / seen[1], sides[0] / seen[0]] * 2, device=found["boxes"].device)
    found = found | {"boxes": found["boxes"] * factor}
    if "masks" in found:
        found["masks"] = paste_masks_in_image(found["masks"], found["boxes"], tuple(sides))[:, 0] > 0.5
    return found


DETECT_OPERATIONS, MAX_VIEW_ZOOM = ("flip", "crop"), 1.5
"""Random operations on training views, and the largest factor by which a crop is smaller than the largest one."""
DETECT_PICTURES = 4
"""Number of images in predictions.png."""


class DetectionTask:
    """Predicts boxes, classes and segmentation masks."""

    def __init__(self, config: Config, device: torch.device | str) -> None:
        self.config, self.device = config, torch.device(device)
        self.scenes, self.size = open_checked_scenes(config), check_view_size(config)
        self.origin = load_origin(config)
        classes = len(self.scenes.classes)
        self.model = build_detector(config, self.size, classes, self.origin).to(device)
        self.steps = self.scenes.counts["train"] // config.batch
        options = ViewOptions("crop" in config.augment, "flip" in config.augment, (1.0, MAX_VIEW_ZOOM))
        views = SceneViews(self.scenes, self.size, seed=config.seed, options=options)
        self.views: SampleReader[ViewBatch] = SampleReader(views, config.workers, "train")
        patch = get_square_side(config.patch)
        self.whole = {
            part: SampleReader[EvaluationScene](
                WholeScenes(self.scenes, part, self.size, patch), config.workers, part, lasting=part != "test"
            )
            for part in ("validation", "test")
        }

    def batches(self, epoch: int, rank: int, world: int, *, first: int = 0) -> Iterator[ViewBatch]:
        """One process's share of each batch of an epoch, from batch `first` on."""
        config, count = self.config, self.scenes.counts["train"]
        order = epoch_order(count, config.batch, seed=config.seed, epoch=epoch, rank=rank, world=world, pairs=False)
        keys = [(epoch, positions.tolist()) for positions in order[first:]]
        return (batch.to(self.device) for batch in self.views.read(keys))

    def loss(self, model: nn.Module, batch: ViewBatch, *, epoch: int, step: int, rank: int) -> Tensor:
        """The sum of the losses of proposals, classes, boxes and masks."""
        lost: Tensor = model(self.normalize_images(batch.images), batch.targets)
        return lost

    def normalize_images(self, images: Tensor) -> Tensor:
        """Normalize uint8 images (B 3 rows columns) as in the training of this run, or of the run it is initialized from."""
        return normalize_images(images.to(self.device, non_blocking=True).float() / 255, self.origin or self.scenes)

    def facts(self) -> dict[str, Any]:
        """What identifies the data, and what the ViT was initialized from."""
        return {**self._facts, **(self.origin.facts() if self.origin else {})}

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return {**self.scenes.facts(), "size": list(self.size)}

    @torch.no_grad()
    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Average precisions of images evaluated one by one, and the mean loss on a centered view of each."""
        own = unwrap_model(model).eval()
        truths, answers, lost = [], [], torch.zeros((), dtype=torch.float64)
        for number, evaluated in self._read_share(split, accelerator.process_index, accelerator.num_processes):
            lost += self._lost(own, evaluated, number)
            truths.append(truth_entry(evaluated.scene, number))
            answers += detection_entries(self.found(own, evaluated), number)
        truths, answers = gather_object(truths), gather_object(answers)
        total = accelerator.reduce(lost.float().to(accelerator.device), "sum").item()
        kinds = ("box", "mask") if self.config.task == "masks" else ("box",)
        scores = {"loss": total / self.scenes.counts[split]}
        for kind in kinds:
            scores |= average_precisions(truths, answers, len(self.scenes.classes), kind)
        return scores

    def _read_share(self, split: str, rank: int, world: int) -> Iterator[tuple[int, EvaluationScene]]:
        """One process's share of the images of a split, with their positions in it."""
        positions = range(self.scenes.counts[split])[rank::world]
        return zip(positions, self.whole[split].read(positions), strict=True)

    def found(self, model: nn.Module, evaluated: EvaluationScene) -> Detections:
        """The predictions of a model for an image, in pixels of its file."""
        (found,) = model(self.normalize_images(evaluated.whole[None]))
        return rescale_detections(found, evaluated.whole.shape[-2:], evaluated.scene.sides)

    @torch.no_grad()
    def _lost(self, model: nn.Module, evaluated: EvaluationScene, number: int) -> float:
        """The loss on a centered view of an image; the sampling of boxes is seeded with the number of the image."""
        torch.manual_seed(derive_seed(number))
        batch = evaluated.center.to(self.device)
        return float(model(self.normalize_images(batch.images), batch.targets))

    @classmethod
    def open_trial(cls, config: Config, processes: int) -> Trial:
        """Check the files; the returned check runs a model on blank images of the training size and of another size."""
        scenes, size = open_checked_scenes(config), check_view_size(config)
        scenes.look()
        epoch_order(scenes.counts["train"], config.batch, seed=config.seed, epoch=0, world=processes, pairs=False)
        images = torch.zeros(CHECKED_SAMPLES, 3, *size)
        empty = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}
        empty |= {"masks": torch.zeros(0, *size, dtype=torch.uint8)} if config.task == "masks" else {}

        def check_forward(each: Config) -> None:
            check_axes(each, len(size))
            model = build_detector(replace(each, depth=1), size, len(scenes.classes), load_origin(each))
            check_span(each, model.encoding)
            model(images, [empty] * CHECKED_SAMPLES)
            model.eval()(images[:1].repeat_interleave(2, dim=-1))

        return check_forward

    @classmethod
    def build_from_facts(cls, config: Config, facts: Mapping[str, Any]) -> TrainableModel:
        """The model for views of the size in the settings."""
        return build_detector(config, check_view_size(config), facts["classes"], BackboneOrigin.from_facts(facts))

    @classmethod
    def open_trained(cls, run: RunFolder, device: torch.device) -> "DetectionRun":
        """A finished run; its probes need no data."""
        classes = run.load_weights()[1]["data"]["classes"]
        return DetectionRun(run, load_trained_weights(cls, run).to(device), classes, device)

    @torch.no_grad()
    def picture(self, model: nn.Module) -> bytes:
        """The predictions for a few evenly spaced test images."""
        own, positions = unwrap_model(model).eval(), spread_evenly(self.scenes.counts["test"], DETECT_PICTURES)
        images = self.whole["test"].read(positions.tolist())
        return draw_detections([(each.scene, self.found(own, each)) for each in images])


def build_detector(config: Config, size: tuple[int, int], classes: int, origin: BackboneOrigin | None = None) -> ViTDetector:
    """The model of a run, initialized by the seed: the same weights for every encoding, except the encoding's own."""
    backbone = build_backbone(config, size, classes, origin)
    torch.manual_seed(config.seed)
    return ViTDetector(backbone, classes=classes, masks=config.task == "masks")


def open_checked_scenes(config: Config) -> DetectionData:
    """Check the settings of a run, open its images and check their counts."""
    check_dense_config(config, DETECT_OPERATIONS)
    import_pycocotools("mask")
    masks = config.task == "masks"
    scenes = open_detection_data(config.data, validation=config.validation, fraction=config.fraction, masks=masks)
    if scenes.counts["train"] < config.batch:
        raise ValueError(f"a batch must be no larger than the data, got a batch of {config.batch} and {scenes}")
    for part in ("validation", "test"):
        if not scenes.count_objects(part):
            raise ValueError(f"the {part} images must have objects, got none in {scenes}")
    return scenes


def check_view_size(config: Config) -> tuple[int, int]:
    """Return rows and columns of a training view; they must be multiples of the patch."""
    patch = get_square_side(config.patch)
    if config.size is None or len(config.size) != 2 or any(side % patch or side < 1 for side in config.size):
        wanted = f"a size of rows and columns for its views, multiples of the patch {patch}"
        raise ValueError(f"a run with the task {config.task} needs {wanted}, got {config.size}")
    rows, columns = config.size
    return rows, columns


@dataclass(frozen=True)
class DetectionRun(TrainedRun):
    """A run that predicts boxes or masks, with its model on a device."""

    model: ViTDetector
    classes: int
    where: torch.device

    @property
    def device(self) -> torch.device:
        return self.where

    @property
    def model_facts(self) -> Mapping[str, Any]:
        return {"classes": self.classes}

    def make_blank_inputs(self, count: int) -> Tensor:
        return torch.zeros(count, 3, *check_view_size(self.config), device=self.device)

    def select_timed_part(self, model: nn.Module) -> nn.Module:
        assert isinstance(model, ViTDetector)
        return DetectorLevels(model)


class DetectorLevels(nn.Module):
    """The ViT and the feature pyramid of a detector. The time of its heads depends on how many objects are predicted."""

    def __init__(self, detector: ViTDetector) -> None:
        super().__init__()
        self.detector = detector

    @property
    def encoding(self) -> Encoding:
        """The encoding of the detector."""
        return self.detector.encoding

    def forward(self, images: Tensor) -> list[Tensor]:
        return self.detector.levels(images)

"""Average precision of what was found, by the rules of COCO: pycocotools does the counting.

The way back from the size at which an image is looked at to its own.

Images with things in them, whose boxes and kinds are to be found, and with "masks" their outlines too.
"""

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torchvision.models.detection.roi_heads import paste_masks_in_image  # type: ignore[import-untyped]

from ropewalk.lab.config import Config
from ropewalk.lab.data.coco import encode_masks, import_mask_coder
from ropewalk.lab.data.detection import DetectionData, ImageScene
from ropewalk.lab.data.loader import SampleReader
from ropewalk.lab.data.pennfudan import is_pennfudan
from ropewalk.lab.data.sampling import epoch_order, spread_evenly
from ropewalk.lab.data.views import EvaluationScene, SceneViews, ViewBatch, ViewOptions, WholeScenes
from ropewalk.lab.hash_random import derive_seed
from ropewalk.lab.init_from import load_origin
from ropewalk.lab.model_building import BackboneOrigin, build_backbone
from ropewalk.lab.patch_size import get_square_side
from ropewalk.lab.tasks.base import check_dense_config, normalize_images
from ropewalk.lab.vision_heads.backbone import unwrap_model
from ropewalk.lab.vision_heads.detector import Detections, ViTDetector


def open_detection_data(path: str, *, validation: float, fraction: float, masks: bool) -> DetectionData:
    """The images of a folder, whose form tells which they are.

    `validation` is the share of COCO's training images that is kept for validation, `fraction` that of the rest that is
    trained on.
    """
    folder = Path(path).expanduser()
    if is_pennfudan(folder):
        from ropewalk.lab.data.pennfudan import PennFudanData

        return PennFudanData(folder, fraction=fraction, masks=masks)
    if (folder / "annotations").is_dir():
        from ropewalk.lab.data.coco import CocoData

        return CocoData(folder, validation=validation, fraction=fraction, masks=masks)
    wanted = (
        "PNGImages/ and PedMasks/ (Penn-Fudan), or annotations/ with instances_train*.json and instances_val*.json (COCO)"
    )
    raise ValueError(f"data with boxes must be a folder with {wanted}, got {path!r}")


PRECISION_NAMES = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
"""Mean over overlaps from 0.5 to 0.95, at 0.5, at 0.75, and of things under 32², up to 96², and over that many pixels."""

ResultEntry = dict[str, Any]


def truth_entry(scene: ImageScene, number: int) -> ResultEntry:
    """What is in an image, in COCO's words; `number` is that of the image."""
    outlines = _encode_optional_masks(scene.masks, len(scene.boxes))
    things = zip(scene.boxes, scene.labels, scene.crowd, scene.areas, outlines, strict=True)
    entries = [
        _box_entry(box, label, number) | {"iscrowd": int(crowd), "area": float(area)} | outline
        for box, label, crowd, area, outline in things
    ]
    rows, columns = scene.sides
    return {"image": {"id": number, "height": rows, "width": columns}, "things": entries}


def detection_entries(found: Mapping[str, Tensor], number: int) -> list[ResultEntry]:
    """What was found in an image, in the pixels of its file, in COCO's words."""
    outlines = _encode_optional_masks(found.get("masks"), len(found["boxes"]))
    things = zip(found["boxes"].cpu(), found["labels"].cpu(), found["scores"].tolist(), outlines, strict=True)
    return [_box_entry(box, label, number) | {"score": score} | outline for box, label, score, outline in things]


def average_precisions(
    truths: Sequence[ResultEntry], answers: Sequence[ResultEntry], classes: int, kind: str
) -> dict[str, float]:
    """Of kind "box" or "mask": box_ap, box_ap50, …; what there are no things of is left out."""
    import_mask_coder()  # says what to install
    from pycocotools.cocoeval import COCOeval  # type: ignore[import-untyped]

    images = sorted((each["image"] for each in truths), key=lambda image: image["id"])
    right = _number_entries(thing for each in truths for thing in each["things"])
    given = _number_entries(_add_area(each, kind) for each in answers)
    with contextlib.redirect_stdout(io.StringIO()):
        both = (_build_coco(images, entries, classes) for entries in (right, given))
        judge = COCOeval(*both, "bbox" if kind == "box" else "segm")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    found = dict(zip(PRECISION_NAMES, judge.stats[:6].tolist(), strict=True))
    return {f"{kind}_{name}": value for name, value in found.items() if value >= 0}


def _build_coco(images: list[ResultEntry], entries: list[ResultEntry], classes: int) -> Any:
    from pycocotools.coco import COCO  # type: ignore[import-untyped]

    coco = COCO()
    kinds = [{"id": number, "name": str(number)} for number in range(1, classes + 1)]
    coco.dataset = {"images": images, "annotations": entries, "categories": kinds}
    coco.createIndex()
    return coco


def _number_entries(entries: Any) -> list[ResultEntry]:
    """By image, and numbered from 1 on: COCO's counting takes 0 for none."""
    return [each | {"id": i} for i, each in enumerate(sorted(entries, key=lambda each: each["image_id"]), start=1)]


def _add_area(entry: ResultEntry, kind: str) -> ResultEntry:
    """With the area by which it is small or large."""
    area = entry["bbox"][2] * entry["bbox"][3] if kind == "box" else float(import_mask_coder().area(entry["segmentation"]))
    return entry | {"area": area, "iscrowd": 0}


def _box_entry(box: Tensor, label: Tensor, number: int) -> ResultEntry:
    x, y, right, bottom = map(float, box)
    return {"image_id": number, "category_id": int(label), "bbox": [x, y, right - x, bottom - y]}


def _encode_optional_masks(masks: Tensor | None, count: int) -> list[ResultEntry]:
    """What is said of outlines, which there may be none of."""
    return [{}] * count if masks is None else [{"segmentation": outline} for outline in encode_masks(masks)]


_ImageDetections = dict[str, Tensor]


def rescale_detections(found: _ImageDetections, seen: Sequence[int], sides: Sequence[int]) -> _ImageDetections:
    """Things found in an image as it was `seen`, in its own pixels; masks (n, rows, columns) are bool."""
    factor = torch.tensor([sides[1] / seen[1], sides[0] / seen[0]] * 2, device=found["boxes"].device)
    found = found | {"boxes": found["boxes"] * factor}
    if "masks" in found:
        found["masks"] = paste_masks_in_image(found["masks"], found["boxes"], tuple(sides))[:, 0] > 0.5
    return found


DETECT_OPERATIONS, MAX_VIEW_ZOOM = ("flip", "crop"), 1.5
"""How views may be cut at random, and how much smaller than the largest they are at most."""
DETECT_PICTURES = 4
"""Images in a picture."""


class DetectionTask:
    """Finds things."""

    def __init__(self, config: Config, device: torch.device | str) -> None:
        self.config, self.device = config, torch.device(device)
        self.scenes, self.size = open_checked_scenes(config), check_view_size(config)
        self.origin = load_origin(config)
        classes = len(self.scenes.classes)
        self.model = build_detector(config, self.size, classes, self.origin).to(device)
        self.steps = self.scenes.counts["train"] // config.batch
        way = ViewOptions("crop" in config.augment, "flip" in config.augment, (1.0, MAX_VIEW_ZOOM))
        views = SceneViews(self.scenes, self.size, seed=config.seed, way=way)
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
        return (seen.to(self.device) for seen in self.views.read([(epoch, places.tolist()) for places in order[first:]]))

    def loss(self, model: nn.Module, batch: ViewBatch, *, epoch: int, step: int, rank: int) -> Tensor:
        """The sum of what proposals, kinds, boxes and outlines lose."""
        lost: Tensor = model(self.normalize_images(batch.images), batch.targets)
        return lost

    def normalize_images(self, images: Tensor) -> Tensor:
        """Images of bytes (B 3 rows columns), normalised as those that are trained on, or that weights were trained on."""
        return normalize_images(images.to(self.device, non_blocking=True).float() / 255, self.origin or self.scenes)

    def facts(self) -> dict[str, Any]:
        """What tells its data from others, and what it goes on from."""
        return {**self._facts, **(self.origin.facts() if self.origin else {})}

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return {**self.scenes.facts(), "size": list(self.size)}

    @torch.no_grad()
    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Average precisions of images as they are, each by itself, and the mean loss of the middle of each."""
        own = unwrap_model(model).eval()
        truths, answers, lost = [], [], torch.zeros((), dtype=torch.float64)
        for number, judged in self._judged(split, accelerator.process_index, accelerator.num_processes):
            lost += self._lost(own, judged, number)
            truths.append(truth_entry(judged.scene, number))
            answers += detection_entries(self.found(own, judged), number)
        truths, answers = gather_object(truths), gather_object(answers)
        total = accelerator.reduce(lost.float().to(accelerator.device), "sum").item()
        kinds = ("box", "mask") if self.config.task == "masks" else ("box",)
        scores = {"loss": total / self.scenes.counts[split]}
        for kind in kinds:
            scores |= average_precisions(truths, answers, len(self.scenes.classes), kind)
        return scores

    def _judged(self, split: str, rank: int, world: int) -> Iterator[tuple[int, EvaluationScene]]:
        """One process's share of the images of a part, with their numbers."""
        places = range(self.scenes.counts[split])[rank::world]
        return zip(places, self.whole[split].read(places), strict=True)

    def found(self, model: nn.Module, judged: EvaluationScene) -> Detections:
        """What a model finds in an image, in its own pixels."""
        (found,) = model(self.normalize_images(judged.whole[None]))
        return rescale_detections(found, judged.whole.shape[-2:], judged.scene.sides)

    @torch.no_grad()
    def _lost(self, model: nn.Module, judged: EvaluationScene, number: int) -> float:
        """The loss of the middle of an image; what is sampled for it follows from its number."""
        torch.manual_seed(derive_seed(number))
        seen = judged.middle.to(self.device)
        return float(model(self.normalize_images(seen.images), seen.targets))

    @torch.no_grad()
    def picture(self, model: nn.Module) -> bytes:
        """What is found in a few test images, at even distances among them."""
        from ropewalk.lab.vision_heads.draw_predictions import draw_detections

        own, places = unwrap_model(model).eval(), spread_evenly(self.scenes.counts["test"], DETECT_PICTURES)
        return draw_detections([(each.scene, self.found(own, each)) for each in self.whole["test"].read(places.tolist())])


def build_detector(config: Config, size: tuple[int, int], classes: int, origin: BackboneOrigin | None = None) -> ViTDetector:
    """The model, its weights drawn from the seed of the run: the same ones for every encoding but for its own."""
    backbone = build_backbone(config, size, classes, origin)
    torch.manual_seed(config.seed)
    return ViTDetector(backbone, classes=classes, masks=config.task == "masks")


def open_checked_scenes(config: Config) -> DetectionData:
    """The images of a run, if its settings are of boxes and it can be trained on them and judged by them."""
    check_dense_config(config, DETECT_OPERATIONS)
    import_mask_coder()  # without which nothing can be judged
    masks = config.task == "masks"
    scenes = open_detection_data(config.data, validation=config.validation, fraction=config.fraction, masks=masks)
    if scenes.counts["train"] < config.batch:
        raise ValueError(f"a batch must be no larger than the data, got a batch of {config.batch} and {scenes}")
    for part in ("validation", "test"):
        if not scenes.things(part):
            raise ValueError(f"the {part} images must have things to be found, got none in {scenes}")
    return scenes


def check_view_size(config: Config) -> tuple[int, int]:
    """Rows and columns of a view, which patches fill."""
    patch = get_square_side(config.patch)
    if config.size is None or len(config.size) != 2 or any(side % patch or side < 1 for side in config.size):
        wanted = f"a size of rows and columns for its views, multiples of the patch {patch}"
        raise ValueError(f"a run with the task {config.task} needs {wanted}, got {config.size}")
    rows, columns = config.size
    return rows, columns

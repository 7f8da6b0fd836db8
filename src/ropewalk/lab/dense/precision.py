"""Average precision of what was found, by the rules of COCO: pycocotools does the counting."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ropewalk.lab.data.outlines import coder, encoded
from ropewalk.lab.data.scenes import Scene

NAMES = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
"""Mean over overlaps from 0.5 to 0.95, at 0.5, at 0.75, and of things under 32², up to 96², and over that many pixels."""

Entry = dict[str, Any]


def truth(scene: Scene, number: int) -> Entry:
    """What is in an image, in COCO's words; `number` is that of the image."""
    outlines = _coded(scene.masks, len(scene.boxes))
    things = zip(scene.boxes, scene.labels, scene.crowd, scene.areas, outlines, strict=True)
    entries = [
        _entry(box, label, number) | {"iscrowd": int(crowd), "area": float(area)} | outline
        for box, label, crowd, area, outline in things
    ]
    rows, columns = scene.sides
    return {"image": {"id": number, "height": rows, "width": columns}, "things": entries}


def answer(found: Mapping[str, Tensor], number: int) -> list[Entry]:
    """What was found in an image, in the pixels of its file, in COCO's words."""
    outlines = _coded(found.get("masks"), len(found["boxes"]))
    things = zip(found["boxes"].cpu(), found["labels"].cpu(), found["scores"].tolist(), outlines, strict=True)
    return [_entry(box, label, number) | {"score": score} | outline for box, label, score, outline in things]


def precisions(truths: Sequence[Entry], answers: Sequence[Entry], classes: int, kind: str) -> dict[str, float]:
    """Of kind "box" or "mask": box_ap, box_ap50, …; what there are no things of is left out."""
    coder()  # says what to install
    from pycocotools.cocoeval import COCOeval  # type: ignore[import-untyped]

    images = sorted((each["image"] for each in truths), key=lambda image: image["id"])
    right = _numbered(thing for each in truths for thing in each["things"])
    given = _numbered(_sized(each, kind) for each in answers)
    with contextlib.redirect_stdout(io.StringIO()):
        both = (_coco(images, entries, classes) for entries in (right, given))
        judge = COCOeval(*both, "bbox" if kind == "box" else "segm")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    found = dict(zip(NAMES, judge.stats[:6].tolist(), strict=True))
    return {f"{kind}_{name}": value for name, value in found.items() if value >= 0}


def _coco(images: list[Entry], entries: list[Entry], classes: int) -> Any:
    from pycocotools.coco import COCO  # type: ignore[import-untyped]

    coco = COCO()
    kinds = [{"id": number, "name": str(number)} for number in range(1, classes + 1)]
    coco.dataset = {"images": images, "annotations": entries, "categories": kinds}
    coco.createIndex()
    return coco


def _numbered(entries: Any) -> list[Entry]:
    """By image, and numbered from 1 on: COCO's counting takes 0 for none."""
    return [each | {"id": i} for i, each in enumerate(sorted(entries, key=lambda each: each["image_id"]), start=1)]


def _sized(entry: Entry, kind: str) -> Entry:
    """With the area by which it is small or large."""
    area = entry["bbox"][2] * entry["bbox"][3] if kind == "box" else float(coder().area(entry["segmentation"]))
    return entry | {"area": area, "iscrowd": 0}


def _entry(box: Tensor, label: Tensor, number: int) -> Entry:
    x, y, right, bottom = map(float, box)
    return {"image_id": number, "category_id": int(label), "bbox": [x, y, right - x, bottom - y]}


def _coded(masks: Tensor | None, count: int) -> list[Entry]:
    """What is said of outlines, which there may be none of."""
    return [{}] * count if masks is None else [{"segmentation": outline} for outline in encoded(masks)]

"""Pictures of predictions: images with boxes and masks, and segmentations beside image and ground truth."""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ropewalk.lab.data.detection import ImageScene
from ropewalk.lab.data.image_files import IGNORED_LABEL
from ropewalk.lab.vision_heads.detector import Detections

# Detections with a lower score are not drawn.
MIN_DRAWN_SCORE = 0.5
_FOUND_COLOR, _TRUTH_COLOR = "#ff8c1a", "#ffffff"


def draw_detections(shown: Sequence[tuple[ImageScene, Detections]]) -> bytes:
    """A PNG file of images side by side: what is there is dashed, what was found has its score. The same answers give the
    same bytes.
    """
    figure = Figure(figsize=(2.4 * len(shown), 2.4), layout="constrained")
    for axes, (scene, found) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        axes.imshow(scene.image.movedim(0, -1).numpy())
        axes.set_axis_off()
        for box in scene.boxes.tolist():
            _draw_box(axes, box, edgecolor=_TRUTH_COLOR, linewidth=0.7, linestyle="--")
        _draw_found(axes, {name: value.cpu() for name, value in found.items()})
    return figure_to_png(figure, 160)


def figure_to_png(figure: Any, dots: int) -> bytes:
    """A PNG file of a figure, with so many dots an inch, and nothing in it that would change with versions."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=dots, metadata={"Software": None})
    return data.getvalue()


def _draw_found(axes: Any, found: Detections) -> None:
    """Boxes, scores and outlines of what a model is sure of."""
    for i in (found["scores"] >= MIN_DRAWN_SCORE).nonzero().flatten().tolist():
        box, score = found["boxes"][i].tolist(), found["scores"][i].item()
        _draw_box(axes, box, edgecolor=_FOUND_COLOR, linewidth=1.2)
        axes.text(box[0], box[1], f"{score:.2f}", color="black", fontsize=6, va="bottom",
                  bbox={"facecolor": _FOUND_COLOR, "edgecolor": "none", "pad": 0.6})  # fmt: skip
        if "masks" in found and found["masks"][i].any():
            axes.contourf(found["masks"][i].float().numpy(), levels=[0.5, 1.5], colors=[_FOUND_COLOR], alpha=0.4)


def _draw_box(axes: Any, box: Sequence[float], **look: Any) -> None:
    """A box, which begins where its first pixel does: matplotlib puts centres of pixels at whole numbers."""
    x, y, right, bottom = box
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), right - x, bottom - y, fill=False, **look))


SEGMENT_TITLES = ("image", "truth", "prediction")
_ROW_HEIGHT, _FIGURE_WIDTH = 1.7, 7.2  # inches
_SEGMENT_DPI = 110  # an inch
# The most classes that a legend names.
MAX_LEGEND_CLASSES = 12
# Level of pixels whose class is unknown.
_GRAY_LEVEL = 128


class SegmentationExample(NamedTuple):
    """An image, uint8 (rows columns 3), and the class numbers of its pixels, (rows columns), as they are and as found."""

    image: np.ndarray
    truth: np.ndarray
    answer: np.ndarray


def draw_segmentations(examples: Sequence[SegmentationExample], classes: Sequence[str]) -> bytes:
    """A PNG file with a row for each example, and the colours of the classes that are seen."""
    figure = Figure(figsize=(_FIGURE_WIDTH, _ROW_HEIGHT * len(examples) + 0.7), layout="constrained")
    cells = figure.subplots(len(examples), len(SEGMENT_TITLES), squeeze=False)
    for row, each in zip(cells, examples, strict=True):
        for axes, picture in zip(row, (each.image, *(overlay_map(each.image, map) for map in each[1:])), strict=True):
            axes.imshow(picture)
            axes.axis("off")
    for axes, title in zip(cells[0], SEGMENT_TITLES, strict=True):
        axes.set_title(title, fontsize=9)
    seen = sorted({int(number) for each in examples for map in each[1:] for number in np.unique(map)} - {IGNORED_LABEL})
    keys = [Patch(color=tuple(class_colors(np.array(i)) / 255), label=classes[i]) for i in seen[:MAX_LEGEND_CLASSES]]
    figure.legend(handles=keys, loc="outside lower left", ncols=6, fontsize=7, frameon=False)
    return figure_to_png(figure, _SEGMENT_DPI)


def overlay_map(image: np.ndarray, map: np.ndarray) -> np.ndarray:
    """The colours of a map over its image, in grey, uint8 (rows columns 3)."""
    grey = image.mean(-1, keepdims=True)
    mixed = 0.35 * grey + 0.65 * class_colors(map)
    return mixed.round().astype(np.uint8)


def class_colors(map: np.ndarray) -> np.ndarray:
    """Pascal VOC's colour of each class number, (… 3): bit 3i + c of the number is bit 7 - i of channel c."""
    bits = (map[..., None, None].astype(int) >> (3 * np.arange(8)[:, None] + np.arange(3))) & 1
    found = (bits << (7 - np.arange(8))[:, None]).sum(-2)
    return np.where((map == IGNORED_LABEL)[..., None], _GRAY_LEVEL, found)

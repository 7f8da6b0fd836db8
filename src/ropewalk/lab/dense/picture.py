"""A picture of what was found: a few images, with boxes and outlines over them."""

import io
from collections.abc import Sequence
from typing import Any

from ropewalk.lab.data.scenes import Scene
from ropewalk.lab.dense.detector import Things

SURE = 0.5
"""The least score of what is drawn."""
FOUND, THERE = "#ff8c1a", "#ffffff"


def picture(shown: Sequence[tuple[Scene, Things]]) -> bytes:
    """A PNG file of images side by side: what is there is dashed, what was found has its score. The same answers give the
    same bytes.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.4 * len(shown), 2.4), layout="constrained")
    for axes, (scene, found) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        axes.imshow(scene.image.movedim(0, -1).numpy())
        axes.set_axis_off()
        for box in scene.boxes.tolist():
            _frame(axes, box, edgecolor=THERE, linewidth=0.7, linestyle="--")
        _draw(axes, {name: value.cpu() for name, value in found.items()})
    return filed(figure, 160)


def filed(figure: Any, dots: int) -> bytes:
    """A PNG file of a figure, with so many dots an inch, and nothing in it that would change with versions."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=dots, metadata={"Software": None})
    return data.getvalue()


def _draw(axes: Any, found: Things) -> None:
    """Boxes, scores and outlines of what a model is sure of."""
    for i in (found["scores"] >= SURE).nonzero().flatten().tolist():
        box, score = found["boxes"][i].tolist(), found["scores"][i].item()
        _frame(axes, box, edgecolor=FOUND, linewidth=1.2)
        axes.text(box[0], box[1], f"{score:.2f}", color="black", fontsize=6, va="bottom",
                  bbox={"facecolor": FOUND, "edgecolor": "none", "pad": 0.6})  # fmt: skip
        if "masks" in found and found["masks"][i].any():
            axes.contourf(found["masks"][i].float().numpy(), levels=[0.5, 1.5], colors=[FOUND], alpha=0.4)


def _frame(axes: Any, box: Sequence[float], **look: Any) -> None:
    """A box, which begins where its first pixel does: matplotlib puts centres of pixels at whole numbers."""
    from matplotlib.patches import Rectangle

    x, y, right, bottom = box
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), right - x, bottom - y, fill=False, **look))

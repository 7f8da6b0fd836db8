"""The size at which an image is looked at when a model is judged, and the way back to its own."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.models.detection.roi_heads import paste_masks_in_image  # type: ignore[import-untyped]
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]

LONGEST = 2
"""The longer side of an image, at most, in shorter sides of the images of training."""

Things = dict[str, Tensor]


def looked_at(sides: Sequence[int], size: Sequence[int], patch: int) -> tuple[int, int]:
    """Rows and columns of an image of these sides, both multiples of the patch: its shorter side is that of the images of
    training, unless the longer one would be over twice that; each side is rounded to whole patches."""
    short = min(size)
    factor = min(short / min(sides), LONGEST * short / max(sides))
    rows, columns = (max(round(side * factor / patch), 1) * patch for side in sides)
    return rows, columns


def resized(image: Tensor, size: Sequence[int]) -> Tensor:
    """An image uint8 (3 rows columns) of another size, bilinear and antialiased."""
    out: Tensor = F.resize(image, list(size), antialias=True)
    return out


def brought_back(found: Things, seen: Sequence[int], sides: Sequence[int]) -> Things:
    """Things found in an image as it was `seen`, in its own pixels; masks (n, rows, columns) are bool."""
    factor = torch.tensor([sides[1] / seen[1], sides[0] / seen[0]] * 2, device=found["boxes"].device)
    found = found | {"boxes": found["boxes"] * factor}
    if "masks" in found:
        found["masks"] = paste_masks_in_image(found["masks"], found["boxes"], tuple(sides))[:, 0] > 0.5
    return found

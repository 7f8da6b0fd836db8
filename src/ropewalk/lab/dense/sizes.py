"""The way back from the size at which an image is looked at to its own."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.models.detection.roi_heads import paste_masks_in_image  # type: ignore[import-untyped]

Things = dict[str, Tensor]


def brought_back(found: Things, seen: Sequence[int], sides: Sequence[int]) -> Things:
    """Things found in an image as it was `seen`, in its own pixels; masks (n, rows, columns) are bool."""
    factor = torch.tensor([sides[1] / seen[1], sides[0] / seen[0]] * 2, device=found["boxes"].device)
    found = found | {"boxes": found["boxes"] * factor}
    if "masks" in found:
        found["masks"] = paste_masks_in_image(found["masks"], found["boxes"], tuple(sides))[:, 0] > 0.5
    return found

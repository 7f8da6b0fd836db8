"""Boxes on maps whose places have their centres half a stride inside: anchors to begin with, and what lies in a box.

torchvision's own put the centre of place i at i·stride, which is half a place off for maps of patches, and half a pixel for
masks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import roi_align  # type: ignore[import-untyped]

ANCHOR_SIDE = 8
"""The side of a square anchor, in strides of its level."""
ANCHOR_RATIOS = (0.5, 1.0, 2.0)
"""Of height to width."""
MIN_BOX_STRIDES = 14
"""Strides that a box has at least on a side, on average, to be read from the level and not from a finer one."""


class AnchorBoxes(nn.Module):
    """Boxes of three shapes around the centre of each place of each level, as `RegionProposalNetwork` wants them."""

    def __init__(self, strides: Sequence[int]) -> None:
        super().__init__()
        self.strides = tuple(strides)

    def num_anchors_per_location(self) -> list[int]:
        """Of each level."""
        return [len(ANCHOR_RATIOS)] * len(self.strides)

    def forward(self, images: Any, levels: Sequence[Tensor]) -> list[Tensor]:
        """Boxes (x, y, x, y) of all levels, by rows, columns and shapes, for each image."""
        boxes = [level_anchors(level, stride) for level, stride in zip(levels, self.strides, strict=True)]
        return [torch.cat(boxes)] * len(images.image_sizes)


def level_anchors(level: Tensor, stride: int) -> Tensor:
    """The anchors of one level (B C rows columns): (rows · columns · shapes, 4)."""
    rows, columns = ((torch.arange(n, device=level.device) + 0.5) * stride for n in level.shape[-2:])
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    ratio = torch.tensor(ANCHOR_RATIOS, device=level.device).sqrt()
    half = ANCHOR_SIDE * stride / 2 * torch.stack([1 / ratio, ratio], dim=-1)
    centre = torch.stack([x, y], dim=-1).unsqueeze(2)
    return torch.cat([centre - half, centre + half], dim=-1).flatten(0, 2)


class BoxPooler(nn.Module):
    """What lies in boxes, each read from the level that suits its size, in a grid of `size` × `size` cells."""

    def __init__(self, strides: Sequence[int], size: int) -> None:
        super().__init__()
        self.strides, self.size, self.output_size = tuple(strides), size, (size, size)

    def forward(self, levels: Mapping[str, Tensor], boxes: Sequence[Tensor], sizes: Any = None) -> Tensor:
        """Cells (N C size size) of the boxes of all images, in their order; sizes of images do not matter."""
        maps = list(levels.values())
        rois = torch.cat([torch.cat([each.new_full((len(each), 1), i), each], dim=1) for i, each in enumerate(boxes)])
        chosen = choose_box_level(rois[:, 1:], self.strides)
        out = maps[0].new_zeros(len(rois), maps[0].shape[1], self.size, self.size)
        for number, (level, stride) in enumerate(zip(maps, self.strides, strict=True)):
            (rows,) = torch.where(chosen == number)
            cells = roi_align(level, rois[rows], self.size, 1 / stride, sampling_ratio=2, aligned=True)
            out = out.index_copy(0, rows, cells.to(out.dtype))
        return out


def choose_box_level(boxes: Tensor, strides: Sequence[int]) -> Tensor:
    """The level that each box is read from, by the root of its area: 224 pixels are for a stride of 16, as in FPN."""
    sides = ((boxes[:, 2:] - boxes[:, :2]).clamp(min=0).prod(1)).sqrt()
    level = torch.floor(torch.log2(sides / (MIN_BOX_STRIDES * strides[0])) + 1e-6)
    return level.clamp(0, len(strides) - 1).long()


def shift_masks_half_pixel(masks: Tensor) -> Tensor:
    """Masks (n rows columns) as what torchvision compares outlines with must have them: float (n, rows + 1, columns + 1).

    It takes the centre of pixel i to be at i, and not at i + ½. So what it reads at i is the mean of the pixels that meet
    there, and outlines are learned where they lie.
    """
    edged = F.pad(masks.float().unsqueeze(1), (1, 1, 1, 1), mode="replicate")
    return F.avg_pool2d(edged, 2, stride=1).squeeze(1)

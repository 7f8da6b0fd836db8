"""A detector on the feature maps of our ViT: Faster R-CNN or Mask R-CNN, built from torchvision's modules, on the simple
feature pyramid of ViTDet (arXiv 2203.16527).

    detector(images, targets)   # the sum of the losses of images (B 3 rows columns), all of one size
    detector(images)            # for each image: boxes, labels, scores, and masks of 28 × 28 cells per box

Under autocast, the ViT and the pyramid compute in its dtype; proposals, heads and losses compute in float32.

Cell i of a feature map is centered at (i + 1/2) · stride. torchvision's own anchors are centered at i · stride, which is
half a cell off for maps of patches, and half a pixel for masks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead  # type: ignore[import-untyped]
from torchvision.models.detection.image_list import ImageList  # type: ignore[import-untyped]
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor  # type: ignore[import-untyped]
from torchvision.models.detection.roi_heads import RoIHeads  # type: ignore[import-untyped]
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead  # type: ignore[import-untyped]
from torchvision.ops import roi_align  # type: ignore[import-untyped]

from ropewalk.lab.vision_heads.backbone import DenseModel
from ropewalk.models import ViT

# The side of a square anchor, in strides of its level.
ANCHOR_SIDE = 8
# Ratios of height to width.
ANCHOR_RATIOS = (0.5, 1.0, 2.0)
# The features of a box come from the coarsest level on which the square root of its area has at least so many strides: 224
# pixels at a stride of 16, as in FPN.
MIN_BOX_STRIDES = 14
# Channels of a level, if the transformer is not narrower.
MAX_PYRAMID_CHANNELS = 256
# Strides of the levels, in patches.
PYRAMID_STRIDES = (0.25, 0.5, 1.0, 2.0)


class FeaturePyramid(nn.Module):
    """Four feature maps from one (B width rows columns): 4, 2, 1 and 1/2 times its resolution, min(width, 256) channels.

    Finer levels come from transposed convolutions with stride 2, the coarser one from max pooling, whose last window is cut
    off if the size is odd. So a cell of a level covers its stride of pixels at any size.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.channels = channels = min(width, MAX_PYRAMID_CHANNELS)
        half, quarter = max(width // 2, 1), max(width // 4, 1)
        finest = [
            _upsample_layer(width, half),
            ChannelNorm(half),
            nn.GELU(),
            _upsample_layer(half, quarter),
            _lateral_layers(quarter, channels),
        ]
        coarser = nn.MaxPool2d(2, ceil_mode=True)
        self.levels = nn.ModuleList(
            [
                nn.Sequential(*finest),
                nn.Sequential(_upsample_layer(width, half), _lateral_layers(half, channels)),
                _lateral_layers(width, channels),
                nn.Sequential(coarser, _lateral_layers(width, channels)),
            ]
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        return [level(x) for level in self.levels]


def downsample_level(level: Tensor) -> Tensor:
    """Halve the resolution of the last level by max pooling, for proposals of larger objects."""
    return F.max_pool2d(level, 2, ceil_mode=True)


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of feature maps (B C rows columns)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


def pyramid_strides(patch: int) -> tuple[int, ...]:
    """The stride of each level, in pixels."""
    if patch % 4:
        raise ValueError(f"a pyramid cuts a patch in four along each axis: patch must be a multiple of 4, got {patch}")
    return tuple(int(patch * factor) for factor in PYRAMID_STRIDES)


def _upsample_layer(before: int, after: int) -> nn.Module:
    return nn.ConvTranspose2d(before, after, 2, stride=2)


def _lateral_layers(width: int, channels: int) -> nn.Sequential:
    """A 1 × 1 convolution to the channels of the pyramid, and a 3 × 3 convolution, each with a norm."""
    one, over = nn.Conv2d(width, channels, 1, bias=False), nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    return nn.Sequential(one, ChannelNorm(channels), over, ChannelNorm(channels))


# Cells along each side of a pooled box, and the width of the box head as a multiple of the channels of a level.
BOX_CELLS, MASK_CELL_FACTOR = 7, 4
# Cells along each side of a box from which its mask is predicted, at twice the resolution.
MASK_CELLS = 14

# Of one image: boxes (n, 4), labels (n,) from 1 on, and optionally scores and masks.
Detections = dict[str, Tensor]


class ViTDetector(DenseModel):
    """Predicts boxes of objects of `classes` classes; with `masks`, their masks too."""

    def __init__(self, backbone: ViT, *, classes: int, masks: bool) -> None:
        super().__init__(backbone)
        self.pyramid = FeaturePyramid(backbone.norm.normalized_shape[0])
        levels = pyramid_strides(backbone.patch[0])
        self.rpn = build_proposal_network(levels, self.pyramid.channels)
        self.roi_heads = build_roi_heads(levels, self.pyramid.channels, classes, masks)
        self._levels: Callable[[ViTDetector, Tensor], list[Tensor]] = ViTDetector.levels

    def levels(self, images: Tensor) -> list[Tensor]:
        """The feature maps of all levels."""
        return self.pyramid(self.backbone.maps(images, resolution=self.resolution))

    def compiled_outputs(self, images: Tensor) -> list[Tensor]:
        """The feature maps of all levels, by the compiled function if there is one."""
        return self._levels(self, images)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the feature maps for training, whose images have one size. Evaluation, where sizes differ, is not
        compiled."""
        self._levels = torch.compile(ViTDetector.levels, *args, **kwargs)

    def forward(self, images: Tensor, targets: Sequence[Detections] | None = None) -> Any:
        """The sum of the losses with targets, the detections without."""
        maps = self.compiled_outputs(images) if self.training else self.levels(images)
        # bfloat16 would round coordinates above 256 to even pixels.
        with torch.autocast(images.device.type, enabled=False):
            named = {str(i): level.float() for i, level in enumerate(maps)}
            sizes = [tuple(images.shape[-2:])] * len(images)
            return self._found(images, named, sizes) if targets is None else self._lost(images, named, sizes, targets)

    def _proposed(
        self, images: Tensor, maps: Detections, sizes: list[Any], targets: Sequence[Detections] | None = None
    ) -> Any:
        """Proposals and their losses, with an additional level for large objects."""
        last = str(len(maps) - 1)
        return self.rpn(ImageList(images, sizes), maps | {"coarser": downsample_level(maps[last])}, targets)

    def _found(self, images: Tensor, maps: Detections, sizes: list[Any]) -> list[Detections]:
        proposals, _ = self._proposed(images, maps, sizes)
        found, _ = self.roi_heads(maps, proposals, sizes)
        return list(found)

    def _lost(self, images: Tensor, maps: Detections, sizes: list[Any], targets: Sequence[Detections]) -> Tensor:
        """The sum of the losses of proposals and heads."""
        # torchvision's modules compute losses in training mode only. They have no dropout, so that nothing else changes.
        training = self.training
        self.rpn.train(), self.roi_heads.train()
        try:
            proposals, first = self._proposed(images, maps, sizes, targets)
            _, second = self.roi_heads(maps, proposals, sizes, [_with_torchvision_masks(each) for each in targets])
        finally:
            self.rpn.train(training), self.roi_heads.train(training)
        return torch.stack([*first.values(), *second.values()]).sum()


def _with_torchvision_masks(things: Detections) -> Detections:
    """Shift masks, if there are any, to torchvision's convention of pixel centers."""
    return things | {"masks": shift_masks_half_pixel(things["masks"])} if "masks" in things else things


def build_proposal_network(levels: Sequence[int], channels: int) -> nn.Module:
    """Region proposals, with torchvision's settings and one more level, twice as coarse as the last."""
    anchors = AnchorBoxes((*levels, 2 * levels[-1]))
    counts = {"training": 2000, "testing": 1000}
    head = RPNHead(channels, anchors.num_anchors_per_location()[0])
    return RegionProposalNetwork(anchors, head, 0.7, 0.3, 256, 0.5, counts, counts, 0.7)


def build_roi_heads(levels: Sequence[int], channels: int, classes: int, masks: bool) -> nn.Module:
    """Heads for classes, boxes and masks, with torchvision's settings. Class 0 is background."""
    hidden = MASK_CELL_FACTOR * channels
    head, predictor = TwoMLPHead(channels * BOX_CELLS**2, hidden), FastRCNNPredictor(hidden, classes + 1)
    outlines: list[Any] = [None, None, None]
    if masks:
        drawn = MaskRCNNPredictor(channels, channels, classes + 1)
        outlines = [BoxPooler(levels, MASK_CELLS), MaskRCNNHeads(channels, (channels,) * 4, 1), drawn]
    return RoIHeads(BoxPooler(levels, BOX_CELLS), head, predictor, 0.5, 0.5, 512, 0.25, None, 0.05, 0.5, 100, *outlines)


class AnchorBoxes(nn.Module):
    """Anchors of three shapes at the center of each cell of each level; the interface is that of torchvision."""

    def __init__(self, strides: Sequence[int]) -> None:
        super().__init__()
        self.strides = tuple(strides)

    def num_anchors_per_location(self) -> list[int]:
        """The number of anchor shapes of each level."""
        return [len(ANCHOR_RATIOS)] * len(self.strides)

    def forward(self, images: Any, levels: Sequence[Tensor]) -> list[Tensor]:
        """Anchors (x, y, x, y) of all levels for each image, ordered by row, column and shape."""
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
    """RoIAlign: features of each box on `size` × `size` cells, from the level that matches its size."""

    def __init__(self, strides: Sequence[int], size: int) -> None:
        super().__init__()
        self.strides, self.size, self.output_size = tuple(strides), size, (size, size)

    def forward(self, levels: Mapping[str, Tensor], boxes: Sequence[Tensor], sizes: Any = None) -> Tensor:
        """Features (N C size size) of the boxes of all images, in order. `sizes` is unused; torchvision passes it."""
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
    """Choose the level of each box by the square root of its area, as in FPN: stride 16 for 224 pixels."""
    sides = ((boxes[:, 2:] - boxes[:, :2]).clamp(min=0).prod(1)).sqrt()
    # The small term keeps boxes of exactly a level's size from falling to the finer level by rounding.
    level = torch.floor(torch.log2(sides / (MIN_BOX_STRIDES * strides[0])) + 1e-6)
    return level.clamp(0, len(strides) - 1).long()


def shift_masks_half_pixel(masks: Tensor) -> Tensor:
    """Resample masks (n rows columns) for torchvision's mask loss: float (n, rows + 1, columns + 1).

    torchvision places the center of pixel i at i, not at i + 1/2. Its sample at i therefore has to be the mean of the pixels
    around the corner i; else predicted masks are off by half a pixel.
    """
    edged = F.pad(masks.float().unsqueeze(1), (1, 1, 1, 1), mode="replicate")
    return F.avg_pool2d(edged, 2, stride=1).squeeze(1)

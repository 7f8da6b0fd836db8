"""Boxes, and outlines if they are asked for, from the maps of our ViT: Faster R-CNN and Mask R-CNN of torchvision's parts.

    detector(images, targets)   # the sum of the losses of images (B 3 rows columns), all of one size
    detector(images)            # for each image: boxes, labels, scores, and masks of 28 × 28 cells in their boxes

Only the ViT and the pyramid compute in the precision of a surrounding autocast; proposals, heads and losses in float32.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead  # type: ignore[import-untyped]
from torchvision.models.detection.image_list import ImageList  # type: ignore[import-untyped]
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor  # type: ignore[import-untyped]
from torchvision.models.detection.roi_heads import RoIHeads  # type: ignore[import-untyped]
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead  # type: ignore[import-untyped]

from ropewalk.lab.dense.base import Dense
from ropewalk.lab.dense.places import Anchors, Pooler, halfway
from ropewalk.lab.dense.pyramid import Pyramid, coarser, strides
from ropewalk.models import ViT

CELLS, WIDER = 7, 4
"""Cells of a box along each side, and how many times more channels than a level what judges it has."""
OUTLINE = 14
"""Cells of a box of which its outline is found, at twice that."""

Things = dict[str, Tensor]
"""Of one image: boxes (n, 4), labels (n,) from 1 on, and what else is known of them."""


class Detector(Dense):
    """Finds things of `classes` kinds; with `masks`, their outlines too."""

    def __init__(self, backbone: ViT, *, classes: int, masks: bool) -> None:
        super().__init__(backbone)
        self.pyramid = Pyramid(backbone.norm.normalized_shape[0])
        levels = strides(backbone.patch[0])
        self.rpn = proposing(levels, self.pyramid.channels)
        self.roi_heads = judging(levels, self.pyramid.channels, classes, masks)
        self._levels: Callable[[Detector, Tensor], list[Tensor]] = Detector.levels

    def levels(self, images: Tensor) -> list[Tensor]:
        """The maps of all levels."""
        return self.pyramid(self.backbone.maps(images, resolution=self.resolution))

    def looked(self, images: Tensor) -> list[Tensor]:
        """The maps of all levels, by what is compiled."""
        return self._levels(self, images)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile what makes the maps of training, whose images have one size. At evaluation, where sizes differ, nothing is
        compiled."""
        self._levels = torch.compile(Detector.levels, *args, **kwargs)

    def forward(self, images: Tensor, targets: Sequence[Things] | None = None) -> Any:
        """The sum of the losses, or what is found where there are no targets."""
        maps = self.looked(images) if self.training else self.levels(images)
        with torch.autocast(images.device.type, enabled=False):
            named = {str(i): level.float() for i, level in enumerate(maps)}
            sizes = [tuple(images.shape[-2:])] * len(images)
            return self._found(images, named, sizes) if targets is None else self._lost(images, named, sizes, targets)

    def _proposed(self, images: Tensor, maps: Things, sizes: list[Any], targets: Sequence[Things] | None = None) -> Any:
        """Boxes in which something may be, and what is lost by them. For large things they have a level of their own."""
        last = str(len(maps) - 1)
        return self.rpn(ImageList(images, sizes), maps | {"coarser": coarser(maps[last])}, targets)

    def _found(self, images: Tensor, maps: Things, sizes: list[Any]) -> list[Things]:
        proposals, _ = self._proposed(images, maps, sizes)
        found, _ = self.roi_heads(maps, proposals, sizes)
        return list(found)

    def _lost(self, images: Tensor, maps: Things, sizes: list[Any], targets: Sequence[Things]) -> Tensor:
        """torchvision's parts tell losses in training alone; they drop nothing, so that the mode changes nothing else."""
        training = self.training
        self.rpn.train(), self.roi_heads.train()
        try:
            proposals, first = self._proposed(images, maps, sizes, targets)
            _, second = self.roi_heads(maps, proposals, sizes, [_placed(each) for each in targets])
        finally:
            self.rpn.train(training), self.roi_heads.train(training)
        return torch.stack([*first.values(), *second.values()]).sum()


def _placed(things: Things) -> Things:
    """With masks, if there are any, that torchvision reads where they lie."""
    return things | {"masks": halfway(things["masks"])} if "masks" in things else things


def proposing(levels: Sequence[int], channels: int) -> nn.Module:
    """Where something may be: torchvision's settings. It has one level more, twice as coarse as the last."""
    anchors = Anchors((*levels, 2 * levels[-1]))
    counts = {"training": 2000, "testing": 1000}
    head = RPNHead(channels, anchors.num_anchors_per_location()[0])
    return RegionProposalNetwork(anchors, head, 0.7, 0.3, 256, 0.5, counts, counts, 0.7)


def judging(levels: Sequence[int], channels: int, classes: int, masks: bool) -> nn.Module:
    """What it is, and its box and outline: torchvision's settings. Kind 0 is nothing."""
    hidden = WIDER * channels
    head, told = TwoMLPHead(channels * CELLS**2, hidden), FastRCNNPredictor(hidden, classes + 1)
    outlines: list[Any] = [None, None, None]
    if masks:
        drawn = MaskRCNNPredictor(channels, channels, classes + 1)
        outlines = [Pooler(levels, OUTLINE), MaskRCNNHeads(channels, (channels,) * 4, 1), drawn]
    return RoIHeads(Pooler(levels, CELLS), head, told, 0.5, 0.5, 512, 0.25, None, 0.05, 0.5, 100, *outlines)

"""Our ViT with a head that gives every pixel a class.

    model = Segmenter(ViT("tiny", encoding="mixed", size=(320, 320)), classes=21, head="pyramid")
    logits = model(images)                    # (B 21 *sizes)
    logits = model(image, size=(375, 500))    # of another size than the image that was looked at

Heads give logits on a grid, whose cells are squares of the image, side by side. Logits of pixels are interpolated between
the middles of the cells, so that whatever the size, places stay what they are.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ropewalk.encoding import Encoding, one_of
from ropewalk.lab.config import Config
from ropewalk.lab.dense.base import Dense
from ropewalk.lab.dense.levels import Levels
from ropewalk.lab.dense.origin import Origin, backbone_of
from ropewalk.lab.draws import seed_of
from ropewalk.models import ViT

HEADS = ("linear", "pyramid")
STREAM = 1011
"""Of the draws of a head's weights."""


class Segmenter(Dense):
    """A ViT and a head.

    head  "linear", a linear map of what is known of each patch, or "pyramid", which `Levels` is.
    """

    def __init__(self, backbone: ViT, classes: int, head: str = "linear") -> None:
        if backbone.axes != 2:
            raise ValueError(f"maps are of images, which have two axes, got a backbone of {backbone.axes}")
        super().__init__(backbone)
        width = backbone.norm.normalized_shape[0]
        linear = one_of("head", head, HEADS) == "linear"
        self.head = nn.Conv2d(width, classes, 1) if linear else Levels(width, classes)
        self.reset_head()

    def reset_head(self) -> None:
        """Draw the weights of the head: truncated normal of deviation 0.02 for the last map, which begins near zero."""
        for module in self.head.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.GroupNorm):
                module.reset_parameters()
        last = self.head if isinstance(self.head, nn.Conv2d) else self.head.last
        nn.init.trunc_normal_(last.weight, std=0.02)
        if last.bias is not None:
            nn.init.zeros_(last.bias)

    @property
    def patch(self) -> tuple[int, ...]:
        """The sides of a patch."""
        return self.backbone.patch

    def forward(
        self,
        images: Tensor,
        positions: Tensor | None = None,
        *,
        resolution: str | None = None,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """Logits (B classes *size) of images (B channels *sizes) of any sizes that patches divide, by default of their own.

        `positions` of the patches replace those of the encoding's grid, as in the ViT.
        """
        found = self.backbone.maps(images, positions, resolution=resolution or self.resolution)
        rows, columns = images.shape[2:] if size is None else size
        return F.interpolate(self.head(found).float(), (rows, columns), mode="bilinear", align_corners=False)

    def looked(self, images: Tensor) -> list[Tensor]:
        """The logits of images."""
        return [self(images)]

    def with_encoding(self, encoding: Encoding) -> "Segmenter":
        """The same model, sharing all weights, with another encoding."""
        other = copy.copy(self)
        other._modules = {**self._modules, "backbone": self.backbone.with_encoding(encoding)}
        return other


def segmenter_of(config: Config, size: tuple[int, ...], classes: int, origin: Origin | None = None) -> Segmenter:
    """The model of a run, the weights of its head drawn from the seed: the same for every encoding."""
    backbone = backbone_of(config, size, classes, origin)
    torch.manual_seed(seed_of(config.seed, STREAM))
    return Segmenter(backbone, classes, config.head or "linear")

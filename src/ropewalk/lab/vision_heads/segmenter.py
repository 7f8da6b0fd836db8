"""A ViT with a head that predicts a class for each pixel.

    model = ViTSegmenter(ViT("tiny", encoding="mixed", size=(320, 320)), classes=21, head="pyramid")
    logits = model(images)                    # (B 21 *sizes)
    logits = model(image, size=(375, 500))    # of another size than the image

Heads compute logits on a grid whose cells are squares of the image. Logits of pixels are interpolated between the centers of
cells, so that positions are kept whatever the size.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ropewalk.arguments import one_of
from ropewalk.encoding import Encoding
from ropewalk.lab.vision_heads.backbone import DenseModel
from ropewalk.models import ViT

# The multiscale head, like UPerNet's. A plain ViT has one scale: its map is made four and two times finer by transposed
# convolutions, and once coarser by a maximum. The coarsest level is concatenated with its means over 1, 4, 9 and 36 parts of
# the image. From there, each finer level gets what the coarser ones know, and all of them together, as fine as the finest,
# give the logits. Cells of all levels fill the image evenly, whatever its size, so that nothing shifts between levels.
POOL_BINS = (1, 2, 3, 6)
# Channels of every level.
HEAD_CHANNELS = 128


class MultiscaleHead(nn.Module):
    """Logits (B classes 4h 4w) of maps (B width h w)."""

    def __init__(self, width: int, classes: int, channels: int = HEAD_CHANNELS) -> None:
        super().__init__()
        fine = nn.ConvTranspose2d(width, width // 2, 2, 2)
        finest = nn.Sequential(nn.ConvTranspose2d(width, width // 2, 2, 2), nn.GELU())
        finest.append(nn.ConvTranspose2d(width // 2, width // 2, 2, 2))
        self.scales = nn.ModuleList([finest, fine, nn.Identity(), HalvingPool()])
        widths = (width // 2, width // 2, width, width)
        self.laterals = nn.ModuleList(conv_norm_gelu(each, channels, 1) for each in widths[:-1])
        self.parts = nn.ModuleList(conv_norm_gelu(width, channels, 1) for _ in POOL_BINS)
        self.whole = conv_norm_gelu(width + len(POOL_BINS) * channels, channels, 3)
        self.smooth = nn.ModuleList(conv_norm_gelu(channels, channels, 3) for _ in widths[:-1])
        self.fuse = conv_norm_gelu(len(widths) * channels, channels, 3)
        self.last = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        *fine, coarse = (scale(x) for scale in self.scales)
        levels = [self._pooled(coarse)]
        for lateral, level in zip(reversed(self.laterals), reversed(fine), strict=True):
            own = lateral(level)
            levels.append(own + resize_like(levels[-1], own))
        whole, *others = levels
        smooth = [whole, *(layer(level) for layer, level in zip(self.smooth, others, strict=True))]
        return self.last(self.fuse(torch.cat([resize_like(level, levels[-1]) for level in smooth], 1)))

    def _pooled(self, x: Tensor) -> Tensor:
        """A level that knows the means of parts of the image."""
        means = [part(F.adaptive_avg_pool2d(x, bins)) for part, bins in zip(self.parts, POOL_BINS, strict=True)]
        return self.whole(torch.cat([x, *(resize_like(mean, x) for mean in means)], 1))


class HalvingPool(nn.Module):
    """Half as many cells along each axis, each with the maximum of what it covers; of an odd number, they overlap."""

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_max_pool2d(x, [-(-side // 2) for side in x.shape[2:]])


def conv_norm_gelu(into: int, out: int, kernel: int) -> nn.Sequential:
    """A convolution that keeps the size, a norm, and a GELU."""
    made = nn.Conv2d(into, out, kernel, padding=kernel // 2, bias=False)
    # Not a batch norm: its statistics would depend on the other images of the batch.
    return nn.Sequential(made, nn.GroupNorm(1, out), nn.GELU())


def resize_like(x: Tensor, like: Tensor) -> Tensor:
    """A map with as many cells as another has, of the same image."""
    return F.interpolate(x, like.shape[2:], mode="bilinear", align_corners=False)


SEGMENTER_HEADS = ("linear", "pyramid")


class ViTSegmenter(DenseModel):
    """A ViT and a head.

    head  "linear", a linear map of the features of each patch, or "pyramid", a `MultiscaleHead`.
    """

    def __init__(self, backbone: ViT, classes: int, head: str = "linear") -> None:
        if backbone.axes != 2:
            raise ValueError(f"maps are of images, which have two axes, got a backbone of {backbone.axes}")
        super().__init__(backbone)
        width = backbone.norm.normalized_shape[0]
        linear = one_of("head", head, SEGMENTER_HEADS) == "linear"
        self.head = nn.Conv2d(width, classes, 1) if linear else MultiscaleHead(width, classes)
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

    def compiled_outputs(self, images: Tensor) -> list[Tensor]:
        """The logits of images."""
        return [self(images)]

    def with_encoding(self, encoding: Encoding) -> "ViTSegmenter":
        """The same model, sharing all weights, with another encoding."""
        other = copy.copy(self)
        other._modules = {**self._modules, "backbone": self.backbone.with_encoding(encoding)}
        return other

"""A head that looks at several scales, as UPerNet's: what is known of patches becomes a pyramid of four levels.

A plain ViT has one scale. Its map is made four and two times finer by transposed convolutions, and once coarser by a
maximum. The coarsest level learns of the whole: its means over 1, 4, 9 and 36 parts of the image are put beside it. From
there, each finer level gets what the coarser ones know, and all of them together, as fine as the finest, give the logits.

Levels meet as images of one place: cells of all of them fill the image evenly, whatever its size, so that nothing shifts.
Norms are over one image; there is none whose statistics other images move.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BINS = (1, 2, 3, 6)
CHANNELS = 128
"""Of all levels."""


class Levels(nn.Module):
    """Logits (B classes 4h 4w) of maps (B width h w)."""

    def __init__(self, width: int, classes: int, channels: int = CHANNELS) -> None:
        super().__init__()
        fine = nn.ConvTranspose2d(width, width // 2, 2, 2)
        finest = nn.Sequential(nn.ConvTranspose2d(width, width // 2, 2, 2), nn.GELU())
        finest.append(nn.ConvTranspose2d(width // 2, width // 2, 2, 2))
        self.scales = nn.ModuleList([finest, fine, nn.Identity(), Halves()])
        widths = (width // 2, width // 2, width, width)
        self.laterals = nn.ModuleList(layer(each, channels, 1) for each in widths[:-1])
        self.parts = nn.ModuleList(layer(width, channels, 1) for _ in BINS)
        self.whole = layer(width + len(BINS) * channels, channels, 3)
        self.smooth = nn.ModuleList(layer(channels, channels, 3) for _ in widths[:-1])
        self.fuse = layer(len(widths) * channels, channels, 3)
        self.last = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        *fine, coarse = (scale(x) for scale in self.scales)
        levels = [self._pooled(coarse)]
        for lateral, level in zip(reversed(self.laterals), reversed(fine), strict=True):
            own = lateral(level)
            levels.append(own + resized(levels[-1], own))
        whole, *others = levels
        smooth = [whole, *(layer(level) for layer, level in zip(self.smooth, others, strict=True))]
        return self.last(self.fuse(torch.cat([resized(level, levels[-1]) for level in smooth], 1)))

    def _pooled(self, x: Tensor) -> Tensor:
        """A level that knows the means of parts of the image."""
        means = [part(F.adaptive_avg_pool2d(x, bins)) for part, bins in zip(self.parts, BINS, strict=True)]
        return self.whole(torch.cat([x, *(resized(mean, x) for mean in means)], 1))


class Halves(nn.Module):
    """Half as many cells along each axis, each with the maximum of what it covers; of an odd number, they overlap."""

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_max_pool2d(x, [-(-side // 2) for side in x.shape[2:]])


def layer(into: int, out: int, kernel: int) -> nn.Sequential:
    """A convolution that keeps the size, a norm, and a bend."""
    made = nn.Conv2d(into, out, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(made, nn.GroupNorm(1, out), nn.GELU())


def resized(x: Tensor, like: Tensor) -> Tensor:
    """A map with as many cells as another has, of the same image."""
    return F.interpolate(x, like.shape[2:], mode="bilinear", align_corners=False)

"""Maps of four sizes from the last map of a plain transformer: the simple feature pyramid of ViTDet (arXiv 2203.16527)."""

import torch.nn.functional as F
from torch import Tensor, nn

MOST = 256
"""Channels of a level, or as many as the transformer has."""
FACTORS = (0.25, 0.5, 1.0, 2.0)
"""Strides of the levels, in patches."""


class Pyramid(nn.Module):
    """From a map (B width rows columns) to four of 256 channels, or `width`: 4 and 2 times as fine, as fine, half as fine.

    A level is made finer by transposed convolutions that cut a place in four, or coarser by the largest of four places; at
    an odd end by that of those that there are. So a place of a level covers its stride of pixels, whatever the size.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.channels = channels = min(width, MOST)
        half, quarter = max(width // 2, 1), max(width // 4, 1)
        finest = [_finer(width, half), Norm(half), nn.GELU(), _finer(half, quarter), _same(quarter, channels)]
        coarser = nn.MaxPool2d(2, ceil_mode=True)
        self.levels = nn.ModuleList(
            [
                nn.Sequential(*finest),
                nn.Sequential(_finer(width, half), _same(half, channels)),
                _same(width, channels),
                nn.Sequential(coarser, _same(width, channels)),
            ]
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        return [level(x) for level in self.levels]


def coarser(level: Tensor) -> Tensor:
    """A map half as fine as the last level, where proposals begin with boxes twice as large: the largest of four places."""
    return F.max_pool2d(level, 2, ceil_mode=True)


class Norm(nn.LayerNorm):
    """Over the channels of each place (B C rows columns)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


def strides(patch: int) -> tuple[int, ...]:
    """Pixels of a place of each level."""
    if patch % 4:
        raise ValueError(f"a pyramid cuts a patch in four along each axis: patch must be a multiple of 4, got {patch}")
    return tuple(int(patch * factor) for factor in FACTORS)


def _finer(before: int, after: int) -> nn.Module:
    return nn.ConvTranspose2d(before, after, 2, stride=2)


def _same(width: int, channels: int) -> nn.Sequential:
    """To the channels of the pyramid, and over neighbours."""
    one, over = nn.Conv2d(width, channels, 1, bias=False), nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    return nn.Sequential(one, Norm(channels), over, Norm(channels))

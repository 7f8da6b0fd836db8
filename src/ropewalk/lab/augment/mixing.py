"""Mixup and cutmix of neighbours: samples 2i and 2i + 1 of a batch get a part of each other, and of each other's label.

    x_a <- w x_a + (1 - w) x_b,   x_b <- w x_b + (1 - w) x_a,   targets alike with the mean of w

Mixup: w is one number, λ from Beta(α, α). Cutmix: w is 0 in a box and 1 outside, where the box has a share 1 - λ of the
image before it is cut off at the edges; targets count its pixels after that. The numbers are those of sample 2i.
"""

import torch
from torch import Tensor

from ropewalk.lab.augment.geometry import broadcast_along_axis, broadcast_per_sample
from ropewalk.lab.hash_random import draw_beta

MIX_DRAWS = 6
"""A coin, two numbers for λ, and the middle of a box of up to three axes."""


def mix_pairs(images: Tensor, targets: Tensor, u: Tensor, mixup: float, cutmix: float) -> tuple[Tensor, Tensor]:
    """Float images (B C …) and targets (B classes), mixed; u (B, NUMBERS). An α of 0 leaves that way out."""
    if len(images) % 2:
        raise ValueError(f"mixup and cutmix mix neighbours: the batch must be even, got {len(images)} samples")
    u = _share_draws(u)
    cut = u[:, 0] < (0.5 if mixup and cutmix else float(cutmix > 0))
    kept = draw_beta(u[:, 1], u[:, 2], torch.where(cut, cutmix, mixup))
    pixels = broadcast_per_sample(kept, images)
    if cutmix:
        outside = _cutmix_mask(1 - kept, u[:, 3:], images)
        pixels = torch.where(broadcast_per_sample(cut, images), outside, pixels)
        kept = torch.where(cut, outside.flatten(1).mean(1), kept)
    return _mix_with_neighbor(images, pixels), _mix_with_neighbor(targets, kept[:, None])


def _cutmix_mask(share: Tensor, u: Tensor, images: Tensor) -> Tensor:
    """1 outside a box and 0 inside, (B 1 …). The box's sides are all the same part of the image's, its middle is uniform."""
    axes = images.ndim - 2
    part, inside = share.double() ** (1 / axes), torch.ones((), dtype=torch.bool, device=u.device)
    for axis, n in enumerate(images.shape[2:]):
        middle, half = (u[:, axis, None] * n).long(), (part[:, None] * (n / 2)).long()
        away = torch.arange(n, device=u.device) - middle
        inside = inside & broadcast_along_axis((away >= -half) & (away < half), images, 2 + axis)
    return (~inside).float()


def _mix_with_neighbor(x: Tensor, kept: Tensor) -> Tensor:
    """x (B …) of which each sample keeps a part, and has the rest from its neighbour."""
    other = _as_pairs(x).flip(1).flatten(0, 1)
    return kept * x + (1 - kept) * other


def _share_draws(u: Tensor) -> Tensor:
    """Numbers (B, n) of which both neighbours have those of the first."""
    return _as_pairs(u)[:, :1].expand(-1, 2, -1).flatten(0, 1)


def _as_pairs(x: Tensor) -> Tensor:
    """x (B …) as (B/2, 2, …)."""
    return x.reshape(len(x) // 2, 2, *x.shape[1:])

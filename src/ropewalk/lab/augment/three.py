"""ThreeAugment of DeiT-III: greyscale, solarise or Gaussian blur, one of them for each sample."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.lab.augment.colour import grey, solarise
from ropewalk.lab.augment.samples import per_sample

SIGMA = (0.1, 2.0)
"""The least and the largest deviation of the blur, in pixels."""
RADIUS = 6
"""How far it reaches: three of the largest deviation."""


def blur(images: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur of deviation sigma (B,), cut off at RADIUS pixels or at the image's side, reflected at its edges."""
    for dim in (2, 3):
        n = images.shape[dim]
        radius = min(RADIUS, n - 1)
        weights = _gaussian(sigma, radius)
        ends = (0, 0, radius, radius) if dim == 2 else (radius, radius, 0, 0)
        padded = F.pad(images, ends, mode="reflect") if radius else images
        result = images * per_sample(weights[:, 0], images)
        for k in range(1, radius + 1):
            pair = padded.narrow(dim, radius - k, n) + padded.narrow(dim, radius + k, n)
            result = result + pair * per_sample(weights[:, k], images)
        images = result
    return images.clamp(max=1)  # weights sum to 1 but for a bit


def _gaussian(sigma: Tensor, radius: int) -> Tensor:
    """Weights (B, radius + 1) of the middle and of either side, in float64 and rounded."""
    away = torch.arange(radius + 1, device=sigma.device) / sigma.double()[:, None]
    weights = (-0.5 * away * away).exp()
    return (weights / (2 * weights.sum(1, keepdim=True) - 1)).float()


def three_augment(images: Tensor, u: Tensor) -> Tensor:
    """One of greyscale, solarise at one half and blur, equally likely; u (B, 2)."""
    choice = per_sample((u[:, 0] * 3).long(), images)
    blurred = blur(images, SIGMA[0] + u[:, 1] * (SIGMA[1] - SIGMA[0]))
    return torch.where(choice == 0, grey(images), torch.where(choice == 1, solarise(images, 0.5), blurred))

"""Colours of float images (B C H W) in [0, 1], C = 1 or 3, each sample by its own number.

Brightness, saturation, contrast and sharpness are blends with a poorer image: clamp(f x + (1 - f) poorer), which is black,
the grey image, the mean of the grey image, or a smoothed one. A factor f of 1 changes nothing, and one above 1 goes
away from the poorer image. An image of one channel is its own grey image.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.lab.augment.samples import per_sample

LUMA = (0.2989, 0.587, 0.114)


def blend(images: Tensor, poorer: Tensor | float, factor: Tensor) -> Tensor:
    """Towards or away from another image, by a factor (B,)."""
    factor = per_sample(factor, images)
    return (factor * images + (1 - factor) * poorer).clamp(0, 1)


def grey(images: Tensor) -> Tensor:
    """The brightness that is seen, (B 1 H W)."""
    if images.shape[1] == 1:
        return images
    return LUMA[0] * images[:, :1] + LUMA[1] * images[:, 1:2] + LUMA[2] * images[:, 2:]


def mean(images: Tensor) -> Tensor:
    """The mean of each channel, (B C 1 1). In float64, where the order of the sum does not show."""
    return images.mean((-2, -1), keepdim=True, dtype=torch.float64).float()


def smooth(images: Tensor) -> Tensor:
    """The mean of 3 x 3 pixels, of which the middle one counts five times; pixels at the edge stay."""
    if min(images.shape[-2:]) < 3:
        return images
    result = images.clone()
    inner = images[..., 1:-1, 1:-1]
    result[..., 1:-1, 1:-1] = F.avg_pool2d(images, 3, stride=1) * (9 / 13) + inner * (4 / 13)
    return result


def solarise(images: Tensor, threshold: float) -> Tensor:
    """The negative of what is at least as bright as the threshold."""
    return torch.where(images >= threshold, 1 - images, images)


def posterise(images: Tensor, bits: int) -> Tensor:
    """So many of the upper bits of each of the 256 levels."""
    step = 1 << (8 - bits)
    return ((images * 255).round() * (1 / step)).floor() * (step / 255)


def autocontrast(images: Tensor) -> Tensor:
    """Each channel stretched to [0, 1]; one that has not two of the 256 levels stays."""
    low, high = images.amin((-2, -1), keepdim=True), images.amax((-2, -1), keepdim=True)
    return torch.where(high - low > 0.5 / 255, (images - low) / (high - low), images)


def equalise(images: Tensor) -> Tensor:
    """Each channel with its 256 levels about equally common, by the rule of PIL.

    Level v becomes (s/2 + pixels below v) / s, where s is a 255th of the pixels below the highest level that occurs; both
    divisions are of whole numbers. A channel of too few pixels, s = 0, stays.
    """
    levels = (images * 255).round().long().flatten(2)
    counts = torch.zeros(*levels.shape[:2], 256, dtype=torch.int64, device=images.device)
    counts = counts.scatter_add(2, levels, torch.ones_like(levels))
    highest = (levels == levels.amax(2, keepdim=True)).sum(2, keepdim=True)
    step = (levels.shape[2] - highest) // 255
    table = (counts.cumsum(2) - counts + step // 2) // step.clamp(min=1)
    new = table.clamp(max=255).gather(2, levels).view(images.shape) * (1 / 255)
    return torch.where(step.unsqueeze(3) > 0, new, images)


def jitter(images: Tensor, u: Tensor, brightness: float, contrast: float, saturation: float) -> Tensor:
    """Brightness, contrast and saturation, each by a factor uniform in 1 ± its number, and not below zero; u (B, 3)."""
    images = blend(images, 0.0, _factor(u[:, 0], brightness))
    images = blend(images, mean(grey(images)), _factor(u[:, 1], contrast))
    return blend(images, grey(images), _factor(u[:, 2], saturation))


def _factor(u: Tensor, amount: float) -> Tensor:
    low = max(0.0, 1 - amount)
    return low + u * (1 + amount - low)

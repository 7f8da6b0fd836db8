"""Color operations on float images (B C H W) in [0, 1], C = 1 or 3, with parameters of its own for each sample."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.lab.augment.geometry import broadcast_per_sample

# Brightness, saturation, contrast and sharpness are blends with a poorer image: clamp(f x + (1 - f) poorer), which is black,
# the gray image, the mean of the gray image, or a smoothed one. A factor f of 1 changes nothing, and one above 1 goes away
# from the poorer image. An image of one channel is its own gray image.
LUMA_WEIGHTS = (0.2989, 0.587, 0.114)


def blend_images(images: Tensor, poorer: Tensor | float, factor: Tensor) -> Tensor:
    """Towards or away from another image, by a factor (B,)."""
    factor = broadcast_per_sample(factor, images)
    return (factor * images + (1 - factor) * poorer).clamp(0, 1)


def convert_to_gray(images: Tensor) -> Tensor:
    """The brightness that is seen, (B 1 H W)."""
    if images.shape[1] == 1:
        return images
    return LUMA_WEIGHTS[0] * images[:, :1] + LUMA_WEIGHTS[1] * images[:, 1:2] + LUMA_WEIGHTS[2] * images[:, 2:]


def mean_color(images: Tensor) -> Tensor:
    """The mean of each channel, (B C 1 1). In float64, where the order of the sum does not show."""
    return images.mean((-2, -1), keepdim=True, dtype=torch.float64).float()


def smooth_images(images: Tensor) -> Tensor:
    """The mean of 3 x 3 pixels, of which the middle one counts five times; pixels at the edge stay."""
    if min(images.shape[-2:]) < 3:
        return images
    result = images.clone()
    inner = images[..., 1:-1, 1:-1]
    result[..., 1:-1, 1:-1] = F.avg_pool2d(images, 3, stride=1) * (9 / 13) + inner * (4 / 13)
    return result


def solarize_images(images: Tensor, threshold: float) -> Tensor:
    """The negative of what is at least as bright as the threshold."""
    return torch.where(images >= threshold, 1 - images, images)


def posterize_images(images: Tensor, bits: int) -> Tensor:
    """So many of the upper bits of each of the 256 levels."""
    step = 1 << (8 - bits)
    return ((images * 255).round() * (1 / step)).floor() * (step / 255)


def autocontrast_images(images: Tensor) -> Tensor:
    """Each channel stretched to [0, 1]; one that has not two of the 256 levels stays."""
    low, high = images.amin((-2, -1), keepdim=True), images.amax((-2, -1), keepdim=True)
    return torch.where(high - low > 0.5 / 255, (images - low) / (high - low), images)


def equalize_images(images: Tensor) -> Tensor:
    """Each channel with its 256 levels about equally common, by the rule of PIL.

    Level v becomes (s/2 + pixels below v) / s, where s is a 255th of the pixels below the highest level that occurs; both
    divisions are of whole numbers. A channel of too few pixels, s = 0, stays.
    """
    # Integer arithmetic, as in PIL: rounding does not depend on the device.
    levels = (images * 255).round().long().flatten(2)
    counts = torch.zeros(*levels.shape[:2], 256, dtype=torch.int64, device=images.device)
    counts = counts.scatter_add(2, levels, torch.ones_like(levels))
    highest = (levels == levels.amax(2, keepdim=True)).sum(2, keepdim=True)
    step = (levels.shape[2] - highest) // 255
    table = (counts.cumsum(2) - counts + step // 2) // step.clamp(min=1)
    new = table.clamp(max=255).gather(2, levels).view(images.shape) * (1 / 255)
    return torch.where(step.unsqueeze(3) > 0, new, images)


def jitter_color(images: Tensor, u: Tensor, brightness: float, contrast: float, saturation: float) -> Tensor:
    """Brightness, contrast and saturation, each by a factor uniform in 1 ± its number, and not below zero; u (B, 3)."""
    images = blend_images(images, 0.0, _jitter_factor(u[:, 0], brightness))
    images = blend_images(images, mean_color(convert_to_gray(images)), _jitter_factor(u[:, 1], contrast))
    return blend_images(images, convert_to_gray(images), _jitter_factor(u[:, 2], saturation))


def _jitter_factor(u: Tensor, amount: float) -> Tensor:
    low = max(0.0, 1 - amount)
    return low + u * (1 + amount - low)


# ThreeAugment of DeiT-III: grayscale, solarize or Gaussian blur, one of them for each sample.

# The smallest and the largest standard deviation of the blur, in pixels.
BLUR_SIGMA = (0.1, 2.0)
# Radius of the kernel in pixels: three of the largest deviation.
BLUR_RADIUS = 6


def blur_images(images: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur of deviation sigma (B,), cut off at RADIUS pixels or at the image's side, reflected at its edges."""
    # A Gaussian is separable: one axis after the other.
    for dim in (2, 3):
        n = images.shape[dim]
        radius = min(BLUR_RADIUS, n - 1)
        weights = _gaussian_weights(sigma, radius)
        ends = (0, 0, radius, radius) if dim == 2 else (radius, radius, 0, 0)
        padded = F.pad(images, ends, mode="reflect") if radius else images
        result = images * broadcast_per_sample(weights[:, 0], images)
        for k in range(1, radius + 1):
            pair = padded.narrow(dim, radius - k, n) + padded.narrow(dim, radius + k, n)
            result = result + pair * broadcast_per_sample(weights[:, k], images)
        images = result
    return images.clamp(max=1)  # weights sum to 1 but for a bit


def _gaussian_weights(sigma: Tensor, radius: int) -> Tensor:
    """Weights (B, radius + 1) of the middle and of either side, in float64 and rounded."""
    away = torch.arange(radius + 1, device=sigma.device) / sigma.double()[:, None]
    weights = (-0.5 * away * away).exp()
    return (weights / (2 * weights.sum(1, keepdim=True) - 1)).float()


def apply_three_augment(images: Tensor, u: Tensor) -> Tensor:
    """One of grayscale, solarize at one half and blur, equally likely; u (B, 2)."""
    # All three are computed for all samples and one is kept, as in `rotate_quarter_turns`.
    choice = broadcast_per_sample((u[:, 0] * 3).long(), images)
    blurred = blur_images(images, BLUR_SIGMA[0] + u[:, 1] * (BLUR_SIGMA[1] - BLUR_SIGMA[0]))
    return torch.where(choice == 0, convert_to_gray(images), torch.where(choice == 1, solarize_images(images, 0.5), blurred))

"""Rotations in plain PyTorch: closed forms of a plane and of space, and for larger blocks scaling and squaring, whose
derivative needs no eigenvectors.

In space, A x = w × x turns by θ = |w| about w (Rodrigues): exp(A) = cos θ I + (sin θ / θ) A + ((1 - cos θ) / θ²) w wᵀ. Near
θ = 0, where this cannot be divided, its factors are power series in θ².
"""

import math

import torch
from torch import Tensor

from ropewalk.ops.layout import exactly, widened

SMALL, TERMS = 0.25, 9  # a series in s = θ² up to SMALL: what is left out is below 2^-53 of it


def expm_reference(skew: Tensor) -> Tensor:
    wide = widened(skew)
    if skew.shape[-1] in (2, 3):
        wide = (wide - wide.mT) / 2
        return (rotation_of_plane(wide[..., 1, 0]) if skew.shape[-1] == 2 else rotation_of_space(wide)).to(skew.dtype)
    # Expanded or permuted batches make matrix_exp raise; autocast would run its products in bfloat16.
    with exactly(skew):
        return torch.linalg.matrix_exp(wide.contiguous()).to(skew.dtype)


def rotation_of_plane(angle: Tensor) -> Tensor:
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, -sin], dim=-1), torch.stack([sin, cos], dim=-1)], dim=-2)


def rotation_of_space(skew: Tensor) -> Tensor:
    w = torch.stack([skew[..., 2, 1], skew[..., 0, 2], skew[..., 1, 0]], dim=-1)
    s = w.square().sum(-1)[..., None, None]
    small, near, far = near_and_far(s)
    cosine, sine = cosine_and_sine(s)
    versine = torch.where(small, series(near, 2), 2 * ((far / 2).sin() / far).square())
    one = torch.eye(3, dtype=skew.dtype, device=skew.device)
    return cosine * one + sine * skew + versine * (w.unsqueeze(-1) * w.unsqueeze(-2))


def cosine_and_sine(s: Tensor) -> tuple[Tensor, Tensor]:
    """cos θ and sin θ / θ of s = θ², smooth also at zero."""
    small, near, far = near_and_far(s)
    return torch.where(small, series(near, 0), far.cos()), torch.where(small, series(near, 1), far.sin() / far)


def near_and_far(s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where s = θ² is small, s there and 0 elsewhere, θ elsewhere and 1 there: neither side has an infinite derivative."""
    small = s < SMALL
    return small, torch.where(small, s, 0.0), torch.where(small, 1.0, s).sqrt()


def series(s: Tensor, skipped: int) -> Tensor:
    """The sum of (-s)^k / (2k + skipped)!: cos θ, sin θ / θ and (1 - cos θ) / θ² for s = θ² and 0, 1 and 2."""
    total = torch.zeros_like(s)
    for k in reversed(range(TERMS)):
        total = total * -s + 1 / math.factorial(2 * k + skipped)
    return total

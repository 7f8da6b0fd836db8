"""Rotations in plain PyTorch: the closed form of a plane, and for larger blocks scaling and squaring, whose derivative
needs no eigenvectors."""

import torch
from torch import Tensor


def expm_reference(skew: Tensor) -> Tensor:
    if skew.shape[-1] == 2:
        return rotation_of_plane((skew[..., 1, 0] - skew[..., 0, 1]) / 2)
    # Expanded or permuted batches make matrix_exp raise; autocast would run its products in bfloat16.
    with torch.autocast(skew.device.type, enabled=False):
        return torch.linalg.matrix_exp(skew.contiguous())


def rotation_of_plane(angle: Tensor) -> Tensor:
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, -sin], dim=-1), torch.stack([sin, cos], dim=-1)], dim=-2)

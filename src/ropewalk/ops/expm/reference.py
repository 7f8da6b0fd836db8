"""Rotations in plain PyTorch: the closed form of a plane, and for larger blocks scaling and squaring, whose derivative
needs no eigenvectors."""

import torch
from torch import Tensor

from ropewalk.ops.layout import exactly, widened


def expm_reference(skew: Tensor) -> Tensor:
    wide = widened(skew)
    if skew.shape[-1] == 2:
        return rotation_of_plane((wide[..., 1, 0] - wide[..., 0, 1]) / 2).to(skew.dtype)
    # Expanded or permuted batches make matrix_exp raise; autocast would run its products in bfloat16.
    with exactly(skew):
        return torch.linalg.matrix_exp(wide.contiguous()).to(skew.dtype)


def rotation_of_plane(angle: Tensor) -> Tensor:
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, -sin], dim=-1), torch.stack([sin, cos], dim=-1)], dim=-2)

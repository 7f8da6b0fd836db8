"""A change of basis in plain PyTorch: one matrix product for all tokens of a head."""

import torch
from torch import Tensor

from ropewalk.ops.layout import exactly, widened


def change_reference(x: Tensor, basis: Tensor) -> Tensor:
    basis = widened(basis)
    dtype = torch.promote_types(x.dtype, basis.dtype)
    with exactly(x):
        changed = x.to(dtype).unflatten(1, (basis.shape[0], -1)) @ basis[:, None].to(dtype)
    return changed.flatten(1, 2).to(x.dtype)

"""The exponential of small skew-symmetric matrices: rotations."""

import torch
from torch import Tensor

from ropewalk.ops.expm.reference import expm_reference

torch.library.define("ropewalk::expm", "(Tensor skew) -> Tensor")
torch.library.impl("ropewalk::expm", ("CompositeImplicitAutograd", "FuncTorchBatched"), expm_reference)


def expm(skew: Tensor) -> Tensor:
    """exp(A) for a batch of skew-symmetric A (... b b), differentiable also where A is zero or its spectrum repeats."""
    return torch.ops.ropewalk.expm(skew)

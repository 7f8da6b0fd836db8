"""The exponential of small skew-symmetric matrices: rotations."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.ops.expm.reference import expm_reference
from ropewalk.ops.fused import fits, late

LARGEST = 64
"""The largest block that the kernel takes; a block of 2 has a closed form, which compilers fuse."""

torch.library.define("ropewalk::expm", "(Tensor skew) -> Tensor")
torch.library.define("ropewalk::expm_fused", "(Tensor skew) -> Tensor")
torch.library.define("ropewalk::expm_back", "(Tensor grad, Tensor skew, Tensor rotation) -> Tensor")
for _name in ("expm_fused", "expm_back"):
    torch.library.impl(f"ropewalk::{_name}", "CUDA", late(_name))
    torch.library.register_fake(f"ropewalk::{_name}", lambda first, *rest: first.new_empty(first.shape))


def _expm(skew: Tensor) -> Tensor:
    fused = 2 < skew.shape[-1] <= LARGEST and fits([skew], [])
    return Exponential.apply(skew) if fused else expm_reference(skew)


torch.library.impl("ropewalk::expm", "CompositeImplicitAutograd", _expm)
torch.library.impl("ropewalk::expm", "FuncTorchBatched", expm_reference)


class Exponential(torch.autograd.Function):
    """The fused exponential with its derivative."""

    @staticmethod
    def forward(ctx: Any, skew: Tensor) -> Tensor:
        rotation = torch.ops.ropewalk.expm_fused(skew)
        ctx.save_for_backward(skew, rotation)
        return rotation

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.ops.ropewalk.expm_back(grad, *ctx.saved_tensors)


def expm(skew: Tensor) -> Tensor:
    """exp(A) for a batch of skew-symmetric A (... b b), differentiable also where A is zero or its spectrum repeats."""
    return torch.ops.ropewalk.expm(skew)

"""Rotations of triplets from one angle an axis."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.ops.fused import fits, late
from ropewalk.ops.sphere.reference import PLANES as PLANES
from ropewalk.ops.sphere.reference import sphere_reference

torch.library.define("ropewalk::sphere", "(Tensor angle) -> Tensor")
torch.library.define("ropewalk::sphere_fused", "(Tensor angle) -> Tensor")
torch.library.define("ropewalk::sphere_back", "(Tensor grad, Tensor angle) -> Tensor")
for _name in ("sphere_fused", "sphere_back"):
    torch.library.impl(f"ropewalk::{_name}", "CUDA", late(_name))
torch.library.register_fake("ropewalk::sphere_fused", lambda angle: angle.new_empty(*angle.shape[:-1], 3, 3))
torch.library.register_fake("ropewalk::sphere_back", lambda grad, angle: angle.new_empty(angle.shape))


def _sphere(angle: Tensor) -> Tensor:
    return Spherical.apply(angle) if angle.dtype is torch.float32 and fits([angle], []) else sphere_reference(angle)


torch.library.impl("ropewalk::sphere", "CompositeImplicitAutograd", _sphere)
torch.library.impl("ropewalk::sphere", "FuncTorchBatched", sphere_reference)


class Spherical(torch.autograd.Function):
    """The fused matrices with their derivative."""

    @staticmethod
    def forward(ctx: Any, angle: Tensor) -> Tensor:
        ctx.save_for_backward(angle)
        return torch.ops.ropewalk.sphere_fused(angle)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.ops.ropewalk.sphere_back(grad, *ctx.saved_tensors)


def sphere(angle: Tensor) -> Tensor:
    """The product of one plane rotation an axis, (... T 3 3), of angles (... T A), one to three axes, axis 0 acting first,
    in the planes of `PLANES`. Compilers fuse the plain formula.
    """
    return sphere_reference(angle) if torch.compiler.is_compiling() else torch.ops.ropewalk.sphere(angle)

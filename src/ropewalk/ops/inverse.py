"""The inverse of matrices of which it is known that they have one.

    Y = X⁻¹,    dY = -Y dX Y

Nobody looks whether X is singular: a GPU would have to be waited for. On a GPU it is one opaque op, and compilers leave it
out of CUDA graphs, since what computes it there may ask for memory of its own while a graph is captured.
"""

from typing import Any

import torch
from torch import Tensor

from ropewalk.ops.fused import transformed
from ropewalk.ops.layout import exactly

torch.library.define("ropewalk::inverse", "(Tensor matrix) -> Tensor")
torch.library.define("ropewalk::inverse_apart", "(Tensor matrix) -> Tensor", tags=[torch.Tag.cudagraph_unsafe])


def inverse_reference(matrix: Tensor) -> Tensor:
    """By the LU decomposition."""
    return torch.linalg.inv_ex(matrix).inverse


def _inverse(matrix: Tensor) -> Tensor:
    return Apart.apply(matrix) if matrix.is_cuda and not transformed() else inverse_reference(matrix)


torch.library.impl("ropewalk::inverse", "CompositeImplicitAutograd", _inverse)
torch.library.impl("ropewalk::inverse", "FuncTorchBatched", inverse_reference)
torch.library.impl("ropewalk::inverse_apart", ("CPU", "CUDA"), lambda matrix: inverse_reference(matrix).contiguous())
torch.library.register_fake("ropewalk::inverse_apart", lambda matrix: matrix.new_empty(matrix.shape))


class Apart(torch.autograd.Function):
    """The opaque inverse with its derivative, in which nothing is solved."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        inverted = torch.ops.ropewalk.inverse_apart(matrix)
        ctx.save_for_backward(inverted)
        return inverted

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (inverted,) = ctx.saved_tensors
        with exactly(grad):
            return -(inverted.mT @ grad @ inverted.mT)


def inverse(matrix: Tensor) -> Tensor:
    """The inverse of each of a batch of matrices (... n n), which must not be singular: numbers that are not finite come
    of those that are."""
    return torch.ops.ropewalk.inverse(matrix)

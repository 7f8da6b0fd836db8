"""Write vectors in another basis."""

import torch
from torch import Tensor

from ropewalk.ops.change.reference import change_reference

torch.library.define("ropewalk::change", "(Tensor x, Tensor basis) -> Tensor")
torch.library.impl("ropewalk::change", ("CompositeImplicitAutograd", "FuncTorchBatched"), change_reference)


def change(x: Tensor, basis: Tensor) -> Tensor:
    """The coordinates of x (B H N D) in a basis (h D D) whose vectors are columns, h dividing H: Uᵀ x for each vector."""
    return torch.ops.ropewalk.change(x, basis)

"""Reading small learned tables at many places: going back, a sum for each entry, where indexing sorts all places."""

from typing import Any

import torch
from torch import Tensor

FEW = 64
"""Entries of a head up to which each has a sum of its own."""


def read(table: Tensor, head: Tensor, index: Tensor) -> Tensor:
    """table[head, index] of a table (h, entries) with few entries, for rules of a `Bias`.

    Of many places at once, head (H 1 1) and index ([B] 1 n m), or of one, as flex attention asks. Only on GPUs indexing is
    the slower one of the two.
    """
    many = index.ndim and table.requires_grad and table.is_cuda and table.shape[1] <= FEW
    return Lookup.apply(table, head, index) if many else table[head, index]


class Lookup(torch.autograd.Function):
    """table[head, index]."""

    generate_vmap_rule = True

    @staticmethod
    def forward(table: Tensor, head: Tensor, index: Tensor) -> Tensor:
        return table[head, index]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        table, head, index = inputs
        ctx.save_for_backward(head, index)
        ctx.save_for_forward(head, index)
        ctx.shape = table.shape

    @staticmethod
    def jvp(ctx: Any, table: Tensor, head: None, index: None) -> Tensor:
        places: tuple[Tensor, Tensor] = ctx.saved_tensors
        return table[places]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        head, index = ctx.saved_tensors
        rows, entries = ctx.shape
        sums = [torch.where(index == i, grad, 0.0).sum((-2, -1)) for i in range(entries)]
        found = torch.stack(sums, -1).reshape(-1, grad.shape[-3], entries).sum(0)  # (H entries)
        return found.new_zeros(rows, entries).index_add(0, head.flatten(), found), None, None

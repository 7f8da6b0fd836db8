import math
from collections.abc import Iterator
from typing import Self, Unpack

import torch
from torch import Tensor

from ropewalk.arguments import not_negative
from ropewalk.encoding import Shape, Traits
from ropewalk.rotary import Exponentials


class LieRE(Exponentials):
    """LieRE: blocks of b channels turn by the exponential of learned skew-symmetric matrices, one an axis.

        R(p) = exp(p_1 A_1 + p_2 A_2 + …),    A_a = U - Uᵀ  with U strictly upper triangular and free

    The A_a of different axes are free, hence in general do not commute, and scores depend on more than differences of
    positions. With b = 2 everything commutes and it is mixed RoPE; with one axis it is RoPE with learned frequencies in a
    basis that the projections absorb. b = head_dim is the dense LieRE_64 of the paper.

    Beware: the start's fastest turn grows with b, across an image from 6 rad at b = 2 to 20 at b = 8 and 130 at b = 64,
    where neighbours of 14 patches lie 10 rad apart; `scale` undoes that. In the published code all layers use the matrices
    of layer 0, whatever its flags say; here each layer has its own.

    block   b. Channels beyond the last whole block stay unturned.
    scale   Entries of U start from U(0, 2 pi scale). With 0 it starts as no encoding at all and U still gets its gradient.
    shared  One set of matrices for all heads.
    """

    name = "liere"
    paper = "arXiv:2406.10322"
    default_axes = 2
    variants = {"ostmeier": {"coordinates": "unit"}}

    upper: Tensor

    def __init__(self, *, block: int = 8, scale: float = 1.0, shared: bool = False, **shape: Unpack[Shape]) -> None:
        super().__init__(block=block, shared=shared, **shape)
        self.scale = not_negative("scale", scale)
        self.build(learned=True)

    def initial(self) -> dict[str, Tensor]:
        free, groups = self.block * (self.block - 1) // 2, self.head_dim // self.block
        draw = torch.rand(*self.lead(shared=self.shared), self.axes, groups, free, dtype=torch.float64, device="cpu")
        return {"upper": 2 * math.pi * self.scale * draw}

    def blocks(self) -> Tensor:
        row, column = torch.triu_indices(self.block, self.block, 1, device=self.upper.device)
        matrix = self.upper.new_zeros(*self.upper.shape[:-1], self.block, self.block)
        matrix[..., row, column] = self.upper
        return matrix - matrix.mT

    @property
    def traits(self) -> Traits:
        commute = self.block == 2 or self.axes == 1
        return Traits(
            axes=self.axes,
            relative=(commute,) * self.axes,
            rotary=True,
            learned=True,
            oblique=self.axes > 1,
            reach=self.reach,
            rounding=self.rounding,
        )

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2, block=4, size=(3, 5))
        yield cls(head_dim=13, heads=4, kv_heads=2, block=6, layers=2, size=(3, 5))
        yield cls(head_dim=12, heads=2, block=12, axes=3, scale=0.1, shared=True)
        yield cls(head_dim=12, heads=2, block=2, size=(3, 5))

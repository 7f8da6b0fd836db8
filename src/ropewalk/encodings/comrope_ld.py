from collections.abc import Iterator
from typing import Self, Unpack

from torch import Tensor

from ropewalk.arguments import not_negative
from ropewalk.encoding import Shape, Traits
from ropewalk.rotary import Exponentials, gaussian


class ComRoPELD(Exponentials):
    """ComRoPE with linearly dependent generators: a block turns by one learned rotation, at a learned pace for each axis.

        R(p) = exp(p_1 A_1 + p_2 A_2 + …),    block j of A_a = θ_aj (P_j - P_jᵀ)

    The generators of different axes are multiples of each other, hence commute, and scores depend on differences of
    positions alone. In the basis that diagonalises its blocks this is mixed RoPE in which the b/2 pairs of a block share
    one direction.

    Beware: a larger block means fewer directions, not more: of 64 channels, 32 with b = 2 and 8 with b = 8. The paper's
    class token stands at the image's centre and is turned like every other: give it that position, no prefix.

    variant
      yu       the paper: θ belongs to a head.
      yu-code  the published file: one θ for all heads, so that all of them look along the same few directions.
    block    b, even for use: an odd block leaves one of its directions unturned.
    std      P starts Gaussian of this deviation, the published code's 1 by default; θ of deviation 1. With 0 it starts as
             no encoding at all and P still gets its gradient.
    shared   One P for all heads.
    """

    name = "comrope-ld"
    paper = "arXiv:2506.03737"
    default_axes = 2
    variants = {"yu": {"coordinates": "centre"}, "yu-code": {"coordinates": "centre"}}

    matrix: Tensor
    theta: Tensor

    def __init__(
        self,
        *,
        std: float = 1.0,
        block: int = 8,
        shared: bool = False,
        **shape: Unpack[Shape],
    ) -> None:
        super().__init__(block=block, shared=shared, **shape)
        self.std = not_negative("std", std)
        if shared and self.variant == "yu-code":
            raise ValueError("variant yu-code has one theta for all heads and a P for each: shared=True goes with yu")
        self.build(learned=True)

    def initial(self) -> dict[str, Tensor]:
        groups = self.head_dim // self.block
        matrix = (*self.lead(shared=self.shared), groups, self.block, self.block)
        theta = (*self.lead(shared=self.shared or self.variant == "yu-code"), self.axes, groups)
        return {"matrix": gaussian(self.std, matrix), "theta": gaussian(1.0, theta)}

    def blocks(self) -> Tensor:
        skew = self.matrix - self.matrix.mT  # ([L] h G b b)
        return self.theta[..., None, None] * skew.unsqueeze(-4)

    @property
    def traits(self) -> Traits:
        return Traits(
            axes=self.axes,
            relative=(True,) * self.axes,
            rotary=True,
            learned=True,
            oblique=self.axes > 1,
            reach=self.reach,
            rounding=self.rounding,
        )

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2, block=4, size=(3, 5))
        yield cls(head_dim=13, heads=4, kv_heads=2, block=6, layers=2, size=(3, 5), variant="yu-code")
        yield cls(head_dim=12, heads=2, block=2, axes=3, std=0.0, shared=True)

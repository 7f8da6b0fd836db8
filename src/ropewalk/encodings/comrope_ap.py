from collections.abc import Iterator
from typing import Self, Unpack

import torch
from torch import Tensor

from ropewalk.arguments import not_negative
from ropewalk.encoding import Shape, Traits
from ropewalk.rotary import Exponentials, gaussian


class ComRoPEAP(Exponentials):
    """ComRoPE with axial partition: blocks of b channels turn by a learned rotation, each block for one axis alone.

        R(p) = exp(p_1 A_1 + p_2 A_2 + …),    block j of A_a = P_j - P_jᵀ  if j ≡ a (mod A),  else 0

    No two axes share a block, so all generators commute and scores depend on differences of positions alone. In the basis
    that diagonalises its blocks this is learned axial RoPE: blocks add no expressivity, only another path to it.

    Beware: the paper's class token stands at the image's centre and is turned like every other: give it that position, no
    prefix. The default `std` turns about 6 rad across an image at b = 8; matrices of the size that the paper reports after
    training turn 0.7.

    block   b, even for use: an odd block leaves one of its directions unturned.
    std     P starts Gaussian of this deviation, the published code's 1 by default. 0 starts as no encoding at all.
    shared  One set of matrices for all heads.
    """

    name = "comrope-ap"
    paper = "arXiv:2506.03737"
    default_axes = 2
    variants = {"yu": {"coordinates": "centre"}}

    matrix: Tensor

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
        if self.head_dim < self.axes * block:
            wanted = f"head_dim of {self.axes * block} or more"
            raise ValueError(f"comrope-ap needs a block of {block} channels an axis, {wanted}, got {self.head_dim}")
        self.build(learned=True)

    def initial(self) -> dict[str, Tensor]:
        share = self.head_dim // (self.axes * self.block)
        shape = (*self.lead(shared=self.shared), share, self.axes, self.block, self.block)
        return {"matrix": gaussian(self.std, shape)}

    def blocks(self) -> Tensor:
        skew = self.matrix - self.matrix.mT  # ([L] h S A b b)
        own = torch.eye(self.axes, dtype=skew.dtype, device=skew.device)[:, None, :, None, None]
        return (own * skew.unsqueeze(-5)).flatten(-4, -3)  # ([L] h A (S A) b b)

    @property
    def traits(self) -> Traits:
        relative = (True,) * self.axes
        return Traits(axes=self.axes, relative=relative, rotary=True, learned=True, reach=self.reach, rounding=self.rounding)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2, block=3, size=(3, 5))
        yield cls(head_dim=18, heads=4, kv_heads=2, block=4, layers=2, size=(3, 5))
        yield cls(head_dim=12, heads=2, block=2, axes=3, std=0.0, shared=True)

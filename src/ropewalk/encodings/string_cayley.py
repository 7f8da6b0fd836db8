from collections.abc import Iterator
from dataclasses import replace
from typing import Self, Unpack

import torch
from torch import Tensor

from ropewalk import ops, spectra
from ropewalk.arguments import flag, not_negative, positive_number
from ropewalk.encoding import Traits
from ropewalk.rotary import BasedWaves, PairShape, gaussian


class StringCayley(BasedWaves):
    """Cayley-STRING: RoPE along learned wave vectors in a learned basis of each head.

        R(p) = Pᵀ RoPE(p) P,    P = (I - S)(I + S)⁻¹,    S skew-symmetric

    P is orthogonal whatever S is, so generators commute and scores are relative. In q·k one of the two P cancels: q and k,
    prefix tokens included, become P q and P k, then pairs turn. A P that fits any query and key projection adds nothing
    that the projections could not learn themselves: STRING is mixed RoPE in another basis, and folds into it.

    Beware: P is an inverse of size d for each head and layer and a product with every q and k in training; in inference it
    belongs into the projections, also because a captured CUDA graph may have no room for the inverse. With normalised
    queries and keys whose channels have gains of their own, it does not fold. The paper counts d²/2 numbers a head, one
    frequency a pair; with several axes this has one for each axis.

    base    Of the geometric law that wave vectors start from, as in mixed RoPE: 10.
    std     Deviation of S at the start; 0 starts as mixed RoPE itself.
    shared  One set for all heads.
    """

    name = "string-cayley"
    paper = "arXiv:2502.02562"
    default_axes = 2
    unscaled = ("skew",)

    wave: Tensor
    skew: Tensor

    def __init__(self, *, base: float = 10.0, std: float = 0.02, shared: bool = False, **shape: Unpack[PairShape]) -> None:
        super().__init__(**shape)
        self.base, self.std = positive_number("base", base), not_negative("std", std)
        self.shared = flag("shared", shared)
        if self.head_dim < 2:
            raise ValueError(f"string-cayley needs a pair of channels, got head_dim={self.head_dim}")
        self.build(learned=True)

    def initial(self) -> dict[str, Tensor]:
        lead, entries = self.lead(shared=self.shared), self.head_dim * (self.head_dim - 1) // 2
        waves = spectra.random_frames(lead, self.head_dim // 2, self.axes, self.base)
        return {"wave": waves.flip(-1), "skew": gaussian(self.std, (*lead, entries))}

    def waves(self) -> Tensor:
        return self.wave

    def basis(self) -> Tensor:
        """Pᵀ = (I - S)⁻¹(I + S) = 2 (I - S)⁻¹ - I: its columns are the vectors of the basis."""
        skew = self._skew()
        identity = torch.eye(self.head_dim, dtype=skew.dtype, device=skew.device)
        return 2 * ops.inverse(identity - skew) - identity

    def _skew(self) -> Tensor:
        row, column = torch.triu_indices(self.head_dim, self.head_dim, 1, device=self.skew.device)
        upper = self.skew.new_zeros(*self.skew.shape[:-1], self.head_dim, self.head_dim)
        upper[..., row, column] = self.skew
        return upper - upper.mT

    @property
    def traits(self) -> Traits:
        return replace(super().traits, oblique=self.axes > 1, rounding=16.0)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=7, heads=4, kv_heads=2, layers=2, axes=1, base=100.0)
        yield cls(head_dim=12, heads=2, axes=3, std=0.0, shared=True, interleaved=False)

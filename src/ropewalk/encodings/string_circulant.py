import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Self, Unpack

import torch
from torch import Tensor

from ropewalk.arguments import flag, not_negative
from ropewalk.encoding import Traits
from ropewalk.rotary import BasedWaves, PairShape, gaussian


class StringCirculant(BasedWaves):
    """Circulant-STRING: generators are circulant matrices less their transposes, one for each axis.

        R(p) = exp(p_1 L_1 + p_2 L_2 + …),    L_a = C_a - C_aᵀ,    C_a[i, j] = c_a[(i - j) mod d]

    All circulant matrices have the Fourier modes of the channels for eigenvectors, so they commute and scores are relative.
    In the Fourier basis, which is fixed, mode j turns by w_j · p with w_ja = 2 Σ_m c_a[m] sin(2πjm/d): mixed RoPE whose
    wave vectors are sine transforms of the coefficients. A basis that acts on q and k, prefix tokens included, and pairs
    that turn do what matrix exponentials would.

    Beware: mode 0, the sum of all channels, never turns, and for even d neither does mode d/2, the alternating sum: two
    channels of the Fourier basis, the first and the last, stay unturned whatever is learned. Of the d coefficients of an
    axis only the odd part c[m] - c[d-m] acts: half of them are redundant, and c[0] is without effect.

    std     Deviation of the coefficients at the start. 1 turns a mode by about √(2d) rad for one unit of position.
    shared  One set for all heads.
    """

    name = "string-circulant"
    paper = "arXiv:2502.02562"
    default_axes = 2
    unscaled = ("fourier",)

    coefficient: Tensor
    fourier: Tensor

    def __init__(self, *, std: float = 0.05, shared: bool = False, **shape: Unpack[PairShape]) -> None:
        super().__init__(**shape)
        self.std, self.shared = not_negative("std", std), flag("shared", shared)
        if self.head_dim < 3:
            raise ValueError(f"string-circulant needs a mode that turns, head_dim of 3 or more, got {self.head_dim}")
        self.build(learned=True, fixed=("fourier",))

    def initial(self) -> dict[str, Tensor]:
        shape = (*self.lead(shared=self.shared), self.axes, self.head_dim)
        return {"coefficient": gaussian(self.std, shape), "fourier": _fourier(self.head_dim, self.interleaved)[None]}

    def waves(self) -> Tensor:
        """Wave vectors of modes 1, 2, … below d/2: sine transforms, and no matrix product, which autocast would round."""
        pairs = (self.head_dim - 1) // 2
        sines = self.fourier[0, :, 1 : 2 * pairs : 2] if self.interleaved else self.fourier[0, :, pairs : 2 * pairs]
        return math.sqrt(2 * self.head_dim) * (self.coefficient.unsqueeze(-3) * sines.T.unsqueeze(-2)).sum(-1)

    def basis(self) -> Tensor:
        """The Fourier modes as columns: cosine and sine laid out as pairs are, then what stays unturned."""
        return self.fourier

    def summary(self) -> str:
        still = "modes 0 and d/2" if self.head_dim % 2 == 0 else "mode 0"
        return f"{super().summary()}: {still}"

    @property
    def traits(self) -> Traits:
        return replace(super().traits, oblique=self.axes > 1, rounding=16.0)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=7, heads=4, kv_heads=2, layers=2, axes=1)
        yield cls(head_dim=10, heads=2, axes=3, std=0.2, shared=True, interleaved=False)


def _fourier(d: int, interleaved: bool) -> Tensor:
    """Orthonormal columns (D D): cosines and sines of modes below d/2, then mode 0 and, if d is even, mode d/2."""
    channel = torch.arange(d, device="cpu")
    angle = (2 * math.pi / d) * (torch.arange(1, (d + 1) // 2, device="cpu")[:, None] * channel % d).double()
    waves = torch.stack([angle.cos(), angle.sin()], dim=1 if interleaved else 0).flatten(0, 1) * math.sqrt(2)
    still = torch.stack([torch.ones(d, device="cpu"), 1 - 2.0 * (channel % 2)])[: 1 if d % 2 else 2].double()
    return torch.cat([waves, still]).T / math.sqrt(d)

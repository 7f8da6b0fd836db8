import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Self, Unpack

import torch
from torch import Tensor

from ropewalk import spectra
from ropewalk.arguments import positive_number
from ropewalk.code import Rotation
from ropewalk.encoding import Traits
from ropewalk.rotary import PairShape, Waves


class XPos(Waves):
    """Extrapolatable RoPE: RoPE whose pairs also fade with the distance, the fast ones soonest.

        pair i of a query at m:  ζ_i^(m/scale_base) · rotation by m θ_i
        pair i of a key at n:    ζ_i^(-n/scale_base) · rotation by n θ_i,    ζ_i = (2i/d + gamma) / (1 + gamma)

    A score has the factor ζ_i^((m - n)/scale_base): below 1 for keys that lie behind. It is relative, but norms change.

    Beware: it is made for causal attention. Keys ahead of the query grow instead of fading. Gains are counted from
    position 0 and reach e^(±m ln(1/ζ_0)/scale_base), e^40 at m = 16,384 with the defaults: float16 overflows at about 4,000,
    and longer contexts want positions counted from their middle, which changes no score.

    base        Of the frequencies, 10,000.
    gamma       How slowly the fastest pair fades: 0.4, that is ζ_0 = 0.29.
    scale_base  The distance at which pair i has faded to ζ_i: 512.
    """

    name = "xpos"
    paper = "arXiv:2212.10554"
    allowed_axes = range(1, 2)
    unscaled = ("fade",)

    frequency: Tensor
    fade: Tensor

    def __init__(
        self, *, base: float = 10000.0, gamma: float = 0.4, scale_base: float = 512.0, **shape: Unpack[PairShape]
    ) -> None:
        super().__init__(**shape)
        self.base, self.gamma = positive_number("base", base), positive_number("gamma", gamma)
        self.scale_base = positive_number("scale_base", scale_base)
        if self.head_dim < 2:
            raise ValueError(f"xpos needs a pair of channels, got head_dim={self.head_dim}")
        self.build(learned=False)

    def initial(self) -> dict[str, Tensor]:
        pairs = self.head_dim // 2
        zeta = (torch.arange(pairs, dtype=torch.float64, device="cpu") / pairs + self.gamma) / (1 + self.gamma)
        return {"frequency": spectra.geometric(pairs, self.base)[None], "fade": zeta.log() / self.scale_base}

    def waves(self) -> Tensor:
        return self.frequency.unsqueeze(-1)

    def rotation(self, q: Tensor, k: Tensor | None) -> Rotation:
        return replace(super().rotation(q, k), q_gain=self._gain(q), k_gain=self._gain(-q if k is None else -k))

    def _gain(self, p: Tensor) -> Tensor:
        return self.per_layer((p * self.fade).exp().unsqueeze(-3))

    def generators(self) -> Tensor:
        """A (1 1 D D), or with layers (L 1 1 D D), with R(m) = exp(m A) for queries: skew-symmetric but for the fading."""
        turning = super().generators()
        pairs = self.fade.repeat_interleave(2) if self.interleaved else self.fade.repeat(2)
        channels = torch.nn.functional.pad(pairs, (0, self.head_dim - len(pairs)))
        return turning + torch.diag(channels)

    @property
    def traits(self) -> Traits:
        soonest = math.log((1 + self.gamma) / self.gamma) / self.scale_base
        return replace(super().traits, isometric=False, reach=min(40 / soonest, 1e6))

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=13, heads=4, kv_heads=2, layers=2, gamma=0.2, scale_base=64.0, interleaved=False)

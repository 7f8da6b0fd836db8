from collections.abc import Iterator
from dataclasses import replace
from typing import Self, Unpack

import torch.nn.functional as F
from torch import Tensor

from ropewalk import spectra
from ropewalk.arguments import not_negative, positive_number
from ropewalk.encoding import Traits
from ropewalk.rotary import PairShape, Waves


class Golden(Waves):
    """Golden-gate RoPE: fixed wave vectors whose directions follow the golden ratio, so that few of them cover all.

        angle of pair i of head h at p = ω_i (u_n · p),    n = hP + i,    ω_i = slowest · (fastest/slowest)^(i/(P-1))

    In two dimensions u_n points at the angle nπ/φ from the columns, φ the golden ratio; in more, u_n is the n-th point of
    the low-discrepancy sequence of the generalised golden ratio, mapped to the sphere by the normal distribution. The count
    runs on over the heads: no two pairs of a layer share a direction. It sees oblique directions, is relative along all
    axes, and learns nothing. Its author once called it uniform RoPE, which here is another encoding.

    Beware: heads differ, so a model needs `heads` as it was trained, and key heads must be those of `kv_heads`. Frequencies
    refer to an image of area 4 around zero; positions in patches would turn the fastest pair 20 rad a patch.

    fastest  Radians for one unit of position; 20 by default, 40 rad from side to side of a square image.
    slowest  The same for the slowest turning pair.
    still    The fraction of pairs that do not turn at all.
    """

    name = "golden"
    paper = "https://jerryxio.ng/posts/nd-rope"
    default_axes = 2
    variants = {"xiong": {"coordinates": "area"}}

    wave: Tensor

    def __init__(
        self, *, fastest: float = 20.0, slowest: float = 0.2, still: float = 0.0, **shape: Unpack[PairShape]
    ) -> None:
        super().__init__(**shape)
        self.fastest, self.slowest = positive_number("fastest", fastest), positive_number("slowest", slowest)
        self.still = not_negative("still", still)
        if self.slowest > self.fastest:
            raise ValueError(f"slowest must not exceed fastest, got {slowest} and {fastest}")
        if self.head_dim < 2:
            raise ValueError(f"golden needs a pair of channels, got head_dim={self.head_dim}")
        if round(self.still * (self.head_dim // 2)) >= self.head_dim // 2:
            raise ValueError(f"still must leave one of the {self.head_dim // 2} pairs to turn, got {still}")
        self.build(learned=False)

    def initial(self) -> dict[str, Tensor]:
        pairs = self.head_dim // 2
        turning = pairs - round(self.still * pairs)
        ramp = (self.fastest / self.slowest) ** spectra.linear(turning, 0, 1)
        frequency = F.pad(self.slowest * ramp, (pairs - turning, 0))
        directions = spectra.golden_directions(self.own_heads * pairs, self.axes).unflatten(0, (self.own_heads, pairs))
        return {"wave": frequency[:, None] * directions}

    def waves(self) -> Tensor:
        return self.wave

    @property
    def traits(self) -> Traits:
        return replace(super().traits, oblique=self.axes > 1, rounding=(self.axes + 1) / 2)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2, size=(3, 5))
        yield cls(head_dim=12, heads=4, kv_heads=2, layers=2, fastest=8.0, slowest=0.5, still=0.25, size=(3, 5))
        yield cls(head_dim=13, heads=2, axes=3, interleaved=False)

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self, Unpack

import torch
from torch import Tensor

from ropewalk.code import Bias
from ropewalk.encoding import Encoding, Shape, Traits


@dataclass(frozen=True)
class Distance:
    """The rule: minus the head's slope times the Euclidean distance."""

    def __call__(self, slope: Tensor, head: Tensor, query: list[Tensor], key: list[Tensor]) -> Tensor:
        if len(query) == 1:
            return -slope[head] * (query[0] - key[0]).abs()
        square = torch.zeros_like(query[0] - key[0])
        for q, k in zip(query, key, strict=True):
            square = square + (q - k) * (q - k)
        # The root has no derivative at 0; a token's distance to itself is to have the derivative 0.
        apart = square > 0
        return -slope[head] * torch.where(apart, torch.where(apart, square, 1.0).sqrt(), 0.0)


class ALiBi(Encoding):
    """Attention with linear biases: head h loses slope_h for each step between query and key.

        score += -slope_h |p_query - p_key|,    slope_h = 2^(-8h/H),  h = 1, …, H

    Scores depend on distances alone and fall with them. If H is no power of two, the slopes are those of the next lower
    power and then every other one of the next higher. In more than one dimension the distance is Euclidean, in the units
    of the positions (patches), as in CROMA.

    Slopes belong to query heads, also where keys are grouped: they touch no key.

    Beware: slopes are made for whole tokens or patches; on positions in [0, 1] the bias all but vanishes. It falls on both
    sides of the query, so a decoder still needs its causal mask, and a prefix, which loses nothing, beats every neighbour.
    """

    name = "alibi"
    paper = "arXiv:2108.12409"

    slope: Tensor

    def __init__(self, **shape: Unpack[Shape]) -> None:
        super().__init__(**shape)
        self.build(learned=False)

    def initial(self) -> dict[str, Tensor]:
        power = 2 ** math.floor(math.log2(self.heads))
        between = _slopes(2 * power)[::2]
        return {"slope": torch.cat([_slopes(power), between])[: self.heads]}

    def encode(self, q: Tensor, k: Tensor | None) -> Bias:
        table = self.per_layer(self.slope)
        return Bias(layers=self.layers, rule=Distance(), table=table, q_positions=q, k_positions=q if k is None else k)

    @property
    def traits(self) -> Traits:
        return Traits(axes=self.axes, relative=(True,) * self.axes, isotropic=True, monotone=True)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=12, heads=6, kv_heads=3, axes=2, layers=2)


def _slopes(heads: int) -> Tensor:
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1, dtype=torch.float64, device="cpu") / heads)

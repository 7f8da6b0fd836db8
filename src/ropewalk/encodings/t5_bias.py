import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self, Unpack

import torch
from torch import Tensor

from ropewalk.arguments import flag, positive
from ropewalk.code import Bias
from ropewalk.code.lookup import read
from ropewalk.encoding import Encoding, Shape, Traits


@dataclass(frozen=True)
class Bucket:
    """The rule: the head's entry for the bucket that the distance falls into."""

    buckets: int
    max_distance: int
    bidirectional: bool

    def __call__(self, table: Tensor, head: Tensor, query: list[Tensor], key: list[Tensor]) -> Tensor:
        return read(table, head, self.bucket(key[0] - query[0]))

    def bucket(self, ahead: Tensor) -> Tensor:
        """Near distances have a bucket each, far ones share by the logarithm, the last takes all beyond.

        In float32 whatever the positions are in: a distance on the edge of two buckets must fall where T5's does.
        """
        ahead = ahead.float()
        buckets = self.buckets // 2 if self.bidirectional else self.buckets
        side = (ahead >= 1).long() * buckets if self.bidirectional else 0
        distance = ahead.abs() if self.bidirectional else (-ahead).clamp(min=0)
        exact = buckets // 2
        ratio = torch.log(distance.clamp(min=exact) / exact) / math.log(self.max_distance / exact)
        far = exact + (ratio * (buckets - exact)).long().clamp(max=buckets - 1 - exact)
        return side + torch.where(distance < exact, distance.long(), far)


class T5Bias(Encoding):
    """T5's relative bias: each head adds a learned number that depends on the bucket of the distance.

        score += table_h[bucket(p_key - p_query)]

    Of 32 buckets half serve keys ahead of the query, half those behind; of each half, half hold one distance each and the
    rest widen with the logarithm up to `max_distance`, beyond which all keys look alike.

    Beware: T5 itself uses one table in all layers (an encoding made without `layers=`) and attention without the 1/√d
    (`attend(…, scale=1.0)`). Distances below 1 all share the bucket of distance 0: positions must count tokens.

    buckets        How many numbers a head learns: 32.
    max_distance   The distance from which on all keys share the last bucket: 128.
    bidirectional  False, for decoders: all buckets look back, and keys ahead share the bucket of distance 0.
    shared         One table for all heads.
    """

    name = "t5-bias"
    paper = "arXiv:1910.10683"
    allowed_axes = range(1, 2)

    table: Tensor

    def __init__(
        self,
        *,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        shared: bool = False,
        **shape: Unpack[Shape],
    ) -> None:
        super().__init__(**shape)
        self.buckets, self.max_distance = positive("buckets", buckets), positive("max_distance", max_distance)
        self.bidirectional, self.shared = flag("bidirectional", bidirectional), flag("shared", shared)
        whole = 4 if bidirectional else 2
        if buckets % whole:
            raise ValueError(f"buckets must be a multiple of {whole}, got {buckets}")
        if max_distance <= buckets // whole:
            raise ValueError(f"max_distance must exceed the {buckets // whole} exact buckets, got {max_distance}")
        self.rule = Bucket(buckets, max_distance, bidirectional)
        self.build(learned=True)

    def initial(self) -> dict[str, Tensor]:
        shape = (*self.lead(shared=self.shared), self.buckets)
        deviation = (self.heads * self.head_dim) ** -0.5
        return {"table": deviation * torch.randn(shape, dtype=torch.float64, device="cpu")}

    def encode(self, q: Tensor, k: Tensor | None) -> Bias:
        k = q if k is None else k
        return Bias(layers=self.layers, rule=self.rule, table=self.table.clone(), q_positions=q, k_positions=k)

    @property
    def traits(self) -> Traits:
        return Traits(axes=1, relative=(True,), learned=True)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=12, heads=4, kv_heads=2, layers=2, buckets=8, max_distance=20, bidirectional=False)

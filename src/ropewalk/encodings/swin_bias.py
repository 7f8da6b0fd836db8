import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self, Unpack

import torch
from torch import Tensor, nn

from ropewalk.arguments import flag, one_of
from ropewalk.code import Bias
from ropewalk.encoding import Encoding, Shape, Traits, table_size
from ropewalk.positions import readable


@dataclass(frozen=True)
class Lookup:
    """The rule: the head's table at the difference of the positions, linear between entries."""

    clamp: bool

    def __call__(self, table: Tensor, head: Tensor, query: list[Tensor], key: list[Tensor]) -> Tensor:
        places = [q - k + (n - 1) / 2 for q, k, n in zip(query, key, table.shape[1:], strict=True)]
        inside = [place.clamp(0, n - 1) for place, n in zip(places, table.shape[1:], strict=True)]
        near = [place.detach().floor() for place in inside]
        total = torch.zeros_like(inside[0])
        for corner in itertools.product((0, 1), repeat=len(inside)):
            weight, index = torch.ones_like(inside[0]), []
            for place, low, step, n in zip(inside, near, corner, table.shape[1:], strict=True):
                weight = weight * (place - low if step else 1 - (place - low))
                index.append((low + step).clamp(max=n - 1).long())
            total = total + weight * table[(head, *index)]
        if self.clamp:
            return total
        for place, n in zip(places, table.shape[1:], strict=True):
            total = torch.where((place > -1) & (place < n), total, math.nan)
        return total


class SwinBias(Encoding):
    """Swin's relative position bias: each head adds a learned number that depends on the distance along each axis.

        score += table_h[p_query - p_key]

    The table has an entry for every difference within the training grid or window, (2h - 1)(2w - 1) of them. Between
    entries it is linear, so that positions need not be whole and `grid(…, resolution="rescale")` reads it at another
    resolution.

    Beware: a larger grid has differences that no entry holds. From the size of the grid on they are by default an error,
    because the nearest entry was never trained for them; the last patch of a rescaled image may lie less than that beyond
    the outermost entry, which then holds for it. The table grows with the grid, not with the width: 2,187 numbers a layer
    for a 14 x 14 ViT with three heads. Attention gets a dense (H, N, M) bias. Swin uses it inside windows; shifted
    windows need a mask, which is yours.

    size         The training grid or window, one number an axis: needed.
    class_token  Prefix tokens get three learned numbers a head, as in BEiT: for a prefix query and a token, for a token's
                 query and a prefix key, and for two of the prefix.
    outside      For differences beyond the table: "error", or "clamp" to the nearest entry. In compiled code and on
                 accelerators, where values are not looked at, "error" gives NaN.
    """

    name = "swin-bias"
    paper = "arXiv:2103.14030"
    default_axes = 2

    table: Tensor
    prefix: Tensor

    def __init__(self, *, class_token: bool = False, outside: str = "error", **shape: Unpack[Shape]) -> None:
        super().__init__(**shape)
        self._sizes = table_size(self)
        self.class_token = flag("class_token", class_token)
        self.outside = one_of("outside", outside, ("error", "clamp"))
        self.rule = Lookup(clamp=self.outside == "clamp")
        self.build(learned=True)

    def initial(self) -> dict[str, Tensor]:
        shapes = {"table": tuple(2 * n - 1 for n in self._sizes)} | ({"prefix": (3,)} if self.class_token else {})
        return {name: self._draw(*self.lead(), *shape) for name, shape in shapes.items()}

    def _draw(self, *shape: int) -> Tensor:
        return nn.init.trunc_normal_(torch.empty(shape, dtype=torch.float64, device="cpu"), std=0.02)

    def encode(self, q: Tensor, k: Tensor | None) -> Bias:
        k = q if k is None else k
        if self.outside == "error" and readable(q) and readable(k):
            self._check(q, k)
        prefix = self.prefix.clone() if self.class_token else None
        return Bias(
            layers=self.layers,
            rule=self.rule,
            table=self.table.clone(),
            q_positions=q,
            k_positions=k,
            prefix=prefix,
            flexible=False,
        )

    def _check(self, q: Tensor, k: Tensor) -> None:
        if not (q.numel() and k.numel()):
            return
        apart = torch.maximum(q.amax(-2) - k.amin(-2), k.amax(-2) - q.amin(-2))  # ([B] A)
        farthest = apart.reshape(-1, self.axes).amax(0)
        if any(far >= n for far, n in zip(farthest.tolist(), self._sizes, strict=True)):
            far = ", ".join(f"{x:g}" for x in farthest.tolist())
            raise ValueError(f'positions must lie less than {self._sizes} apart (or outside="clamp"), got {far}')

    @property
    def traits(self) -> Traits:
        reach = math.inf if self.outside == "clamp" else (min(self._sizes) - 1) / 2
        relative = (True,) * self.axes
        return Traits(axes=self.axes, relative=relative, learned=True, reach=min(reach, 1e6), anchored=self.class_token)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2, size=(3, 5))
        yield cls(head_dim=12, heads=4, kv_heads=2, layers=2, size=(3, 5), class_token=True)
        yield cls(head_dim=12, heads=2, axes=3, size=(2, 3, 5), outside="clamp")

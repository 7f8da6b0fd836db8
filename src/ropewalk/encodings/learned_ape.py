import itertools
import math
from collections.abc import Iterator
from typing import Self, Unpack

import torch
from torch import Tensor, nn

from ropewalk.arguments import one_of, positive
from ropewalk.code import Offset
from ropewalk.encoding import Encoding, Shape, Traits, table_size
from ropewalk.positions import readable


class LearnedAPE(Encoding):
    """Learned absolute position embedding: a table of vectors, read at the position and added to the tokens.

        token at p += Σ_i weight(p - i) table[i],    i over the entries around p

    The table is a function on space: entry i of an axis holds for index i, and between entries it is interpolated, so that
    any position inside it has a value and another resolution needs no resized copy. Reading it on `grid(…,
    resolution="rescale")` gives what `F.interpolate(…, align_corners=False)` gives.

    Beware: it ends where its table ends. On a larger grid resolution="extrapolate" leaves it; "rescale", the default for
    images, interpolates it. The class token's own entry, which ViTs keep in the same table, is none: it would be another
    bias of that token.

    size           The training grid, one number an axis: needed.
    interpolation  "bilinear" or "bicubic" (a = -0.75, as PyTorch's), in every number of axes.
    outside        Beyond the outermost entries' cells, that is below -1/2 or above size - 1/2: "error", or "clamp" to
                   the nearest. In compiled code and on accelerators, where values are not looked at, "error" gives NaN.
    width          Channels of a token, by default heads · head_dim.
    """

    name = "learned-ape"
    paper = "arXiv:2010.11929"
    default_axes = 2

    table: Tensor

    def __init__(
        self,
        *,
        width: int | None = None,
        interpolation: str = "bilinear",
        outside: str = "error",
        **shape: Unpack[Shape],
    ) -> None:
        super().__init__(**shape)
        self._sizes = table_size(self)
        self.width = self.heads * self.head_dim if width is None else positive("width", width)
        self.interpolation = one_of("interpolation", interpolation, ("bilinear", "bicubic"))
        self.outside = one_of("outside", outside, ("error", "clamp"))
        self.build(learned=True)

    def initial(self) -> dict[str, Tensor]:
        table = torch.empty(*self._sizes, self.width, dtype=torch.float64, device="cpu")
        return {"table": nn.init.trunc_normal_(table, std=0.02)}

    def encode(self, q: Tensor, k: Tensor | None) -> Offset:
        return Offset(layers=self.layers, offset=self._read(self._inside(q)))

    def _read(self, p: Tensor) -> Tensor:
        """The interpolated table at p ([B] N A), every entry within reach weighed by the product over axes."""
        taps = [self._taps(p[..., axis], n) for axis, n in enumerate(self._sizes)]
        total = torch.zeros_like(p[..., :1])
        for chosen in itertools.product(range(taps[0][0].shape[-1]), repeat=self.axes):
            weight = torch.ones_like(p[..., 0])
            for (_, weights), tap in zip(taps, chosen, strict=True):
                weight = weight * weights[..., tap]
            index = [entries[..., tap] for (entries, _), tap in zip(taps, chosen, strict=True)]
            total = total + weight.unsqueeze(-1) * self.table[tuple(index)]
        return total

    def _taps(self, x: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Entries around x along one axis of n entries, and their weights; beyond the ends the last entry repeats."""
        first, last = (0, 1) if self.interpolation == "bilinear" else (-1, 2)
        near = x.detach().floor()
        entries = near.unsqueeze(-1) + torch.arange(first, last + 1, dtype=x.dtype, device=x.device)
        distance = (x.unsqueeze(-1) - entries).abs()
        weight = 1 - distance if self.interpolation == "bilinear" else _cubic(distance)
        return entries.clamp(0, n - 1).long(), weight

    def _inside(self, p: Tensor) -> Tensor:
        held = torch.stack([p[..., axis].clamp(-0.5, n - 0.5) for axis, n in enumerate(self._sizes)], dim=-1)
        if self.outside == "clamp":
            return held
        if readable(p) and (p != held).any():
            table = " x ".join(map(str, self._sizes))
            extremes = f"{p.min().item():g} to {p.max().item():g}"
            raise ValueError(f'positions must lie in the {table} table (or outside="clamp"), got {extremes}')
        return held + torch.where(p == held, 0.0, math.nan)

    @property
    def traits(self) -> Traits:
        return Traits(
            axes=self.axes, relative=(False,) * self.axes, learned=True, signed=False, reach=min(self._sizes) - 1.0
        )

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2, size=(3, 5))
        yield cls(head_dim=12, heads=2, size=(3, 5), interpolation="bicubic", outside="clamp", layers=2)
        yield cls(head_dim=12, heads=2, axes=1, size=(9,), width=7)


def _cubic(distance: Tensor, a: float = -0.75) -> Tensor:
    """Keys' cubic convolution kernel."""
    near = 1 - distance.square() * (a + 3 - (a + 2) * distance)
    far = a * (distance - 1) * (distance - 2).square()
    return torch.where(distance <= 1, near, torch.where(distance < 2, far, torch.zeros_like(far)))

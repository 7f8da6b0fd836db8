from collections.abc import Iterator
from typing import Self, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk import spectra
from ropewalk.arguments import positive, positive_number
from ropewalk.code import Offset
from ropewalk.encoding import Encoding, Shape, Traits


class SinCos(Encoding):
    """Sinusoidal position embedding: sines and cosines of the position at many frequencies, added to the tokens.

        sin(p_a ω_j), cos(p_a ω_j),    ω_j = base^(-j/F),  F = width / 2A frequencies for each of A axes

    The embedding at p + s is a linear map, a rotation, of the one at p; but it enters by addition, so scores depend on
    absolute positions. Channels that the axes cannot share equally get 0.

    Beware: its norm is √(width / 2) whatever the tokens' is, so embeddings that start small drown in it; the original scales
    them by √width. Across 14 patches, 72 % of the frequencies of base 10,000 turn by less than 1 rad.

    variant  The order of channels. All coincide in one dimension but for "vaswani".
      mae      axis by axis, columns first, sines then cosines (MAE, MoCo v3).
      timm     sines of all axes, rows first, then cosines of all axes (timm's build_sincos2d_pos_embed).
      vaswani  axis by axis, rows first, sine and cosine alternating. The default for one axis.
    base     Of the frequencies, 10,000.
    width    Channels of a token, by default heads · head_dim.
    """

    name = "sincos"
    paper = "arXiv:1706.03762"
    variants = {name: {"coordinates": "index"} for name in ("mae", "timm", "vaswani")}

    frequency: Tensor

    def __init__(self, *, base: float = 10000.0, width: int | None = None, **shape: Unpack[Shape]) -> None:
        axes = shape.get("axes")
        if shape.get("variant") is None and (axes is None or positive("axes", axes) == 1):
            shape["variant"] = "vaswani"
        super().__init__(**shape)
        self.base = positive_number("base", base)
        self.width = self.heads * self.head_dim if width is None else positive("width", width)
        if self.width < 2 * self.axes:
            raise ValueError(f"sincos needs 2 channels an axis, a width of {2 * self.axes} or more, got {self.width}")
        self.build(learned=False)

    def initial(self) -> dict[str, Tensor]:
        return {"frequency": spectra.geometric(self.width // (2 * self.axes), self.base)}

    def encode(self, q: Tensor, k: Tensor | None) -> Offset:
        angle = q.unsqueeze(-1) * self.frequency  # ([B] N A F)
        if self.variant == "mae":
            angle = angle.flip(-2)
        place = {"mae": -2, "timm": -3, "vaswani": -1}[self.variant]
        table = torch.stack([angle.sin(), angle.cos()], dim=place).flatten(-3)
        return Offset(layers=self.layers, offset=F.pad(table, (0, self.width - table.shape[-1])))

    @property
    def traits(self) -> Traits:
        return Traits(axes=self.axes, relative=(False,) * self.axes)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=12, heads=2, axes=2)
        yield cls(head_dim=12, heads=2, axes=2, variant="timm", base=100.0, layers=2)
        yield cls(head_dim=12, heads=2, axes=3, variant="vaswani", width=27)

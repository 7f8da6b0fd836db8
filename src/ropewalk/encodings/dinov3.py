import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Self, Unpack

import torch
from torch import Tensor

from ropewalk.arguments import positive_number
from ropewalk.code import Rotation
from ropewalk.encoding import Shape, Traits
from ropewalk.rotary import Waves, along_axes


class DINOv3(Waves):
    """The axial RoPE of DINOv3: patch centres in [-1, 1], periods from half an image side upwards.

        angle of pair (a, j) at p = 2π p_a / period_j,    period_j = base^(j/F),  F = d / 2A periods for each of A axes

    Rows come first, layout is half-split, class and register tokens stay unturned. Coordinates are normalised: another
    resolution is rescaled into [-1, 1] unless `size` says what to extrapolate from. In training DINOv3 stretches all
    coordinates by a random factor (`rw.positions.rescale`); `shift` and `jitter` are there too.

    Beware: pass no `size` to get what DINOv3 does at another resolution. Its periods are defined by float32 arithmetic, and
    so is the angle, 2π p first and then the division: for equality with timm's class bit for bit they are computed so
    here too. Published weights hold periods rounded to bfloat16, up to 0.2 % off, which timm does not load either.

    base        Of the periods: 100.
    min_period  With max_period, replaces the law: geometric from one to the other, both included.
    max_period  See min_period.
    """

    name = "dinov3"
    paper = "arXiv:2508.10104"
    default_axes = 2
    variants = {"standard": {"coordinates": "separate"}}

    period: Tensor

    def __init__(
        self,
        *,
        base: float | None = None,
        min_period: float | None = None,
        max_period: float | None = None,
        scale: float = 1.0,
        interleaved: bool = False,
        **shape: Unpack[Shape],
    ) -> None:
        super().__init__(scale=scale, interleaved=interleaved, **shape)
        ends = (min_period, max_period)
        if (None in ends) != (ends == (None, None)) or (base is not None and None not in ends):
            raise ValueError(f"give base, or min_period and max_period, got {base}, {min_period} and {max_period}")
        self.base = positive_number("base", 100.0 if base is None else base) if ends == (None, None) else None
        self.min_period = None if min_period is None else positive_number("min_period", min_period)
        self.max_period = None if max_period is None else positive_number("max_period", max_period)
        if self.min_period is not None and self.max_period is not None and self.min_period > self.max_period:
            raise ValueError(f"min_period must not exceed max_period, got {min_period} and {max_period}")
        if self.head_dim < 2 * self.axes:
            raise ValueError(f"dinov3 needs 2 channels an axis, head_dim of {2 * self.axes} or more, got {self.head_dim}")
        self.build(learned=False)

    def initial(self) -> dict[str, Tensor]:
        count = self.head_dim // (2 * self.axes)
        if self.base is not None:
            exponent = 2.0 * torch.arange(count, dtype=torch.float32, device="cpu") / (2 * count)
            return {"period": (self.base**exponent).double()}
        assert self.min_period is not None
        assert self.max_period is not None
        exponent = torch.linspace(0, 1, count, dtype=torch.float32, device="cpu")
        return {"period": (self.min_period * (self.max_period / self.min_period) ** exponent).double()}

    def start(self) -> dict[str, Tensor]:
        return {"period": self.initial()["period"] / self.scale}

    def waves(self) -> Tensor:
        return along_axes((2 * math.pi / self.period).expand(1, self.axes, -1))

    def rotation(self, q: Tensor, k: Tensor | None) -> Rotation:
        k_angle = None if k is None else self._angle(k)
        return Rotation(
            layers=self.layers,
            head_dim=self.head_dim,
            q_angle=self._angle(q),
            k_angle=k_angle,
            interleaved=self.interleaved,
        )

    def _angle(self, p: Tensor) -> Tensor:
        angle = 2 * math.pi * p[..., None, :, :, None] / self.period  # ([B] 1 N A F)
        return self.per_layer(angle.flatten(-2))

    @property
    def traits(self) -> Traits:
        return replace(super().traits, rounding=1.25)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=12, heads=4, kv_heads=2, layers=2, min_period=0.5, max_period=4.0, interleaved=True)
        yield cls(head_dim=20, heads=2, axes=3, base=30.0, coordinates="longer", size=(2, 3, 5))

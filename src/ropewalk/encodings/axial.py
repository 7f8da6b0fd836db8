import math
from collections.abc import Iterator
from typing import Self, Unpack

from torch import Tensor

from ropewalk import spectra
from ropewalk.arguments import flag, positive_number
from ropewalk.encoding import shares
from ropewalk.rotary import GridShape, GridWaves, along_axes


class Axial(GridWaves):
    """Axial RoPE: each axis gets an equal share of the pairs and is RoPE on them.

        angle of pair (a, j) at p = ω_j p_a,    ω_j = base^(-j/F),  F = d / 2A frequencies for each of A axes

    A score is a sum of one part for each axis, so that no head can look along a diagonal: attention patterns are grids.

    Beware: a law belongs to its coordinates. With one base, the fastest pair turns 13 rad across 14 patch indices and 1 rad
    across [0, 1], so take positions from `grid`. At a higher resolution indices reach angles that training never met, unless
    an `extension` slows them down.

    variant  Whose coordinates, base and order of pairs.
      heo           Heo et al.'s code: patch indices, base 100, first half columns, second half rows.
      heo-paper     the same with the paper's channel map: column and row pairs alternate.
      eva           EVA-02, timm's default: patch indices, base 10,000, rows first.
      van-de-geijn  [-pi, pi], ω_j = 100^(-2j/d), which ends at 100^(-1/A); learned ones start from U(0, 1).
      liere         the "VisionLLaMA" baseline of LieRE: [0, 1], e^(-4u) for u even in [0, 1]. Its fastest pair turns
                    1 rad across the image: it says little about axial RoPE.
      comrope       the vanilla RoPE of the ComRoPE paper: [0, 1], base 10,000, axes alternate; 1 rad across the image too.
    base     Replaces the variant's.
    learned  Frequencies are parameters, one set a head (or `shared`) and layer.
    """

    name = "axial"
    paper = "arXiv:2403.13298"
    default_axes = 2
    variants = {
        "heo": {"coordinates": "index", "base": 100.0, "over": "share", "columns_first": True, "alternating": False},
        "heo-paper": {"coordinates": "index", "base": 100.0, "over": "share", "columns_first": True, "alternating": True},
        "eva": {"coordinates": "index", "base": 1e4, "over": "share", "columns_first": False, "alternating": False},
        "van-de-geijn": {
            "coordinates": "pi", "base": 100.0, "over": "width", "columns_first": False, "alternating": False
        },
        "liere": {"coordinates": "unit", "base": math.e**4, "over": "ends", "columns_first": False, "alternating": False},
        "comrope": {"coordinates": "centre", "base": 1e4, "over": "share", "columns_first": False, "alternating": True},
    }  # fmt: skip

    frequency: Tensor

    def __init__(
        self,
        *,
        base: float | None = None,
        learned: bool = False,
        shared: bool = False,
        **shape: Unpack[GridShape],
    ) -> None:
        super().__init__(**shape)
        self.learned, self.shared = flag("learned", learned), shares(shared, learned)
        self.base = None if self._random else positive_number("base", self.setting("base") if base is None else base)
        if self._random and base is not None:
            raise ValueError(f"learned frequencies of variant {self.variant} are drawn from U(0, 1): no base, got {base}")
        if self.head_dim < 2 * self.axes:
            raise ValueError(f"axial needs 2 channels an axis, head_dim of {2 * self.axes} or more, got {self.head_dim}")
        self.build(learned=self.learned)

    def initial(self) -> dict[str, Tensor]:
        count = self.head_dim // (2 * self.axes)
        over = {"share": count, "width": self.head_dim / 2, "ends": max(count - 1, 1)}[self.setting("over")]
        lead = self.lead(shared=self.shared) if self.learned else (1,)
        if self.base is None:
            return {"frequency": spectra.first_quadrant(*lead, self.axes, count)}
        return {"frequency": spectra.geometric(count, self.base, over).repeat(*lead, self.axes, 1)}

    @property
    def _random(self) -> bool:
        return self.learned and self.variant == "van-de-geijn"

    def vectors(self) -> Tensor:
        order = {name: self.setting(name) for name in ("columns_first", "alternating")}
        return along_axes(self.frequency, **order)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=12, heads=2, variant="van-de-geijn", size=(3, 5), learned=True, layers=2)
        yield cls(head_dim=12, heads=2, variant="comrope", size=(3, 5), interleaved=False)
        yield cls(head_dim=20, heads=2, axes=3, variant="eva")
        yield cls(head_dim=12, heads=2, size=(3, 5), extension="ntk-aware", length=(6, 5))

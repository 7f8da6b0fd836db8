import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Self, Unpack

from torch import Tensor

from ropewalk import spectra
from ropewalk.arguments import flag, positive_number
from ropewalk.encoding import Traits
from ropewalk.rotary import GridShape, GridWaves


class Mixed(GridWaves):
    """RoPE-Mixed: every pair has a learned wave vector of its own and turns by its scalar product with the position.

        angle of pair t at p = w_t · p = w_t1 p_1 + w_t2 p_2 + …

    Pairs may look along any direction. Up to a change of basis, which the query and key projections absorb, this is the
    most general encoding whose scores depend on differences of positions alone.

    Beware: keep `wave` from weight decay, as Heo et al. do: a pair whose wave vector shrinks to zero sees no positions.
    Gains of single channels between projection and rotation (QK normalisation) let no change of basis be absorbed.

    variant  Whose coordinates and start.
      heo           patch indices; each head starts as axial RoPE of base 10 in a frame of its own, turned at random.
      van-de-geijn  [-pi, pi]; w from U(0, 1): all directions start in the first quadrant.
      liere         LieRE's baseline of this name: [0, 1]; w from U(0, 2 pi).
    base     Of the geometric law that "heo" starts from, 10 by default.
    shared   One set of wave vectors for all heads.
    """

    name = "mixed"
    paper = "arXiv:2403.13298"
    default_axes = 2
    variants = {
        "heo": {"coordinates": "index"},
        "van-de-geijn": {"coordinates": "pi"},
        "liere": {"coordinates": "unit"},
    }

    wave: Tensor

    def __init__(
        self,
        *,
        base: float | None = None,
        shared: bool = False,
        **shape: Unpack[GridShape],
    ) -> None:
        super().__init__(**shape)
        if self.variant != "heo" and base is not None:
            raise ValueError(f"variant {self.variant} starts from random wave vectors: it takes no base, got {base}")
        self.base = positive_number("base", 10.0 if base is None else base) if self.variant == "heo" else None
        self.shared = flag("shared", shared)
        if self.head_dim < 2:
            raise ValueError(f"mixed needs a pair of channels, got head_dim={self.head_dim}")
        self.build(learned=True)

    def initial(self) -> dict[str, Tensor]:
        lead, pairs = self.lead(shared=self.shared), self.head_dim // 2
        if self.base is not None:
            columns_first = spectra.random_frames(lead, pairs, self.axes, self.base)
            return {"wave": columns_first.flip(-1)}
        fastest = 1.0 if self.variant == "van-de-geijn" else 2 * math.pi
        return {"wave": fastest * spectra.first_quadrant(*lead, pairs, self.axes)}

    def vectors(self) -> Tensor:
        return self.wave

    @property
    def traits(self) -> Traits:
        traits = super().traits
        return replace(traits, oblique=self.axes > 1, rounding=max(traits.rounding, self.axes / 2))

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=12, heads=4, kv_heads=2, layers=2, variant="van-de-geijn", size=(3, 5))
        yield cls(head_dim=11, heads=2, axes=3, base=100.0, shared=True, interleaved=False)
        yield cls(head_dim=12, heads=2, scale=6.0, size=(3, 5), extension="yarn", length=(6, 9), layers=2)

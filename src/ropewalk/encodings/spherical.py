from collections.abc import Iterator
from typing import Self, Unpack

from torch import Tensor

from ropewalk import spectra
from ropewalk.arguments import flag, positive_number
from ropewalk.code import Code, Sphere
from ropewalk.encoding import Encoding, Shape, Traits, shares
from ropewalk.ops.sphere import PLANES


class Spherical(Encoding):
    """Spherical RoPE of arXiv 2511.08368: triplets of channels turn once for each axis, about different axes of space.

        S(p) = X_last(ω p_last) … X_0(ω p_0)        axis 0 turns (a, c), axis 1 (b, c), axis 2 (a, b); axis 0 acts first

    Rotations in space do not commute, so scores are not functions of differences of positions, except along the axis that
    acts last: S(p)ᵀ S(q) = X_0(-ω p_0) X_1(ω (q_1 - p_1)) X_0(ω q_0) for two axes. The paper calls the method
    not equivariant; it is so along every axis but the last, and weakly where ω is small.

    Beware: of two axes it is the columns that act last: moving all tokens to the side changes no score, moving them down
    does. A head width that 3 does not divide leaves channels unturned, one of 64; 48, 60, 63 and 96 leave none.

    variant  Whose frequencies, and what D in ω_j = 100^(-2j/D) is; both read [-pi, pi].
      van-de-geijn        the published code: the head width. Ends near 100^(-2/3).
      van-de-geijn-paper  the paper's appendix: the number of triplets. Ends near 100^(-2).
    base     Replaces the 100 of fixed frequencies.
    scale    Stretches all frequencies.
    learned  Frequencies are parameters, one an axis, triplet, head (or `shared`) and layer, from U(0, 1). Fixed, one serves
             all axes, heads and layers.

    Not the encoding of latitudes and longitudes of the same name (arXiv 2310.04454).
    """

    name = "spherical"
    paper = "arXiv:2511.08368"
    allowed_axes = range(1, 4)
    default_axes = 2
    variants = {"van-de-geijn": {"coordinates": "pi"}, "van-de-geijn-paper": {"coordinates": "pi"}}

    frequency: Tensor

    def __init__(
        self,
        *,
        base: float | None = None,
        learned: bool = False,
        shared: bool = False,
        scale: float = 1.0,
        **shape: Unpack[Shape],
    ) -> None:
        super().__init__(**shape)
        self.scale = positive_number("scale", scale)
        self.learned, self.shared = flag("learned", learned), shares(shared, learned)
        if learned and (base is not None or self.variant == "van-de-geijn-paper"):
            given = f"base={base}" if base is not None else f"variant={self.variant!r}"
            raise ValueError(f"learned frequencies are drawn from U(0, 1): no base or law of a paper, got {given}")
        self.base = None if learned else positive_number("base", 100.0 if base is None else base)
        if self.head_dim < 3:
            raise ValueError(f"{self.name} needs a triplet of channels, got head_dim={self.head_dim}")
        self.build(learned=self.learned)

    def initial(self) -> dict[str, Tensor]:
        count = self.head_dim // 3
        if self.base is None:
            lead = self.lead(shared=self.shared)
            return {"frequency": self.scale * spectra.first_quadrant(*lead, count, self.axes)}
        over = (count if self.variant == "van-de-geijn-paper" else self.head_dim) / 2
        frequency = self.scale * spectra.geometric(count, self.base, over)
        return {"frequency": frequency[None, :, None].repeat(1, 1, self.axes)}

    def encode(self, q: Tensor, k: Tensor | None) -> Code:
        k_angle = None if k is None else self._angle(k)
        return Sphere(layers=self.layers, head_dim=self.head_dim, q_angle=self._angle(q), k_angle=k_angle)

    def _angle(self, p: Tensor) -> Tensor:
        frequency = self.frequency if self.learned else self.per_layer(self.frequency)
        p, frequency = p[..., None, :, None, :], frequency.unsqueeze(-3)  # ([B] 1 N 1 A), ([L] h 1 T A)
        return p * (frequency.unsqueeze(1) if self.layers is not None and p.ndim == 5 else frequency)

    def generators(self) -> Tensor:
        """Skew-symmetric A ([L] h A D D), one an axis; traits say whether their turns act in order or as one exponential."""
        frequency = (self.frequency if self.learned else self.per_layer(self.frequency)).mT  # ([L] h A T)
        total = frequency.new_zeros(*frequency.shape[:-1], self.head_dim, self.head_dim)
        for axis, (first, second) in enumerate(PLANES[: self.axes]):
            for triplet in range(frequency.shape[-1]):
                i, j = 3 * triplet + first, 3 * triplet + second
                total[..., axis, j, i] = frequency[..., axis, triplet]
                total[..., axis, i, j] = -frequency[..., axis, triplet]
        return total

    @property
    def traits(self) -> Traits:
        relative = tuple(axis == self.axes - 1 for axis in range(self.axes))
        many = self.axes > 1
        return Traits(axes=self.axes, relative=relative, rotary=True, ordered=many, learned=self.learned, oblique=many)

    def summary(self) -> str:
        count, left = divmod(self.head_dim, 3)
        return f"{super().summary()}, {count} triplets" + (f", {left} channels unturned" if left else "")

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2, size=(3, 5))
        yield cls(head_dim=13, heads=4, kv_heads=2, learned=True, layers=2, size=(3, 5))
        yield cls(head_dim=12, heads=2, axes=3, variant="van-de-geijn-paper")
        yield cls(head_dim=12, heads=2, axes=1, base=10.0)

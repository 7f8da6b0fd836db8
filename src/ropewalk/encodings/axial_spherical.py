import math
from collections.abc import Iterator
from typing import Self, Unpack

import torch
from torch import Tensor

from ropewalk import spectra
from ropewalk.arguments import flag, integer, number, positive_number
from ropewalk.code import Turn
from ropewalk.encoding import Encoding, Shape, Traits
from ropewalk.ops.expm.reference import cosine_and_sine
from ropewalk.rotary import has_float64

BLOCK = 4


class AxialSpherical(Encoding):
    """Blocks of 4 channels between axial RoPE and symmetric spherical RoPE: one angle sets how far axes fail to commute.

        R(p) = exp(p_0 A_0 + p_1 A_1),    A_1 = ω (e1 ∧ e2),    A_0 = ω ((cos ε e3 + sin ε e2) ∧ e4)

    a ∧ b rotates a towards b. At ε = 0 the axes have planes of their own, and it is axial RoPE in another order of channels.
    At ε = 90° both planes contain e2, and it is `spherical-symmetric` on (e1, e2, e4). In between nothing else changes:
    along each axis alone the frequencies are the same for every ε, while [A_0, A_1] has norm √2 ω² sin ε. With c = cos ε,
    s = sin ε, a = ω p_1 and b = ω p_0, it multiplies quaternions, R(p) x = l x r:

        l = exp(½ (a + bc) i - ½ bs j)        r = exp(½ (a - bc) i + ½ bs j)

    If query and key at x and y both shift by m, the change of their score has the root mean square √(2 - 2 Re l' Re r')
    of the score's own, where l' = l(y + m)* l(x + m) l(x)* l(y), and r' likewise. To lowest order this is
    ω² sin ε |m × (y - x)| / √8.

    Beware: nobody has published results with it; it is made to ask what equivariance is worth. At 90° a quarter of the
    channels is idle, and along diagonals a block rotates by √2 in one plane where axial RoPE rotates two planes by 1 each.

    angle        ε in degrees, from 0 to 90.
    base         Frequencies are ω_j = base^(-j/F) for F blocks, as those of axial RoPE.
    frequencies  How many different frequencies there are; F by default. Fewer are spread evenly, in the logarithm, over the
                 same range, and each serves a run of blocks. A single one is the geometric mean of the range.
    rotary_dim   Rotate only this many leading channels, in F = rotary_dim // 4 blocks; all by default.
    scale        Stretches all frequencies.
    ordered      The product exp(p_1 A_1) exp(p_0 A_0), relative along the last axis; at 90° it is spherical RoPE.
    """

    name = "axial-spherical"
    paper = "arXiv:2511.08368"
    allowed_axes = range(2, 3)
    default_axes = 2

    frequency: Tensor

    def __init__(
        self,
        *,
        angle: float = 45.0,
        base: float = 100.0,
        frequencies: int | None = None,
        rotary_dim: int | None = None,
        scale: float = 1.0,
        ordered: bool = False,
        **shape: Unpack[Shape],
    ) -> None:
        super().__init__(**shape)
        self.angle = number("angle", angle, least=0.0, most=90.0)
        self.base, self.scale = positive_number("base", base), positive_number("scale", scale)
        self.ordered = flag("ordered", ordered)
        if self.head_dim < BLOCK:
            raise ValueError(f"axial-spherical needs a block of {BLOCK} channels, got head_dim={self.head_dim}")
        self.rotary_dim = None if rotary_dim is None else integer("rotary_dim", rotary_dim, least=BLOCK, most=self.head_dim)
        if (self.rotary_dim or 0) % BLOCK:
            raise ValueError(f"rotary_dim must be a multiple of {BLOCK} channels, got {rotary_dim}")
        most = self.blocks
        self.frequencies = None if frequencies is None else integer("frequencies", frequencies, least=1, most=most)
        self.build(learned=False)

    def initial(self) -> dict[str, Tensor]:
        law = spectra.geometric(self.blocks, self.base)
        return {"frequency": self.scale * spectra.thinned(law, self.frequencies or self.blocks)[None]}

    @property
    def blocks(self) -> int:
        """How many blocks turn."""
        return (self.rotary_dim or self.head_dim) // BLOCK

    @property
    def _tilt(self) -> tuple[float, float]:
        """cos ε and sin ε, exactly 0 and 1 at the ends."""
        return math.sin(math.radians(90.0 - self.angle)), math.sin(math.radians(self.angle))

    def encode(self, q: Tensor, k: Tensor | None) -> Turn:
        k_matrix = None if k is None else self._rotations(k)
        return Turn(layers=self.layers, head_dim=self.head_dim, q_matrix=self._rotations(q), k_matrix=k_matrix)

    def _rotations(self, p: Tensor) -> Tensor:
        """The matrices ([L] [B] h N G 4 4) of the blocks at p ([B] N 2), which all layers share.

        In float64 where the device has it: planes that do not mix share two quaternions, and a large angle of one would
        round a small one of the other.
        """
        wide = p.double() if has_float64(p.device.type) else p
        b, a = (wide[..., None, :, None, axis] * self.frequency.unsqueeze(-2) for axis in range(2))  # ([B] h N G)
        cos, sin = self._tilt
        if self.ordered:
            last = _exponentiate(a, torch.zeros_like(a))
            left = _multiply(last, _exponentiate(cos * b, -sin * b))
            right = _multiply(_exponentiate(-cos * b, sin * b), last)
        else:
            left, right = _exponentiate(a + cos * b, -sin * b), _exponentiate(a - cos * b, sin * b)
        return self.per_layer(_from_quaternions(left, right).to(p.dtype))

    def generators(self) -> Tensor:
        """Skew-symmetric A ([L] h A D D), one an axis; traits say whether they act in order or as one exponential."""
        frequency, (cos, sin) = self.per_layer(self.frequency), self._tilt
        total = frequency.new_zeros(*frequency.shape[:-1], 2, self.head_dim, self.head_dim)
        for block in range(frequency.shape[-1]):
            for axis, i, j, part in ((1, 0, 1, 1.0), (0, 2, 3, cos), (0, 1, 3, sin)):
                row, column = BLOCK * block + j, BLOCK * block + i
                total[..., axis, row, column] = part * frequency[..., block]
                total[..., axis, column, row] = -part * frequency[..., block]
        return total

    @property
    def traits(self) -> Traits:
        commute = self.angle == 0
        relative = (commute, commute or self.ordered)
        return Traits(axes=2, relative=relative, rotary=True, ordered=self.ordered, oblique=not commute)

    def summary(self) -> str:
        left = self.head_dim - BLOCK * self.blocks
        blocks = f"{super().summary()}, {self.blocks} blocks of {BLOCK} at {self.angle:g}°"
        return blocks + (f", {left} channels unturned" if left else "")

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2, size=(3, 5))
        yield cls(head_dim=14, heads=4, kv_heads=2, layers=2, angle=90.0, base=3.0, size=(3, 5))
        yield cls(head_dim=12, heads=2, angle=0.0, scale=0.5, frequencies=2)
        yield cls(head_dim=12, heads=2, angle=30.0, ordered=True, rotary_dim=8, size=(3, 5))


def _exponentiate(i: Tensor, j: Tensor) -> Tensor:
    """The unit quaternions (... 4) exp(½ (i, j, 0))."""
    i, j = i / 2, j / 2
    cosine, sine = cosine_and_sine(i * i + j * j)
    return torch.stack([cosine, sine * i, sine * j, torch.zeros_like(i)], dim=-1)


def _multiply(x: Tensor, y: Tensor) -> Tensor:
    """Hamilton's product of quaternions (... 4)."""
    return (_left(x) * y.unsqueeze(-2)).sum(-1)


def _from_quaternions(left: Tensor, right: Tensor) -> Tensor:
    """The matrix (... 4 4) of x -> l x r. No matrix product: autocast would round it to bfloat16."""
    return (_left(left).unsqueeze(-1) * _right(right).unsqueeze(-3)).sum(-2)


def _left(quaternion: Tensor) -> Tensor:
    """The matrix (... 4 4) of x -> l x."""
    w, x, y, z = quaternion.unbind(-1)
    return torch.stack([w, -x, -y, -z, x, w, -z, y, y, z, w, -x, z, -y, x, w], dim=-1).unflatten(-1, (4, 4))


def _right(quaternion: Tensor) -> Tensor:
    """The matrix (... 4 4) of x -> x r."""
    w, x, y, z = quaternion.unbind(-1)
    return torch.stack([w, -x, -y, -z, x, w, z, -y, y, -z, w, x, z, y, -x, w], dim=-1).unflatten(-1, (4, 4))

"""The families of rotary encodings that are exponentials, R(p) = exp(p_1 A_1 + p_2 A_2 + …) with A_i skew-symmetric.

`Waves`: pairs of channels, each with a wave vector w, turn by the angle w · p. Generators made of such pairs commute, hence
R(x)ᵀ R(y) = R(y - x): scores depend on differences of positions alone.

`BasedWaves`: the same after a change of basis, A_i = U W_i Uᵀ. Any commuting A_i are of this form.

`Exponentials`: blocks of b channels turn by the exponential itself. It is relative along all axes exactly if the blocks of
different axes commute.

Waves of images and volumes, which a rule of context extension slows down on larger grids than that of training.
"""

import functools
import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, Unpack

import torch
from torch import Tensor

from ropewalk import extension as extending
from ropewalk import ops
from ropewalk.arguments import flag, positive, positive_number, positives
from ropewalk.code import Basis, Chain, Code, Rotation, Turn
from ropewalk.encoding import Encoding, Shape, Traits
from ropewalk.ops.layout import check_sections, describe_layout, pair_channels
from ropewalk.positions import Resolution

PIECE = 2**18  # entries of exponentials at a time on a CPU


class PairShape(Shape, total=False):
    """What every encoding of pairs takes besides."""

    scale: float
    interleaved: bool


class Waves(Encoding):
    """Pairs of channels turn by the scalar product of a wave vector and the position.

    scale        Stretches all frequencies or wave vectors that `initial` names.
    interleaved  Pair i is channels (2i, 2i + 1) if True, (i, i + P) if False.
    """

    unscaled: ClassVar[tuple[str, ...]] = ()  # what `initial` names that is neither
    far: ClassVar[bool] = False  # whether places are so many that whole turns are to be taken off exactly

    def __init__(self, *, scale: float = 1.0, interleaved: bool = True, **shape: Unpack[Shape]) -> None:
        super().__init__(**shape)
        self.scale = positive_number("scale", scale)
        self.interleaved = flag("interleaved", interleaved)

    @abstractmethod
    def waves(self) -> Tensor:
        """Wave vectors ([L] h P A), in the order of the pairs; h is 1 where heads share, and no L where layers do."""

    def start(self) -> dict[str, Tensor]:
        return {name: value if name in self.unscaled else self.scale * value for name, value in self.initial().items()}

    @property
    def traits(self) -> Traits:
        learned = any(True for _ in self.parameters())
        return Traits(axes=self.axes, relative=(True,) * self.axes, rotary=True, learned=learned)

    def encode(self, q: Tensor, k: Tensor | None) -> Code:
        return self.rotation(q, k)

    def rotation(self, q: Tensor, k: Tensor | None) -> Rotation:
        """The rotation of the pairs for queries at q and keys at k."""
        waves = self._all_layers(self.waves())
        return Rotation(
            layers=self.layers,
            head_dim=self.head_dim,
            q_angle=self._angles(q, waves),
            k_angle=None if k is None else self._angles(k, waves),
            interleaved=self.interleaved,
            sections=self.parts,
        )

    def _angles(self, positions: Tensor, waves: Tensor) -> Tensor:
        """The angles ([L] [B] h N P) at these positions, up to whole turns.

        At a million places float32 rounds angles to a sixteenth of a radian. In float64 products of float32 numbers are
        exact; what is left without whole turns is small. Not all devices have it.
        """
        layered = self.layers is not None
        if not self.far or positions.dtype is torch.float64 or not has_float64(positions.device.type):
            return _combine(positions, waves, 1, layered)
        angle = _combine(positions.double(), waves, 1, layered)
        whole = (angle.detach() / (2 * math.pi)).round()
        return torch.sub(angle, whole, alpha=2 * math.pi).to(positions.dtype)

    def generators(self) -> Tensor:
        """Skew-symmetric A ([L] h A D D) with R(p) = exp(sum of p_a A_a)."""
        waves = self._all_layers(self.waves()).mT  # ([L] h A P)
        total = waves.new_zeros(*waves.shape[:-1], self.head_dim, self.head_dim)
        for pair, (i, j) in enumerate(pair_channels(waves.shape[-1], self.interleaved, self.parts)):
            total[..., i, j], total[..., j, i] = -waves[..., pair], waves[..., pair]
        return total

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        return self.waves().shape[-2]

    @property
    def parts(self) -> tuple[int, ...] | None:
        """Numbers of pairs whose channels are half-split by themselves; None if all are together."""
        return None

    def summary(self) -> str:
        left = self.head_dim - 2 * self.pairs
        layout = describe_layout(self.interleaved, self.parts)
        return f"{super().summary()}, {self.pairs} pairs, {layout}" + (f", {left} channels unturned" if left else "")

    def _all_layers(self, waves: Tensor) -> Tensor:
        return waves if self.layers is None or waves.ndim == 4 else self.per_layer(waves)


class BasedWaves(Waves):
    """Waves in a basis of their own: q and k of all tokens are written in it, then pairs of coordinates turn."""

    @abstractmethod
    def basis(self) -> Tensor:
        """Orthonormal vectors as columns, ([L] h D D); h is 1 where heads share, and no L where layers do."""

    def encode(self, q: Tensor, k: Tensor | None) -> Chain:
        basis = Basis(layers=self.layers, head_dim=self.head_dim, basis=self._all_layers(self.basis()))
        return Chain(layers=self.layers, codes=(basis, self.rotation(q, k)))

    def generators(self) -> Tensor:
        basis = self._all_layers(self.basis()).unsqueeze(-3)
        return basis @ super().generators() @ basis.mT


class Exponentials(Encoding):
    """Blocks of b channels turn by the exponential of skew-symmetric matrices weighted by the position.

    Blocks of 2 have a closed form and keep their promises as far as waves do. Larger ones go through repeated squaring,
    which loses up to 2^-21 of the angle turned: their reach is 16, that is 16 images in the coordinates of their papers.
    """

    def __init__(self, *, block: int = 8, shared: bool = False, **shape: Unpack[Shape]) -> None:
        super().__init__(**shape)
        self.block = positive("block", block)
        self.shared = flag("shared", shared)
        if not 2 <= block <= self.head_dim:
            raise ValueError(f"block must be from 2 to head_dim={self.head_dim}, got {block}")

    @abstractmethod
    def blocks(self) -> Tensor:
        """Skew-symmetric blocks ([L] h A G b b), one for each axis and group of b channels."""

    @property
    def reach(self) -> float:
        """The largest |position| for its traits."""
        return 1e6 if self.block == 2 else 16.0

    @property
    def rounding(self) -> float:
        """How far off its arithmetic may be, for its traits."""
        return 4.0

    def encode(self, q: Tensor, k: Tensor | None) -> Turn:
        blocks = self.blocks().movedim(-4, -1)  # ([L] h G b b A)
        layered = self.layers is not None
        return Turn(
            layers=self.layers,
            head_dim=self.head_dim,
            q_matrix=_exponentiate(q, blocks, layered),
            k_matrix=None if k is None else _exponentiate(k, blocks, layered),
        )

    def generators(self) -> Tensor:
        """Skew-symmetric A ([L] h A D D) with R(p) = exp(sum of p_a A_a)."""
        blocks = self.blocks()
        total = blocks.new_zeros(*blocks.shape[:-3], self.head_dim, self.head_dim)
        for group in range(blocks.shape[-3]):
            channels = slice(group * self.block, (group + 1) * self.block)
            total[..., channels, channels] = blocks[..., group, :, :]
        return total

    def summary(self) -> str:
        groups = self.blocks().shape[-3]
        left = self.head_dim - groups * self.block
        blocks = f"{super().summary()}, {groups} blocks of {self.block}"
        return blocks + (f", {left} channels unturned" if left else "")


def has_float64(kind: str) -> bool:
    """Whether a kind of device has it; Apple's and some others do not."""
    return kind in ("cpu", "cuda", "meta") or _tried(kind)


@functools.cache
def _tried(kind: str) -> bool:
    try:
        torch.zeros(1, device=kind).double()
    except (RuntimeError, TypeError):
        return False
    return True


def along_axes(frequency: Tensor, *, columns_first: bool = False, alternating: bool = False) -> Tensor:
    """Wave vectors ([L] h P A) along the axes, from frequencies ([L] h A F): P = A F pairs, F for each axis.

    An axis's pairs lie together, axis 0 first, or the axes alternate pair by pair; `columns_first` reverses the axes.
    """
    axes = frequency.shape[-2]
    along = frequency.unsqueeze(-1) * torch.eye(axes, dtype=frequency.dtype, device=frequency.device).unsqueeze(1)
    along = along.flip(-3) if columns_first else along
    return (along.transpose(-3, -2) if alternating else along).flatten(-3, -2)


def gaussian(std: float, shape: tuple[int, ...]) -> Tensor:
    """Normal deviates of mean 0, float64 on the CPU."""
    return std * torch.randn(shape, dtype=torch.float64, device="cpu")


def _combine(positions: Tensor, factors: Tensor, trailing: int, layered: bool) -> Tensor:
    """Sum over axes of position times factor: ([B] N A) and ([L] h *trailing A) to ([L] [B] h N *trailing).

    One product and one sum at a time, in the order of the axes: no matrix product, which autocast would round to
    bfloat16, and an error of at most 2^-23 of the sum of |p_a w_a| for two axes, half as much again for each more.
    """
    p = positions.unsqueeze(-3)[(..., *[None] * trailing, slice(None))]  # ([B] 1 N *1 A)
    f = factors.unsqueeze(-2 - trailing)  # ([L] h 1 *trailing A)
    if layered and positions.ndim == 3:
        f = f.unsqueeze(1)
    total = p[..., 0] * f[..., 0]
    for axis in range(1, positions.shape[-1]):
        total = total + p[..., axis] * f[..., axis]
    return total


def _exponentiate(positions: Tensor, blocks: Tensor, layered: bool) -> Tensor:
    """Rotations ([L] [B] h N G b b) at positions ([B] N A) by blocks ([L] h G b b A).

    PyTorch's exponential holds about a dozen times its result, so on a CPU positions are taken some at a time.
    """
    step = max(1, PIECE // max(1, blocks.numel() // blocks.shape[-1] * positions.shape[:-2].numel()))
    if positions.device.type != "cpu" or torch.compiler.is_compiling() or positions.shape[-2] <= step:
        return ops.expm(_combine(positions, blocks, 3, layered))
    parts = [ops.expm(_combine(some, blocks, 3, layered)) for some in positions.split(step, dim=-2)]
    return torch.cat(parts, dim=-4)


Extension = extending.AxesRule | Mapping[str, Any] | str


class GridShape(PairShape, total=False):
    """What every encoding of pairs of images and volumes takes besides."""

    extension: Extension | None
    length: Sequence[int] | None
    sections: Sequence[int] | None


class GridWaves(Waves):
    """Waves of images and volumes, slowed down along each axis on grids that are larger than `size`, that of training.

    extension  A rule for images larger than those of training, of `ropewalk.extension.AXES`: itself, its name, or a
               dictionary, {"rope_type": "yarn", …}. It counts turns across the training grid and needs `size`.
    length     The most patches that an image will have along each axis, on which the rule depends; `at(length)` sets it.
               Models set it to the size of each image.
    sections   Numbers of pairs that make all of them, with interleaved=False: channels are cut into sections of twice so
               many, one for each axis for example, and each is half-split by itself.

    With a rule, positions of larger images are extrapolated: rescaling besides would slow pairs down twice.
    """

    factor: float = 1.0  # what q and k are multiplied by without a rule, where an encoding has an option for it

    def __init__(
        self,
        *,
        extension: Extension | None = None,
        length: Sequence[int] | None = None,
        sections: Sequence[int] | None = None,
        **shape: Unpack[PairShape],
    ) -> None:
        super().__init__(**shape)
        self.sections = None if sections is None else positives("sections", sections)
        self.rule = extending.parse_axes(extension)
        self.length = None if length is None else self._sides(length)
        if self.rule is None and length is not None:
            raise ValueError(f"no rule here depends on the size of the image, got length={length} and {extension=}")
        if self.rule is not None and self.size is None:
            wanted = f"it needs the size of that, {self.axes} numbers"
            raise ValueError(f"a rule counts turns across the training grid: {wanted}, got size=None")
        self._extent = () if self.rule is None else self._edges()

    @abstractmethod
    def vectors(self) -> Tensor:
        """The wave vectors of training, as `waves` has them without a rule."""

    def waves(self) -> Tensor:
        if self.rule is None:
            return self.vectors()
        if self.length is None:
            raise ValueError(f"the rule of {self.extension} depends on the size of the image: use encoding.at(sizes)")
        return self.rule(self.vectors(), extent=self._extent, stretch=self._stretch).frequency

    def build(self, *, learned: bool, fixed: Collection[str] = ()) -> None:
        super().build(learned=learned, fixed=fixed)
        if self.sections is not None:  # counted once there are pairs
            check_sections(self.sections, self.pairs, self.interleaved)

    @property
    def parts(self) -> tuple[int, ...] | None:
        return self.sections

    @property
    def extension(self) -> dict[str, Any] | None:
        """The rule as a dictionary."""
        return None if self.rule is None else self.rule.spec()

    @property
    def own_resolution(self) -> Resolution | None:
        # super().own_resolution would be a property that compilers do not read
        return self.variants[self.variant].get("resolution") if self.rule is None else "extrapolate"

    @property
    def waiting(self) -> bool:
        return self.rule is not None and self.length is None

    def at(self, length: int | Sequence[int]) -> Self:
        """The encoding for images of up to so many patches along each axis, with the same parameters.

        Nothing else depends on the length, so that this copies references alone: models do it for each batch.
        """
        sides = self._sides([length] * (1 if self.rule else self.axes) if isinstance(length, int) else length)
        if self.rule is None:
            return self
        other = object.__new__(type(self))  # not copy.copy, which compilers do not trace
        other.__dict__.update(self.__dict__)
        other.__dict__.update(_parameters=dict(self._parameters), _buffers=dict(self._buffers), length=sides)
        return other

    def extended(self, extension: Extension, length: Sequence[int]) -> Self:
        """The encoding with this rule, for images of up to so many patches along each axis, with the same parameters."""
        options = {name: value for name, value in self.config().items() if name != "name"}
        with torch.random.fork_rng(devices=[]):  # what it draws at its start is not kept
            other = type(self)(**(options | {"extension": extension, "length": length}))
        other = other.to(self._tensors()[0]).train(self.training)
        for name, parameter in self.named_parameters():
            other.register_parameter(name, parameter)
        other._awaits_values = self._awaits_values
        return other

    def rotation(self, q: Tensor, k: Tensor | None) -> Rotation:
        return super().rotation(q, k).stretched(self._factor)

    @property
    def traits(self) -> Traits:
        rounding = 1.0 if self.rule is None else 4.0  # a rule computes in float32
        return replace(super().traits, isometric=self._factor == 1.0, rounding=rounding)

    @property
    def pairs(self) -> int:
        return self.vectors().shape[-2]

    def summary(self) -> str:
        return super().summary() + ("" if self._factor == 1.0 else f", q and k times {self._factor:.4g}")

    def _sides(self, length: Sequence[int]) -> tuple[int, ...]:
        sides = positives("length", length)
        if len(sides) != self.axes:
            raise ValueError(f"length must have one number for each of the {self.axes} axes, got {sides}")
        return sides

    @property
    def _stretch(self) -> tuple[float, ...]:
        """By how much an image is larger than those of training along each axis, 1 where it is not."""
        pairs = zip(self.length or (), self.size or (), strict=False)
        return tuple(max(1.0, n / old) for n, old in pairs)

    @property
    def _factor(self) -> float:
        """What stretches q and k."""
        return self.factor * (1.0 if self.rule is None else self.rule.attention(self._stretch))

    def _edges(self) -> tuple[float, ...]:
        """How far it is from edge to edge of an image of training along each axis: its patches times their distance."""
        found = []
        for axis, n in enumerate(size := self.size or ()):
            shape = (*size[:axis], max(n, 2), *size[axis + 1 :])
            lines = self.grid(*shape, resolution="extrapolate", dtype=torch.float64, device="cpu").unflatten(0, shape)
            places = lines[..., axis].movedim(axis, 0)
            found.append(n * (places[1] - places[0]).max().item())
        return tuple(found)

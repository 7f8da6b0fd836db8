"""Waves of images and volumes, which a rule of context extension slows down on larger grids than that of training."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, Unpack

import torch
from torch import Tensor

from ropewalk import extension as extending
from ropewalk.code import Rotation
from ropewalk.encoding import Traits, positives
from ropewalk.rotary import PairShape, Waves

Extension = extending.AxesRule | Mapping[str, Any] | str


class GridShape(PairShape, total=False):
    """What every encoding of pairs of images and volumes takes besides."""

    extension: Extension | None
    length: Sequence[int] | None


class GridWaves(Waves):
    """Waves of images and volumes, slowed down along each axis on grids that are larger than `size`, that of training.

    extension  A rule for images larger than those of training, of `ropewalk.extension.AXES`: itself, its name, or a
               dictionary, {"rope_type": "yarn", …}. It counts turns across the training grid and needs `size`.
    length     The most patches that an image will have along each axis, on which the rule depends; `at(length)` sets it.
    """

    def __init__(
        self,
        *,
        extension: Extension | None = None,
        length: Sequence[int] | None = None,
        **shape: Unpack[PairShape],
    ) -> None:
        super().__init__(**shape)
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

    @property
    def extension(self) -> dict[str, Any] | None:
        """The rule as a dictionary."""
        return None if self.rule is None else self.rule.spec()

    def at(self, length: int | Sequence[int]) -> Self:
        """The encoding for images of up to so many patches along each axis, with the same parameters."""
        sides = self._sides([length] * (1 if self.rule else self.axes) if isinstance(length, int) else length)
        return self if self.rule is None else self.extended(self.rule, sides)

    def extended(self, extension: Extension, length: Sequence[int]) -> Self:
        """The encoding with this rule, for images of up to so many patches along each axis, with the same parameters."""
        options = {name: value for name, value in self.config().items() if name != "name"}
        with torch.random.fork_rng(devices=[]):  # what it draws at its start is not kept
            other = type(self)(**(options | {"extension": extension, "length": length}))
        other = other.to(self._tensors()[0]).train(self.training)
        for name, parameter in self.named_parameters():
            other.register_parameter(name, parameter)
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
        return 1.0 if self.rule is None else self.rule.attention(self._stretch)

    def _edges(self) -> tuple[float, ...]:
        """How far it is from edge to edge of an image of training along each axis: its patches times their distance."""
        found = []
        for axis, n in enumerate(size := self.size or ()):
            shape = (*size[:axis], max(n, 2), *size[axis + 1 :])
            places = self.grid(*shape, dtype=torch.float64, device="cpu").unflatten(0, shape)[..., axis].movedim(axis, 0)
            found.append(n * (places[1] - places[0]).max().item())
        return tuple(found)

import math
from collections.abc import Iterator
from typing import Self, Unpack

from torch import Tensor

from ropewalk import spectra
from ropewalk.rotary import PairShape, Waves, along_axes


class Uniform(Waves):
    """Uniform RoPE of arXiv 2511.08368: axial RoPE in which all pairs of all axes turn at one frequency.

        angle of pair (a, j) at p = ω p_a

    With positions in [-pi, pi] and ω = 1 the turn is completed once across the image. It isolates what a spread of
    frequencies is worth. Elsewhere "uniform RoPE" also means evenly spread directions; that is another encoding.

    Beware: with ω = 1 the first and the last patch of an axis have the same code, for -pi and pi are one angle: 14 x 14
    places have 13 x 13 codes. On a larger image than in training a second turn begins.

    variant
      van-de-geijn       the paper's ω = 1.
      van-de-geijn-code  the published file's ω = 1/pi: a third of a turn across the image.
    """

    name = "uniform"
    paper = "arXiv:2511.08368"
    default_axes = 2
    variants = {
        "van-de-geijn": {"coordinates": "pi", "frequency": 1.0},
        "van-de-geijn-code": {"coordinates": "pi", "frequency": 1 / math.pi},
    }

    frequency: Tensor

    def __init__(self, **shape: Unpack[PairShape]) -> None:
        super().__init__(**shape)
        if self.head_dim < 2 * self.axes:
            raise ValueError(f"uniform needs 2 channels an axis, head_dim of {2 * self.axes} or more, got {self.head_dim}")
        self.build(learned=False)

    def initial(self) -> dict[str, Tensor]:
        count = self.head_dim // (2 * self.axes)
        frequency = spectra.uniform(count, self.setting("frequency"))
        return {"frequency": frequency.repeat(1, self.axes, 1)}

    def waves(self) -> Tensor:
        return along_axes(self.frequency)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2, size=(3, 5))
        yield cls(head_dim=14, heads=2, axes=3, variant="van-de-geijn-code", layers=2, interleaved=False)

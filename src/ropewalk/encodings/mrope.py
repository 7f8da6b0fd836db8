from collections.abc import Iterator, Sequence
from typing import Self, Unpack

import torch
from torch import Tensor

from ropewalk import spectra
from ropewalk.arguments import positive_number, positives
from ropewalk.encoding import Shape
from ropewalk.rotary import Waves


class MRoPE(Waves):
    """Multimodal RoPE: one RoPE whose pairs are dealt out to time, row and column.

        angle of pair i at p = base^(-2i/d) · p_axis(i)

    A text token stands at (m, m, m), where every pair turns as in plain RoPE; an image token has a time, a row and a
    column (`rw.positions.mrope` builds ids of both). The pairs of all axes together run through one law of frequencies:
    which pair belongs to which axis decides how fast each axis turns.

    Beware: dealt out in runs, time gets the fastest pairs and columns the slowest, so that no two axes see the same
    lengths; Qwen3-VL alternates for that reason. A checkpoint of one read with the other is right for text and wrong for
    images. Interleaved sections are limits, not counts: pairs 1, 4, 7, … below three times the section are rows,
    2, 5, 8, … columns, all others time; the repr has the counts.

    variant   Both number the rows and columns of any image from 0, without rescaling it.
      qwen2-vl  runs of 16, 24 and 24 of 64 pairs, base 10^6.
      qwen3-vl  alternating, sections of 24, 20 and 20, base 5 · 10^6.
    base      Replaces the variant's.
    sections  Pairs for time, row and column; by default the variant's, in proportion to the width.
    """

    name = "mrope"
    paper = "arXiv:2409.12191"
    allowed_axes = range(3, 4)
    default_axes = 3
    variants = {
        "qwen2-vl": {
            "coordinates": "index",
            "resolution": "extrapolate",
            "base": 1e6,
            "sections": (16, 24, 24),
            "alternating": False,
        },
        "qwen3-vl": {
            "coordinates": "index",
            "resolution": "extrapolate",
            "base": 5e6,
            "sections": (24, 20, 20),
            "alternating": True,
        },
    }

    wave: Tensor

    def __init__(
        self,
        *,
        base: float | None = None,
        sections: Sequence[int] | None = None,
        scale: float = 1.0,
        interleaved: bool = False,
        **shape: Unpack[Shape],
    ) -> None:
        super().__init__(scale=scale, interleaved=interleaved, **shape)
        self.base = positive_number("base", self.setting("base") if base is None else base)
        if self.head_dim < 6:
            raise ValueError(f"mrope needs a pair of channels for each of 3 axes, got head_dim={self.head_dim}")
        self.sections = self._proportional() if sections is None else positives("sections", sections)
        pairs, total = self.head_dim // 2, sum(self.sections)
        wrong = total > pairs if self.setting("alternating") else total != pairs
        if len(self.sections) != 3 or wrong:
            most = "at most " if self.setting("alternating") else ""
            raise ValueError(f"sections must be three numbers that make {most}{pairs} pairs, got {self.sections}")
        self.build(learned=False)

    def _proportional(self) -> tuple[int, ...]:
        pairs, (_, rows, columns) = self.head_dim // 2, self.setting("sections")
        rows, columns = (max(pairs * n // 64, 1) for n in (rows, columns))
        return pairs - rows - columns, rows, columns

    def initial(self) -> dict[str, Tensor]:
        along = torch.eye(3, dtype=torch.float64, device="cpu")[self._axes()]
        return {"wave": (spectra.geometric(self.head_dim // 2, self.base).unsqueeze(-1) * along)[None]}

    def waves(self) -> Tensor:
        return self.wave

    def _axes(self) -> list[int]:
        """The axis of each pair."""
        time, rows, columns = self.sections
        if not self.setting("alternating"):
            return [0] * time + [1] * rows + [2] * columns
        limits = (0, rows, columns)
        return [i % 3 if i // 3 < limits[i % 3] else 0 for i in range(self.head_dim // 2)]

    def summary(self) -> str:
        counts = [self._axes().count(axis) for axis in range(3)]
        return super().summary() + ", {} for time, {} for rows, {} for columns".format(*counts)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=16, heads=2)
        yield cls(head_dim=24, heads=4, kv_heads=2, layers=2, variant="qwen3-vl")
        yield cls(head_dim=18, heads=2, variant="qwen3-vl", sections=(2, 3, 3), base=100.0, interleaved=True)

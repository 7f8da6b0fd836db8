from collections.abc import Iterator
from typing import Self, Unpack

import torch.nn.functional as F
from torch import Tensor

from ropewalk import spectra
from ropewalk.encoding import Shape, flag, positive, positive_number, shares
from ropewalk.rotary import Waves


class RoPE(Waves):
    """Rotary position embedding: pair i of a query or key at place m turns by the angle m · base^(-2i/d).

        (R_m q)ᵀ (R_n k) = qᵀ R_{n-m} k

    Scores depend on the distance alone, norms are kept, and each pair looks at its own length scale, from 2 pi places to
    2 pi · base.

    Beware: the RoFormer paper's decay of scores with distance holds for q and k that start in phase, not in general. Beyond
    the length of training, pairs that never completed a turn meet angles they have not seen: it does not extrapolate well.

    base         LLaMA 1 and 2: 10,000; larger ones reach further.
    rotary_dim   Turn only this many leading channels, pairs counted and joined inside that width (GPT-J, GPT-NeoX).
    proportional Turn the fastest rotary_dim / 2 pairs of the whole width and leave the slower ones still
                 (transformers' "proportional"; p-RoPE).
    interleaved  False (transformers' LLaMA, GPT-NeoX): pair i is channels (i, i + d/2). True (Meta's LLaMA, GPT-J):
                 (2i, 2i + 1). A model trained with one must be run with the same one.
    learned      Frequencies are parameters, one set a head (or `shared`) and layer. This is all that LieRE can be in one
                 dimension.
    """

    name = "rope"
    paper = "arXiv:2104.09864"
    allowed_axes = range(1, 2)

    frequency: Tensor

    def __init__(
        self,
        *,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        proportional: bool = False,
        learned: bool = False,
        shared: bool = False,
        scale: float = 1.0,
        interleaved: bool = False,
        **shape: Unpack[Shape],
    ) -> None:
        super().__init__(scale=scale, interleaved=interleaved, **shape)
        self.base = positive_number("base", base)
        self.rotary_dim = self.head_dim // 2 * 2 if rotary_dim is None else positive("rotary_dim", rotary_dim)
        self.proportional = flag("proportional", proportional)
        self.learned, self.shared = flag("learned", learned), shares(shared, learned)
        if proportional and rotary_dim is None:
            raise ValueError("proportional says how to leave channels still: it needs a rotary_dim, got None")
        if self.rotary_dim % 2 or not 2 <= self.rotary_dim <= self.head_dim:
            raise ValueError(f"rotary_dim must be even and from 2 to head_dim={self.head_dim}, got {rotary_dim}")
        self.build(learned=self.learned)

    def initial(self) -> dict[str, Tensor]:
        turned = self.rotary_dim // 2
        width = self.head_dim // 2 if self.proportional else turned
        frequency = spectra.geometric(turned, self.base, over=width)
        return {"frequency": frequency.repeat(*self.lead(shared=self.shared), 1) if self.learned else frequency[None]}

    def waves(self) -> Tensor:
        still = self.head_dim // 2 - self.frequency.shape[-1] if self.proportional else 0
        return F.pad(self.frequency, (0, still)).unsqueeze(-1)

    def summary(self) -> str:
        still = self.head_dim // 2 - self.rotary_dim // 2
        return super().summary() + (f", the slowest {still} still" if self.proportional and still else "")

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=12, heads=2, base=500.0, interleaved=True)
        yield cls(head_dim=12, heads=4, kv_heads=2, rotary_dim=8, learned=True, layers=2)
        yield cls(head_dim=12, heads=2, rotary_dim=4, proportional=True)

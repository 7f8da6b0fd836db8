from collections.abc import Iterator
from typing import Self

from torch import Tensor

from ropewalk.code import Code
from ropewalk.encoding import Encoding, Traits


class NoPE(Encoding):
    """No encoding: attention sees a set of tokens, and permuting them permutes its output.

    A causal mask still tells a query how many keys it has, which is why language models without encoding learn at all.

    Beware: as a baseline it is honest only if nothing else tells positions: no zero padding in a convolutional stem, no
    learned table left in the model.
    """

    name = "none"
    paper = "arXiv:2305.19466"
    variants = {"standard": {"coordinates": "index", "resolution": "extrapolate"}}  # positions change nothing

    def initial(self) -> dict[str, Tensor]:
        return {}

    def encode(self, q: Tensor, k: Tensor | None) -> Code:
        return Code(layers=self.layers)

    @property
    def traits(self) -> Traits:
        return Traits(axes=self.axes, relative=(True,) * self.axes, isotropic=True, reach=0.0)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=12, heads=2, axes=2, layers=2)

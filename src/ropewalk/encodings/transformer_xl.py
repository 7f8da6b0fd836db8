from collections.abc import Iterator
from typing import Self, Unpack

from torch import Tensor

from ropewalk import spectra
from ropewalk.arguments import positive, positive_number
from ropewalk.code import ContentBias
from ropewalk.encoding import Encoding, Shape, Traits
from ropewalk.rotary import gaussian


class TransformerXL(Encoding):
    """Transformer-XL's relative encoding: attention to a sinusoid of the distance, and two learned stand-ins for the query.

        score of q at i and k at j  =  (q·k + q·W r + u·k + v·W r) / √d,    r = (sin (i-j)ω, cos (i-j)ω)

    The four terms: content with content, content with place, a content that all queries like, a place that all queries
    like. ω has the frequencies of sinusoidal embeddings, W (d x width), u and v are learned, for each head and layer.
    As sin(a - b) is a sum of products, the terms of place are a product of a query and a key with `width` more channels,
    and hold for any positions, without the shift of rows that implementations use for whole distances.

    Beware: this is not a plain bias. "Score plus a learned function of the distance" is T5's; here the middle term depends
    on the query. It is added to the logits as a dense (B, H, N, M) tensor, flash attention cannot carry it, and it is
    divided by √d whatever `scale=` attention uses. Tokens of the prefix get none of the terms, u·k included.

    base   Of the frequencies, 10,000.
    width  Channels of r, even: by default heads · head_dim, as in the paper.
    std    Deviation of W, u and v at the start: 0.02.
    """

    name = "transformer-xl"
    paper = "arXiv:1901.02860"
    allowed_axes = range(1, 2)

    u: Tensor
    v: Tensor
    weight: Tensor
    frequency: Tensor

    def __init__(
        self, *, base: float = 10000.0, width: int | None = None, std: float = 0.02, **shape: Unpack[Shape]
    ) -> None:
        super().__init__(**shape)
        self.base, self.std = positive_number("base", base), positive_number("std", std)
        self.width = self.heads * self.head_dim if width is None else positive("width", width)
        if self.width % 2:
            raise ValueError(f"width must be even, got {self.width}")
        self.build(learned=True, fixed=("frequency",))

    def initial(self) -> dict[str, Tensor]:
        shapes = {"u": (self.head_dim,), "v": (self.head_dim,), "weight": (self.head_dim, self.width)}
        drawn = {name: gaussian(self.std, (*self.lead(), *shape)) for name, shape in shapes.items()}
        return drawn | {"frequency": spectra.geometric(self.width // 2, self.base)}

    def encode(self, q: Tensor, k: Tensor | None) -> ContentBias:
        sine, cosine = (half.clone() for half in self.weight.chunk(2, dim=-1))
        return ContentBias(
            layers=self.layers,
            u=self.u.clone(),
            v=self.v.clone(),
            sine=sine,
            cosine=cosine,
            q_angle=self.per_layer(q * self.frequency),
            k_angle=self.per_layer((q if k is None else k) * self.frequency),
        )

    @property
    def traits(self) -> Traits:
        return Traits(axes=1, relative=(True,), learned=True)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=12, heads=4, kv_heads=2, layers=2, base=50.0, width=10, std=0.1)

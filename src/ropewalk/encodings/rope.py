from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, Unpack

import torch.nn.functional as F
from torch import Tensor

from ropewalk import extension as extending
from ropewalk import spectra
from ropewalk.arguments import flag, positive, positive_number
from ropewalk.code import Rotation
from ropewalk.encoding import Shape, Traits, shares
from ropewalk.rotary import Waves


class RoPE(Waves):
    """Rotary position embedding: pair i of a query or key at place m turns by the angle m · base^(-2i/d).

        (R_m q)ᵀ (R_n k) = qᵀ R_{n-m} k

    Scores depend on the distance alone, norms are kept, and each pair looks at its own length scale, from 2 pi places to
    2 pi · base.

    Beware: the RoFormer paper's decay of scores with distance holds for q and k that start in phase, not in general. Beyond
    the length of training, pairs that never completed a turn meet angles they have not seen: it does not extrapolate well
    without an `extension`.

    base         LLaMA 1 and 2: 10,000; larger ones reach further.
    rotary_dim   Turn only this many leading channels, pairs counted and joined inside that width (GPT-J, GPT-NeoX).
    proportional Turn the fastest rotary_dim / 2 pairs of the whole width and leave the slower ones still
                 (transformers' "proportional"; p-RoPE).
    interleaved  False (transformers' LLaMA, GPT-NeoX): pair i is channels (i, i + d/2). True (Meta's LLaMA, GPT-J):
                 (2i, 2i + 1). A model trained with one must be run with the same one.
    learned      Frequencies are parameters, one set a head (or `shared`) and layer. This is all that LieRE can be in one
                 dimension.
    extension    A rule for texts longer than those of training, of `ropewalk.extension`: itself, its name, or a dictionary
                 in transformers' spelling, {"rope_type": "yarn", "factor": 4.0, …}. Learned frequencies are slowed down too.
    length       The most tokens that a text will have, where the rule depends on it; `at(length)` sets it.
    """

    name = "rope"
    paper = "arXiv:2104.09864"
    allowed_axes = range(1, 2)
    far = True

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
        extension: extending.Rule | Mapping[str, Any] | str | None = None,
        length: int | None = None,
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
        self.rule = extending.parse(extension)
        self.length = None if length is None else positive("length", length)
        if self.scale != 1 and self.rule is not None and self.rule.by_index:
            raise ValueError(f"this rule takes frequencies of scale 1 for granted: take ramp='turns', got {scale=}")
        if self.length is not None and not self._by_length:
            raise ValueError(f"no rule here depends on the length of the text, got length={length} and {extension=}")
        self.build(learned=self.learned)

    @property
    def extension(self) -> dict[str, Any] | None:
        """The rule as a dictionary."""
        return None if self.rule is None else self.rule.spec()

    @property
    def _by_length(self) -> bool:
        return self.rule is not None and self.rule.needs_length

    @property
    def waiting(self) -> bool:
        return self._by_length and self.length is None

    def at(self, length: int | Sequence[int]) -> "RoPE":
        """The encoding for texts of up to `length` tokens, with the same parameters. One for a whole text: cached keys are
        turned already, and queries that meet them must be turned by the same frequencies."""
        super().at(length)
        length = length[0] if isinstance(length, list | tuple) else length
        if not self._by_length:
            return self
        options = {name: value for name, value in self.config().items() if name != "name"}
        other = type(self)(**(options | {"length": length})).to(self.frequency).train(self.training)
        for name, parameter in self.named_parameters():
            other.register_parameter(name, parameter)
        other._awaits_values = self._awaits_values
        return other

    def initial(self) -> dict[str, Tensor]:
        turned = self.rotary_dim // 2
        width = self.head_dim // 2 if self.proportional else turned
        frequency = spectra.geometric(turned, self.base, over=width)
        return {"frequency": frequency.repeat(*self.lead(shared=self.shared), 1) if self.learned else frequency[None]}

    def start(self) -> dict[str, Tensor]:
        started = super().start()
        wait = self.learned or self.waiting
        return started if wait else {name: self._slowed(value) for name, value in started.items()}

    def _slowed(self, frequency: Tensor) -> Tensor:
        """These frequencies after the extension rule."""
        if self.rule is None:
            return frequency
        width = self.head_dim // 2 * 2 if self.proportional else self.rotary_dim
        return self.rule(frequency, base=self.base, rotary_dim=width, length=self.length).frequency

    def waves(self) -> Tensor:
        if self.waiting:
            raise ValueError(f"the rule of {self.extension} depends on the length of the text: use encoding.at(length)")
        frequency = self._slowed(self.frequency) if self.learned else self.frequency
        still = self.head_dim // 2 - frequency.shape[-1] if self.proportional else 0
        return (F.pad(frequency, (0, still)) if still else frequency).unsqueeze(-1)

    def rotation(self, q: Tensor, k: Tensor | None) -> Rotation:
        return super().rotation(q, k).stretched(self._factor)

    @property
    def _factor(self) -> float:
        """What stretches q and k."""
        return 1.0 if self.rule is None else self.rule.attention(self.length)

    @property
    def traits(self) -> Traits:
        rounding = 4.0 if self.learned and self.rule is not None else 1.0  # whose rule computes in float32
        return replace(super().traits, isometric=self._factor == 1.0, rounding=rounding)

    @property
    def pairs(self) -> int:
        return (self.head_dim if self.proportional else self.rotary_dim) // 2

    def summary(self) -> str:
        still = self.head_dim // 2 - self.rotary_dim // 2
        told = f", the slowest {still} still" if self.proportional and still else ""
        return super().summary() + told + ("" if self._factor == 1.0 else f", q and k times {self._factor:.4g}")

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2)
        yield cls(head_dim=12, heads=2, base=500.0, interleaved=True)
        yield cls(head_dim=12, heads=4, kv_heads=2, rotary_dim=8, learned=True, layers=2)
        yield cls(head_dim=12, heads=2, rotary_dim=4, proportional=True)
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8.0}
        yield cls(head_dim=14, heads=2, base=500.0, rotary_dim=12, extension=yarn)
        parts = extending.ByParts(original_max_position_embeddings=16)
        yield cls(head_dim=12, heads=4, kv_heads=2, learned=True, layers=2, extension=parts, length=64)

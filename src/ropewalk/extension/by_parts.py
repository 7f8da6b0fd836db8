"""Rules that treat a pair by how often it turned in training: NTK-by-parts, YaRN, Llama 3."""

import math
from dataclasses import dataclass

from torch import Tensor

from ropewalk.extension.rule import Rule, above_zero, at_least_one, ordered, pairs, stretch, turns


@dataclass(frozen=True, kw_only=True)
class ByParts(Rule):
    """NTK-by-parts: pairs that turned often are kept, those that did not complete a turn are interpolated.

        ω_i' = γ ω_i + (1 - γ) ω_i / s,    γ = (r_i - beta_slow) / (beta_fast - beta_slow) cut to [0, 1]

    r_i = L ω_i / 2π is how often pair i turns within the length of training, L.

    factor                            s; None takes it from the length, max(1, length / L): dynamic scaling.
    original_max_position_embeddings  L.
    beta_fast                         Pairs with so many turns or more are kept: 32.
    beta_slow                         Pairs with so many turns or fewer are divided by s: 1.
    """

    rope_type = "ntk-by-parts"

    factor: float | None = None
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stretch(None)
        ordered(self.beta_fast, self.beta_slow)

    @property
    def needs_length(self) -> bool:
        return self.factor is None

    def stretch(self, length: int | None) -> float:
        """s."""
        return stretch(self, self.factor, self.original_max_position_embeddings, length)

    def kept(self, frequency: Tensor, base: float, rotary_dim: int) -> Tensor:
        """γ of each pair."""
        return ramp(turns(frequency, self.original_max_position_embeddings), self.beta_slow, self.beta_fast)

    def ratio(self, frequency: Tensor, *, base: float, rotary_dim: int, length: int | None) -> Tensor:
        return blend(self.kept(frequency, base, rotary_dim), self.stretch(length))


@dataclass(frozen=True, kw_only=True)
class YaRN(ByParts):
    """YaRN: NTK-by-parts, and q and k stretched by 0.1 ln s + 1 each, which makes attention sharper.

    Paper and code differ in the ramp. Both keep pairs of beta_fast turns and divide those of beta_slow; between them the
    paper's γ is linear in the turns, the code's in the index of the pair, that is nearly in the logarithm of the frequency.

    ramp                              Whose, between the ends.
      index  the published code's, which all frameworks run: γ falls from 1 to 0 between the pairs c(beta_fast) and
             c(beta_slow), where c(n) = d ln(L / 2πn) / (2 ln base) would turn n times. It goes by the index, whatever
             frequencies were learned.
      turns  the paper's, equations 17 to 20.
    truncate                          Round c(beta_fast) down and c(beta_slow) up to whole pairs; gpt-oss does not.
    factor                            s; None takes it from the length, max(1, length / L): dynamic YaRN.
    original_max_position_embeddings  L, the length of training.
    beta_fast                         Pairs with so many turns or more are kept: 32.
    beta_slow                         Pairs with so many turns or fewer are divided by s: 1.
    attention_factor                  Takes the place of 0.1 ln s + 1.
    mscale                            With mscale_all_dim, and neither of them 0: the factor is
                                      (0.1 · mscale · ln s + 1) / (0.1 · mscale_all_dim · ln s + 1).
    mscale_all_dim                    See mscale. DeepSeek's attention multiplies the scale of its logits by the square of
                                      0.1 · mscale_all_dim · ln s + 1 besides, which RoPE has no part in.
    """

    rope_type = "yarn"

    ramp: str = "index"
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ramp not in ("index", "turns"):
            raise ValueError(f"ramp must be 'index' or 'turns', got {self.ramp!r}")
        if self.ramp == "turns" and not self.truncate:
            raise ValueError("truncate=False is about ends at pairs: the ramp in turns has none, got ramp='turns'")
        above_zero("attention_factor", self.attention_factor)

    @property
    def by_index(self) -> bool:
        return self.ramp == "index"

    def kept(self, frequency: Tensor, base: float, rotary_dim: int) -> Tensor:
        if self.ramp == "turns":
            return super().kept(frequency, base, rotary_dim)
        first, last = self._ends(base, rotary_dim)
        return 1 - ramp(pairs(frequency), first, last)

    def _ends(self, base: float, rotary_dim: int) -> tuple[float, float]:
        """The last pair that is kept and the first that is divided; the limit d - 1 is the published code's."""
        if base <= 1:
            raise ValueError(f"a ramp in the index of the pair needs a base above 1, got {base}")
        length, ends = self.original_max_position_embeddings, (self.beta_fast, self.beta_slow)
        first, last = (rotary_dim * math.log(length / (2 * math.pi * n)) / (2 * math.log(base)) for n in ends)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, rotary_dim - 1)
        return first, last + 0.001 if first == last else last

    def attention(self, length: int | None) -> float:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        s = self.stretch(length)
        if self.mscale and self.mscale_all_dim:
            return temperature(s, self.mscale) / temperature(s, self.mscale_all_dim)
        return temperature(s)


@dataclass(frozen=True, kw_only=True)
class Llama3(Rule):
    """Llama 3.1's rule: NTK-by-parts whose ramp ends at 4 turns instead of 32.

        λ_i < L / high: kept;    λ_i > L / low: ω_i / s;    between, a ramp in L / λ_i,    λ_i = 2π / ω_i

    factor                            s: 8 in Llama 3.1, 32 in the small ones of 3.2.
    low_freq_factor                   What NTK-by-parts calls beta_slow: 1.
    high_freq_factor                  What NTK-by-parts calls beta_fast: 4.
    original_max_position_embeddings  L: 8,192.
    """

    rope_type = "llama3"

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one("factor", self.factor)
        if not self.low_freq_factor <= self.high_freq_factor:
            both = f"{self.high_freq_factor} and {self.low_freq_factor}"
            raise ValueError(f"high_freq_factor must be at least low_freq_factor, got {both}")

    def ratio(self, frequency: Tensor, *, base: float, rotary_dim: int, length: int | None) -> Tensor:
        often = turns(frequency, self.original_max_position_embeddings)
        return blend(ramp(often, self.low_freq_factor, self.high_freq_factor), self.factor)


def ramp(x: Tensor, low: float, high: float) -> Tensor:
    """0 up to low, 1 from high on, a straight line between, or where these are one a step."""
    return (x >= high).to(x.dtype) if low == high else ((x - low) / (high - low)).clamp(0, 1)


def blend(kept: Tensor, s: float) -> Tensor:
    """New over old frequencies of which a share is kept and the rest divided by s."""
    return kept + (1 - kept) / s


def temperature(s: float, mscale: float = 1.0) -> float:
    """0.1 · mscale · ln s + 1, and 1 for texts that are not longer."""
    return 0.1 * mscale * math.log(s) + 1.0 if s > 1 else 1.0

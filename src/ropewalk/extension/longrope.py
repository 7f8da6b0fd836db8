"""LongRoPE, whose factors were searched for, and a rule that an article calls YaRN."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.extension.rule import Rule, above_zero, at_least_one, ordered, pairs, stretch, turns


@dataclass(frozen=True, kw_only=True)
class LongRoPE(Rule):
    """LongRoPE: each pair has a divisor of its own, one for short texts and one for long ones.

        ω_i' = ω_i / long_i where length > L, else ω_i / short_i

    q and k are stretched by √(1 + ln s / ln L) each, in short texts too, as the published models are.

    Which list is taken is settled once for a text, by its largest length: to change it where a text outgrows L would leave
    keys in the cache that were turned by the other list. The paper also leaves the first tokens as they were; the
    frameworks do not, and nor does this.

    short_factor                      Divisors, one for each pair.
    long_factor                       The same for texts longer than L.
    original_max_position_embeddings  L.
    factor                            s: max_position_embeddings / L.
    attention_factor                  Takes the place of √(1 + ln s / ln L).
    short_mscale                      The factor of q and k in short texts (Phi-3.5-MoE).
    long_mscale                       The same in long ones.
    """

    rope_type = "longrope"

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position_embeddings: int
    factor: float | None = None
    attention_factor: float | None = None
    short_mscale: float | None = None
    long_mscale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.short_factor) != len(self.long_factor):
            counts = f"{len(self.short_factor)} and {len(self.long_factor)}"
            raise ValueError(f"short_factor and long_factor must have one number for each pair, got {counts}")
        if (self.short_mscale is None) != (self.long_mscale is None):
            raise ValueError("short_mscale and long_mscale go together, got one of them")
        if self.factor is None and self.attention_factor is None and self.short_mscale is None:
            raise ValueError("the rule 'longrope' needs a factor, an attention_factor, or short_mscale and long_mscale")
        if self.factor is not None:
            at_least_one("factor", self.factor)
        if self.original_max_position_embeddings < 2:
            raise ValueError(
                f"original_max_position_embeddings must be 2 or more, got {self.original_max_position_embeddings}"
            )
        for name in ("attention_factor", "short_mscale", "long_mscale"):
            above_zero(name, getattr(self, name))

    @property
    def needs_length(self) -> bool:
        return True

    def ratio(self, frequency: Tensor, *, base: float, rotary_dim: int, length: int | None) -> Tensor:
        chosen = self.long_factor if self._long(length) else self.short_factor
        if len(chosen) != frequency.shape[-1]:
            raise ValueError(f"longrope has factors for {len(chosen)} pairs, got {frequency.shape[-1]} frequencies")
        return 1 / torch.tensor(chosen, dtype=frequency.dtype, device=frequency.device)

    def attention(self, length: int | None) -> float:
        own = self.long_mscale if self._long(length) else self.short_mscale
        own = self.attention_factor if own is None else own
        if own is not None:
            return float(own)
        assert self.factor is not None
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_max_position_embeddings))

    def _long(self, length: int | None) -> bool:
        return length is not None and length > self.original_max_position_embeddings


@dataclass(frozen=True, kw_only=True)
class YarnArticle(Rule):
    """What an article and, from October to December 2025, minimind's code called YaRN. It is another rule.

        ω_i' = ω_i (β_i s - β_i + 1) / (β_i s) where r_i ≥ 1, else ω_i / s

    β_i grows evenly from beta_slow to beta_fast along the pairs. YaRN keeps pairs that turn often and has a ramp; this
    changes nearly all of them, falls from about 1 - 1/s to 1/s from one pair to the next, and does not stretch q and k. The
    article's prose has it the wrong way round: it says that high frequencies are scaled most. For s = 1 the formula gives
    1/β_i, not 1: as in the article's code, a text that is not longer keeps its frequencies.

    factor                            s; None takes it from the length, max(1, length / L).
    original_max_position_embeddings  L, the length of training.
    beta_fast                         β of the slowest pair: 32.
    beta_slow                         β of the fastest pair: 1.
    """

    rope_type = "yarn-article"

    factor: float | None = None
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        stretch(self, self.factor, self.original_max_position_embeddings, None)
        ordered(self.beta_fast, self.beta_slow)

    @property
    def needs_length(self) -> bool:
        return self.factor is None

    def ratio(self, frequency: Tensor, *, base: float, rotary_dim: int, length: int | None) -> Tensor:
        s = stretch(self, self.factor, self.original_max_position_embeddings, length)
        if s <= 1:
            return torch.ones_like(frequency)
        along = pairs(frequency) / max(frequency.shape[-1] - 1, 1)
        beta = self.beta_slow + (self.beta_fast - self.beta_slow) * along
        often = turns(frequency, self.original_max_position_embeddings) >= 1
        return torch.where(often, (beta * s - beta + 1) / (beta * s), 1 / s)

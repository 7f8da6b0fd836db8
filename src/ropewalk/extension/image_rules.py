"""Rules for images and volumes, whose axes grow each by a factor of its own.

Pair t turns by w_t · p. In training an image had N_a patches along axis a and was L_a wide there from edge to edge: N_a
times the distance between patches, whatever the coordinates. Across it the component w_ta turns r_ta = |w_ta| L_a / 2π
times. A larger image has s_a N_a patches at the same distance. Each component is slowed down by the factor of its axis:

    w_ta' = w_ta · ratio_ta(s_a),    ratio 1 where s_a = 1

Of one axis these are the rules for texts; of axial RoPE, those rules along each axis. They are functions of the waves, not
of a base, and hold for learned ones. Where no axis grows, nothing changes, bit for bit.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.extension.by_parts import blend, ramp, temperature
from ropewalk.extension.rule import Extended, Specified, at_least_one, ordered


@dataclass(frozen=True, kw_only=True)
class AxesRule(Specified):
    """Slows wave vectors down along each axis, so that in a larger image pairs turn no farther than in training."""

    def __call__(self, waves: Tensor, *, extent: Sequence[float], stretch: Sequence[float]) -> Extended:
        """The waves (..., P, A) that take the place of these, and the factor of q and k, from L_a and s_a of each axis."""
        if not waves.shape[-1] == len(extent) == len(stretch):
            got = f"{len(extent)} and {len(stretch)}"
            raise ValueError(f"waves of {waves.shape[-1]} axes want an extent and a stretch for each, got {got}")
        if max(at_least_one("stretch", s) for s in stretch) == 1:
            return Extended(waves, 1.0)
        along = self.measured(waves, extent).unbind(-1)
        ratio = [self.ratio(each, s) for each, s in zip(along, stretch, strict=True)]
        return Extended(waves * torch.stack(ratio, dim=-1), self.attention(stretch))

    def measured(self, waves: Tensor, extent: Sequence[float]) -> Tensor:
        """What the rule looks at, for each component of the waves."""
        return waves

    @abstractmethod
    def ratio(self, measured: Tensor, s: float) -> Tensor:
        """New components over old ones along one axis, (..., P)."""

    def attention(self, stretch: Sequence[float]) -> float:
        """The factor of q and of k, 1 where no axis grows: logits get its square."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class AxesLinear(AxesRule):
    """Interpolation: every component divided by s.

        w_ta' = w_ta / s_a

    Scores are those of positions that are rescaled.
    """

    rope_type = "linear"

    def ratio(self, measured: Tensor, s: float) -> Tensor:
        return torch.full_like(measured, 1 / s)


@dataclass(frozen=True, kw_only=True)
class _ByAxisOrWave(AxesRule):
    """A rule that treats components by how large they are, or all those of a wave by its length."""

    by: str = "axis"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by not in ("axis", "wave"):
            raise ValueError(f"by must be 'axis' or 'wave', got {self.by!r}")

    def sizes(self, waves: Tensor) -> Tensor:
        """|w_ta|, or |w_t| for every a."""
        return waves.abs() if self.by == "axis" else _lengths(waves).expand_as(waves)


@dataclass(frozen=True, kw_only=True)
class AxesNTK(_ByAxisOrWave):
    """NTK-aware: what is as slow as the slowest pair is divided by s, what is as fast as the fastest is kept.

        w_ta' = w_ta · s_a^(-u_ta),    u_ta = ln(ω_max / |w_ta|) / ln(ω_max / ω_min) cut to [0, 1]

    ω_max and ω_min are the lengths |w| of the longest and of the shortest wave of a head; waves of zero do not count. For a
    geometric law along the axis of a pair, u_i = i / (P - 1): the base multiplied by s^(d/(d-2)).

    by  What decides: "axis", each component by itself; "wave", the length |w_t| in the place of |w_ta|, so that a pair
        keeps its direction where all axes grow alike.
    """

    rope_type = "ntk-aware"

    def measured(self, waves: Tensor, extent: Sequence[float]) -> Tensor:
        """u."""
        length = _lengths(waves)
        longest = length.amax(-2, keepdim=True)
        longest = torch.where(longest > 0, longest, 1.0)
        shortest = torch.where(length > 0, length, longest).amin(-2, keepdim=True)
        gap = (longest / shortest).log()
        return (longest / torch.maximum(self.sizes(waves), shortest)).log() / torch.where(gap > 0, gap, 1.0)

    def ratio(self, measured: Tensor, s: float) -> Tensor:
        return (-math.log(s) * measured).exp()


@dataclass(frozen=True, kw_only=True)
class AxesByParts(_ByAxisOrWave):
    """NTK-by-parts: components that turned often across an image of training are kept, others are interpolated.

        w_ta' = γ w_ta + (1 - γ) w_ta / s_a,    γ_ta = (r_ta - beta_slow) / (beta_fast - beta_slow) cut to [0, 1]

    The ends are those of Llama 3: few patches make few turns, 2.2 in 14 patches at a radian each, and in no image 32.
    Patches look both ways, so that half a turn across the image shows a pair all angles from -π to π. But in a larger image
    things are larger too, which interpolated waves follow and those that are kept do not: a lower end keeps too much.

    beta_fast  Components with so many turns or more are kept: 4.
    beta_slow  Components with so many turns or fewer are divided by s: 1.
    by         What decides: "axis", the turns r_ta of each component; "wave", those along all axes, the root of the sum of
               r_ta², so that a pair keeps its direction where all axes grow alike.
    """

    rope_type = "ntk-by-parts"

    beta_fast: float = 4.0
    beta_slow: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        ordered(self.beta_fast, self.beta_slow)

    def measured(self, waves: Tensor, extent: Sequence[float]) -> Tensor:
        """r."""
        across = [wave * (wide / (2 * math.pi)) for wave, wide in zip(waves.unbind(-1), extent, strict=True)]
        return self.sizes(torch.stack(across, dim=-1))

    def ratio(self, measured: Tensor, s: float) -> Tensor:
        return blend(ramp(measured, self.beta_slow, self.beta_fast), s)


@dataclass(frozen=True, kw_only=True)
class AxesYaRN(AxesByParts):
    """YaRN: NTK-by-parts, and q and k stretched by 0.1 ln s + 1 each, which makes attention sharper.

    With more keys attention spreads; what it spreads over is tokens, so s is by how much there are more of them, the product
    of all s_a. Then an image of one row is a text, whatever it has for columns. "side" takes their geometric mean.

    beta_fast         Components with so many turns or more are kept: 4.
    beta_slow         Components with so many turns or fewer are divided by s: 1.
    by                What decides: "axis", each component by itself, or "wave", the turns along all axes.
    growth            The s of the factor: "tokens", the product of all s_a; "side", its A-th root.
    attention_factor  Takes the place of 0.1 ln s + 1 where an axis grows.
    """

    rope_type = "yarn"

    growth: str = "tokens"
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.growth not in ("tokens", "side"):
            raise ValueError(f"growth must be 'tokens' or 'side', got {self.growth!r}")

    def attention(self, stretch: Sequence[float]) -> float:
        more = math.prod(stretch)
        if more > 1 and self.attention_factor is not None:
            return float(self.attention_factor)
        return temperature(more if self.growth == "tokens" else more ** (1 / max(len(stretch), 1)))


def _lengths(waves: Tensor) -> Tensor:
    """|w| of each wave, (..., P, 1)."""
    return torch.linalg.vector_norm(waves, dim=-1, keepdim=True)

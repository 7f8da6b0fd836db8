"""Rules that do not ask how often a pair turned in training: linear interpolation, and those that change the base."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.extension.rule import Rule, at_least_one, pairs, stretch


@dataclass(frozen=True, kw_only=True)
class Linear(Rule):
    """Position interpolation: every frequency divided by s.

        ω_i' = ω_i / s

    No pair meets an angle that it did not meet in training, but neighbours come s times closer.

    factor                            s; None takes it from the length, max(1, length / original): dynamic scaling.
    original_max_position_embeddings  The length of training, where the factor is None.
    """

    rope_type = "linear"

    factor: float | None = None
    original_max_position_embeddings: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        stretch(self, self.factor, self.original_max_position_embeddings, None)

    @property
    def needs_length(self) -> bool:
        return self.factor is None

    def ratio(self, frequency: Tensor, *, base: float, rotary_dim: int, length: int | None) -> Tensor:
        s = stretch(self, self.factor, self.original_max_position_embeddings, length)
        return torch.full_like(frequency, 1 / s)


@dataclass(frozen=True, kw_only=True)
class NTKAware(Rule):
    """NTK-aware: a larger base, such that the slowest pair is divided by s and the fastest kept.

        base' = base · s^(d/(d-2)),    that is ω_i' = ω_i · s^(-2i/(d-2))

    factor                            s; None takes it from the length, max(1, length / original): dynamic scaling.
    original_max_position_embeddings  The length of training, where the factor is None.
    """

    rope_type = "ntk-aware"

    factor: float | None = None
    original_max_position_embeddings: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        stretch(self, self.factor, self.original_max_position_embeddings, None)

    @property
    def needs_length(self) -> bool:
        return self.factor is None

    def ratio(self, frequency: Tensor, *, base: float, rotary_dim: int, length: int | None) -> Tensor:
        s = stretch(self, self.factor, self.original_max_position_embeddings, length)
        return _with_base(frequency, s, rotary_dim)


@dataclass(frozen=True, kw_only=True)
class DynamicNTK(Rule):
    """Dynamic NTK: NTK-aware with an s that grows from 1 as the text outgrows the length of training, L.

        s = factor · length / L - (factor - 1) where length > L, else 1

    The length is that of the whole text, prompt and what will be written: with one that grew from token to token, keys in a
    cache would have been turned by other frequencies than the queries that meet them.

    factor                            How fast s grows; 1 makes it length / L.
    original_max_position_embeddings  L; transformers calls it max_position_embeddings.
    """

    rope_type = "dynamic"

    factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one("factor", self.factor)

    @property
    def needs_length(self) -> bool:
        return True

    def ratio(self, frequency: Tensor, *, base: float, rotary_dim: int, length: int | None) -> Tensor:
        longer = max(1.0, (length or 0) / self.original_max_position_embeddings)
        return _with_base(frequency, self.factor * longer - (self.factor - 1), rotary_dim)


@dataclass(frozen=True, kw_only=True)
class Proportional(Rule):
    """Proportional: the fastest pairs turn, the rest of the width stands still (p-RoPE; transformers' name).

        ω_i' = ω_i / s for i < ⌊share · d / 2⌋, else 0

    partial_rotary_factor  The share of the pairs that turn.
    factor                 s, 1 by default.
    """

    rope_type = "proportional"

    partial_rotary_factor: float = 1.0
    factor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one("factor", self.factor)
        if not 0 < self.partial_rotary_factor <= 1:
            raise ValueError(f"partial_rotary_factor must be above 0 and at most 1, got {self.partial_rotary_factor}")

    def ratio(self, frequency: Tensor, *, base: float, rotary_dim: int, length: int | None) -> Tensor:
        return (pairs(frequency) < int(self.partial_rotary_factor * rotary_dim // 2)).to(frequency.dtype) / self.factor


def _with_base(frequency: Tensor, s: float, rotary_dim: int) -> Tensor:
    """New over old frequencies where the base is multiplied by s^(d/(d-2))."""
    if rotary_dim <= 2:
        raise ValueError(
            f"with a larger base the fastest pair is kept: one pair alone has none, got rotary_dim={rotary_dim}"
        )
    return s ** (pairs(frequency) * (-2 / (rotary_dim - 2)))

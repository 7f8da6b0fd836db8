"""What a rule of context extension is."""

import math
import numbers
import types
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, get_args

import torch
from torch import Tensor


class Extended(NamedTuple):
    """The frequencies (..., P) or waves (..., P, A) of a rule, and the factor by which it stretches q and k."""

    frequency: Tensor
    attention_factor: float


@dataclass(frozen=True, kw_only=True)
class Specified(ABC):
    """A pure function with options: fields that are checked, and have the names of transformers' keys where it has them.

    `rope_type` is its own name there.
    """

    rope_type: ClassVar[str]

    def __post_init__(self) -> None:
        for entry in fields(self):
            object.__setattr__(self, entry.name, _checked(entry.name, entry.type, getattr(self, entry.name)))

    def spec(self) -> dict[str, Any]:
        """The rule as plain JSON values, without defaults: `parse` makes the rule of it again."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        told = {entry.name: values[entry.name] for entry in fields(self) if values[entry.name] != entry.default}
        return {"rope_type": self.rope_type} | {name: list(v) if isinstance(v, tuple) else v for name, v in told.items()}


@dataclass(frozen=True, kw_only=True)
class Rule(Specified):
    """Slows frequencies down, so that in a text longer than those of training pairs turn no farther than they did there."""

    def __call__(self, frequency: Tensor, *, base: float, rotary_dim: int, length: int | None = None) -> Extended:
        """The spectrum (..., P) that takes the place of `frequency`, whose law is base^(-2i/rotary_dim).

        `length` is the largest number of tokens that the text will have: rules that depend on it want it.
        """
        if self.needs_length and length is None:
            raise ValueError(f"the rule {self.rope_type!r} depends on the length of the text, got length=None")
        ratio = self.ratio(frequency, base=base, rotary_dim=rotary_dim, length=length)
        return Extended(frequency * ratio, self.attention(length))

    @property
    def needs_length(self) -> bool:
        """Whether its answer depends on the length of the text."""
        return False

    @property
    def by_index(self) -> bool:
        """Whether it takes it that the frequencies are base^(-2i/rotary_dim), and does not look at how fast a pair turns."""
        return False

    @abstractmethod
    def ratio(self, frequency: Tensor, *, base: float, rotary_dim: int, length: int | None) -> Tensor:
        """New frequencies over old ones, (..., P) or broadcastable to it."""

    def attention(self, length: int | None) -> float:
        """The factor of q and of k: logits get its square."""
        return 1.0


def stretch(rule: Rule, factor: float | None, original: int | None, length: int | None) -> float:
    """By how much a text is longer than those of training: the factor, or where that is None max(1, length / original)."""
    if factor is not None:
        return at_least_one("factor", factor)
    if original is None:
        wanted = "a factor, or original_max_position_embeddings to take it from the length"
        raise ValueError(f"the rule {rule.rope_type!r} needs {wanted}, got neither")
    return 1.0 if length is None else max(1.0, length / original)


def pairs(frequency: Tensor) -> Tensor:
    """0, 1, …, P - 1, like the frequencies."""
    return torch.arange(frequency.shape[-1], dtype=frequency.dtype, device=frequency.device)


def turns(frequency: Tensor, length: float) -> Tensor:
    """How often each pair turns within so many tokens, whichever way."""
    return frequency.abs() * (length / (2 * math.pi))


def ordered(fast: float, slow: float) -> None:
    """Refuse ends of a ramp that are the wrong way round."""
    if not 0 < slow <= fast:
        raise ValueError(f"beta_fast must be at least beta_slow, and that above zero, got {fast} and {slow}")


def above_zero(name: str, value: float | None) -> None:
    """Refuse a factor that is there and leaves nothing."""
    if value is not None and value <= 0:
        raise ValueError(f"{name} must be above zero, got {value}")


def at_least_one(name: str, value: float) -> float:
    """`value` if it is 1 or more."""
    if value < 1:
        raise ValueError(f"{name} must be a number of at least 1, got {value}")
    return value


def _real(value: Any) -> bool:
    """Whether it is a number, of Python or NumPy."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _number(name: str, value: Any) -> float:
    if not _real(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number not below zero, got {value!r}")
    return value if isinstance(value, int) else float(value)


def _whole(name: str, value: Any) -> int:
    if not _real(value) or not 1 <= value < math.inf or value != int(value):
        raise ValueError(f"{name} must be a whole number above zero, got {value!r}")
    return int(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def _word(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a word, got {value!r}")
    return value


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or not value or not all(_number(name, entry) > 0 for entry in value):
        raise ValueError(f"{name} must be a list of numbers above zero, one for each pair, got {value!r}")
    return tuple(_number(name, entry) for entry in value)


CHECKS: dict[Any, Callable[[str, Any], Any]] = {
    float: _number,
    int: _whole,
    bool: _flag,
    str: _word,
    tuple[float, ...]: _numbers,
}


def _checked(name: str, kind: Any, value: Any) -> Any:
    """A field's value if it is of its kind."""
    kinds = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return None if value is None and type(None) in kinds else CHECKS[kinds[0]](name, value)

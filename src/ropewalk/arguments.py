"""Checks of arguments at the entrances of public functions, with the wording of their errors. Imports nothing of the rest.

Each returns the value, so that it stands where the value is used.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

import torch
from torch import Tensor

from ropewalk.validation import check_choice

Value = TypeVar("Value")

LARGEST_FLOAT = sys.float_info.max
LARGEST_SIZE = 2**24
"""The most that a model may have of anything: more is a mistake, and would fill the memory."""


def tensor(name: str, value: Tensor) -> Tensor:
    """`value` if it is a tensor: lists and NumPy's arrays are not converted, since nothing says to which dtype."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {describe(value)}; torch.as_tensor makes one")
    return value


def floating(name: str, value: Tensor) -> Tensor:
    """`value` if it is a tensor of real floating numbers: integers would be cut, of complex numbers a part be lost."""
    if not tensor(name, value).is_floating_point():
        raise ValueError(f"{name} must be floating, got {value.dtype}: cast it before, for example with .float()")
    return value


def same_device(**values: Tensor | None) -> None:
    """Raise an error if tensors are on several devices."""
    devices = {name: value.device for name, value in values.items() if value is not None}
    if len(set(devices.values())) > 1:
        raise ValueError(
            f"all must be on one device, got {', '.join(f'{name} on {device}' for name, device in devices.items())}"
        )


def instance_of(name: str, value: Value, kind: type) -> Value:
    """`value` if it is an instance of a class."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{name} must be {article} {kind.__name__}, got {describe(value)}")
    return value


def integer(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """`value` if it is an integer in a range; True and 2.0 are none. What torch.jit.trace has for a size is one."""
    if isinstance(value, Tensor) and torch.jit.is_tracing():  # type: ignore[attr-defined]
        value = int(value)
    fits = isinstance(value, Integral | torch.SymInt) and not isinstance(value, bool)
    if fits and not isinstance(value, torch.SymInt) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} must be an integer of 64 bits, got {describe(value)}")
    if not fits or (least is not None and value < least) or (most is not None and value > most):
        bounds = [*([f"at least {least}"] if least is not None else []), *([f"at most {most}"] if most is not None else [])]
        words = "a positive integer" if (least, most) == (1, None) else " ".join(["an integer", " and ".join(bounds)])
        raise ValueError(f"{name} must be {words.strip()}, got {describe(value)}")
    symbolic: Any = value
    return symbolic if isinstance(value, torch.SymInt) else int(value)


def positive(name: str, value: int) -> int:
    """`value` if it is a positive integer."""
    return integer(name, value, least=1)


def integers(name: str, values: Sequence[int], *, least: int | None = None) -> tuple[int, ...]:
    """`values` as a tuple if they are integers."""
    if not isinstance(values, list | tuple | range):
        words = "positive integers" if least == 1 else "integers"
        raise ValueError(f"{name} must be a list or tuple of {words}, got {describe(values)}")
    return tuple(integer(name, value, least=least) for value in values)


def positives(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """`values` as a tuple if they are positive integers."""
    return integers(name, values, least=1)


def number(name: str, value: Any, *, least: float = -math.inf, most: float = math.inf) -> float:
    """`value` as a float if it is a finite number in a range; True is none."""
    fits = _is_real(value) and abs(value) <= LARGEST_FLOAT
    if not fits or not least <= value <= most:
        low = "" if least == -math.inf else f" of at least {least:g}"
        high = "" if most == math.inf else f"{' and' if low else ' of'} at most {most:g}"
        raise ValueError(f"{name} must be a finite number{low}{high}, got {describe(value)}")
    return float(value)


def numbers(name: str, values: Sequence[float]) -> tuple[float, ...]:
    """`values` as a tuple if they are finite numbers."""
    if not isinstance(values, list | tuple | range):
        raise ValueError(f"{name} must be a list or tuple of finite numbers, got {describe(values)}")
    return tuple(number(name, value) for value in values)


def positive_number(name: str, value: Any) -> float:
    """`value` as a float if it is finite and above zero."""
    if not _is_real(value) or not 0 < value <= LARGEST_FLOAT:
        raise ValueError(f"{name} must be a number above zero, got {describe(value)}")
    return float(value)


def not_negative(name: str, value: Any) -> float:
    """`value` as a float if it is finite and not below zero."""
    if not _is_real(value) or not 0 <= value <= LARGEST_FLOAT:
        raise ValueError(f"{name} must be a number not below zero, got {describe(value)}")
    return float(value)


def flag(name: str, value: bool) -> bool:
    """`value` if it is True or False: "no" and 0.0 are neither."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {describe(value)}")
    return value


def one_of(name: str, value: str, choices: Iterable[str]) -> str:
    """`value` if it is among the choices."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {describe(value)}")
    return check_choice(name, value, choices)


def float_dtype(name: str, value: torch.dtype) -> torch.dtype:
    """`value` if it is a floating dtype."""
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise ValueError(f"{name} must be a floating dtype, such as torch.float32, got {describe(value)}")
    return value


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def describe(value: Any) -> str:
    """A value as an error shows it: of a tensor the dtype and shape, of other objects no more than a line."""
    if isinstance(value, Tensor):
        return f"a tensor, {value.dtype} {tuple(value.shape)}"
    shown = repr(value)
    if len(shown) > 80 or "\n" in shown or " object at 0x" in shown:
        return f"a {type(value).__name__}"
    return shown

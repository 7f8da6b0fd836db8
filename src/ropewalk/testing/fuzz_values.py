"""The values of `ropewalk.testing.fuzz`: what functions want, and what they get instead."""

import functools
import math
import random
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

import ropewalk as rw
from ropewalk.encoding import Encoding
from ropewalk.encodings import REGISTRY


@dataclass(frozen=True)
class Wanted:
    """A kind of argument: how to make one, and which odd values must not pass for it."""

    make: Callable[[random.Random], Any]
    takes: Callable[[Any], bool]
    name: str


def describe_value(value: Any) -> str:
    """A value as an example shows it: of tensors the dtype and shape."""
    if isinstance(value, Tensor):
        return f"{type(value).__name__}({str(value.dtype).removeprefix('torch.')}, {tuple(value.shape)}, {value.device})"
    return reprlib.repr(value)


def make_odd_value(generator: random.Random, good: Any) -> Any:
    """Something that few functions want; of tensors often a relative of the good one."""
    if isinstance(good, Tensor) and generator.random() < 0.7:
        return _make_odd_tensor(generator, good)
    return generator.choice(ODD_VALUES)()


def _make_odd_tensor(generator: random.Random, good: Tensor) -> Tensor:
    other = generator.choice(
        (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.bool, torch.complex64)
    )
    changes: list[Callable[[], Any]] = [
        lambda: good.to(other) if not good.is_complex() else good.real,
        lambda: good[None],
        lambda: good.flatten(),
        lambda: good.sum(),
        lambda: good[:0],
        lambda: good[..., :0],
        lambda: good[..., :-1],
        lambda: torch.cat([good, good], dim=-1),
        lambda: torch.cat([good, good], dim=0),
        lambda: good.transpose(0, -1),
        lambda: torch.full_like(good, math.nan),
        lambda: torch.full_like(good, math.inf),
        lambda: torch.full_like(good, 3e38),
        lambda: good.to("meta"),
        lambda: good.tolist(),
        lambda: good.numpy(),
        lambda: nn.Parameter(good),
        lambda: good.expand(2, *good.shape),
        lambda: -good,
    ]
    try:
        return generator.choice(changes)()
    except (RuntimeError, ValueError, IndexError, TypeError, OverflowError):
        return torch.zeros(())


ODD_VALUES: tuple[Callable[[], Any], ...] = (
    *(
        functools.partial(lambda value: value, value)
        for value in (
            *(
                None,
                True,
                False,
                0,
                -1,
                1,
                3,
                2**40,
                -(2**70),
                10**400,
                1.5,
                0.0,
                -2.0,
                math.nan,
                math.inf,
                -math.inf,
                1e-300,
                1e300,
            ),
            *("", "x", "axial", "1", b"rope", 1j, (), (2, 3), (0,), (-1, 2), ("a",), range(3), float, torch.float32),
            *(torch.int32, torch.bfloat16, "float32", "cuda:99", Ellipsis),
        )
    ),
    list,
    dict,
    set,
    object,
    lambda: [1, 2],
    lambda: [[1.0, 2.0], [3.0]],
    lambda: {"a": 1},
    lambda: {"rope_type": "yarn"},
    lambda: {"rope_type": "yarn", "factor": "4"},
    lambda: torch.zeros(()),
    lambda: torch.zeros(0),
    lambda: torch.ones(3, 5),
    lambda: torch.arange(4),
    lambda: torch.randn(2, 2, 4, 8).bfloat16(),
    lambda: rw.create("axial", head_dim=8),
    lambda: rw.create("rope", head_dim=8)(torch.arange(4)),
)


def is_integer(value: Any) -> bool:
    """Whether it counts: Python's and NumPy's integers, not True."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a finite real number."""
    real: Any = value if not isinstance(value, bool) and isinstance(value, Real) else math.nan
    return abs(real) < math.inf


INTEGER = Wanted(lambda g: g.choice((1, 2, 3, 5)), is_integer, "an integer")
NUMBER = Wanted(lambda g: g.choice((0.5, 1.0, 2.0, 3)), is_number, "a finite number")
FLAG = Wanted(lambda g: g.random() < 0.5, lambda value: isinstance(value, bool), "True or False")
SEQUENCE = (list, tuple, range, torch.Size)
INTEGERS = Wanted(
    lambda g: [g.choice((1, 2, 3)) for _ in range(g.choice((1, 2, 3)))],
    lambda value: isinstance(value, SEQUENCE) and all(map(is_integer, value)),
    "integers",
)
NUMBERS = Wanted(
    lambda g: [0.5, 1.0][: g.choice((1, 2))],
    lambda value: isinstance(value, SEQUENCE) and all(map(is_number, value)),
    "finite numbers",
)
DTYPE = Wanted(lambda g: g.choice((torch.float32, torch.float64)), lambda value: isinstance(value, torch.dtype), "a dtype")
NAME = Wanted(lambda g: g.choice(sorted(REGISTRY)), lambda value: isinstance(value, str), "a name")
MAPPING = Wanted(lambda g: {}, lambda value: isinstance(value, Mapping), "a dictionary")
ENCODING = Wanted(lambda g: pick_encoding(g), lambda value: isinstance(value, Encoding), "an encoding")


def name_of(*choices: str) -> Wanted:
    """One of these names."""
    return Wanted(lambda g: g.choice(choices), lambda value: value in choices, f"one of {choices}")


def tensor(make: Callable[[random.Random], Tensor]) -> Wanted:
    """A tensor like this."""
    return Wanted(make, lambda value: isinstance(value, Tensor), "a tensor")


def optional(wanted: Wanted) -> Wanted:
    """The same, or None."""
    return Wanted(
        lambda g: None if g.random() < 0.5 else wanted.make(g),
        lambda value: value is None or wanted.takes(value),
        f"{wanted.name} or None",
    )


def either(*kinds: Wanted) -> Wanted:
    """Any of these."""
    return Wanted(
        lambda g: g.choice(kinds).make(g),
        lambda value: any(kind.takes(value) for kind in kinds),
        " or ".join(kind.name for kind in kinds),
    )


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> Wanted:
    """A floating tensor of this shape."""
    return tensor(lambda g: torch.randn(shape, dtype=dtype))


def integers(*shape: int) -> Wanted:
    """Integers from 0 to 4."""
    return tensor(lambda g: torch.randint(0, 5, shape))


# Encodings and codes that are called


@functools.cache
def make_encodings() -> tuple[Encoding, ...]:
    """The examples of all encodings."""
    torch.manual_seed(0)
    return tuple(example for kind in REGISTRY.values() for example in kind.examples())


def pick_encoding(generator: random.Random) -> Encoding:
    """One of the examples."""
    return generator.choice(make_encodings())


def make_positions(encoding: Encoding, n: int = 4) -> Tensor:
    """Positions that it takes."""
    if encoding.size is not None:
        return encoding.grid(*encoding.size)
    return torch.arange(n) if encoding.axes == 1 else torch.rand(n, encoding.axes)


def pick_code(generator: random.Random) -> rw.Code:
    """A code, of one layer where its encoding has several."""
    encoding = pick_encoding(generator)
    encoding = encoding.at(64) if encoding.waiting else encoding
    code = encoding(make_positions(encoding))
    return code if code.layers is None or generator.random() < 0.2 else code[0]


def make_heads(encoding: Encoding, *, keys: bool = False) -> Tensor:
    """q or k for the positions of `make_positions`."""
    heads = encoding.own_heads if keys else encoding.heads
    return torch.randn(2, heads, len(make_positions(encoding)), encoding.head_dim)

"""What entries of files must be, in words and as tests."""

import reprlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """What a value must be, in words and as a test; and what it is where there is none."""

    wanted: str
    right: Callable[[Any], bool]
    default: Any = None


def broken(entry: Any, rules: Mapping[str, Rule]) -> str | None:
    """What an entry must be and is not, in words, by the first rule that it breaks."""
    if not isinstance(entry, dict):
        return f"must be an object, got {reprlib.repr(entry)}"
    for name, (wanted, right, default) in rules.items():
        if not right(value := entry.get(name, default)):
            return f"must have {name}, {wanted}, got {reprlib.repr(value) if name in entry else 'none'}"
    return None


def finite(value: Any) -> bool:
    """Whether it is a number that can be averaged."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def numbers(value: Any) -> bool:
    """Whether it is a list of such."""
    return isinstance(value, list) and all(map(finite, value))


def whole(value: Any) -> bool:
    """Whether it is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def between(least: int, most: int) -> Rule:
    """Of a whole number that is neither less nor more."""
    return Rule(f"a whole number from {least} to {most}", lambda value: whole(value) and least <= value <= most)


def name(value: Any) -> bool:
    """Whether it is a name."""
    return isinstance(value, str) and value != ""


NUMBER, WHOLE, NAME = Rule("a number", finite), Rule("a whole number", whole), Rule("a name", name)

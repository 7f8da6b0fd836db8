"""Checks of names and of entries of files, with the wording of their errors. Imports nothing of the rest."""

import difflib
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple


def check_choice(
    what: str,
    name: str,
    choices: Iterable[str],
    *,
    of: str | None = None,
    key: str | None = None,
    error: type[Exception] = ValueError,
) -> str:
    """Return the name if it is one of the choices; otherwise raise an error that suggests the nearest one.

    `of` names what the choice belongs to. `key` is looked up and returned instead of `name`, which is the spelling to show.
    """
    known, key = list(choices), name if key is None else key
    if key in known:
        return key
    raise error(describe_unknown(what, [name], known, of=of, key=key))


def describe_unknown(
    what: str, unknown: Iterable[str], choices: Iterable[str], *, of: str | None = None, key: str | None = None
) -> str:
    """Format the error for unknown names: which they are, what was expected, and which similar names there are."""
    names, known = list(unknown), list(choices)
    similar = [match for name in names for match in _find_nearest(str(name if key is None else key), known)]
    shown = f"Unknown {what} {', '.join(map(repr, names))}{'' if of is None else f' of {of}'}"
    expected = f"expected one of {', '.join(known)}" if known else "there are none"
    hint = f". Did you mean {', '.join(map(repr, dict.fromkeys(similar)))}?" if similar else ""
    return f"{shown}; {expected}{hint}"


def _find_nearest(name: str, known: list[str]) -> list[str]:
    """The nearest choice, or the only one that begins with the name; an empty list if there is neither."""
    starting = [each for each in known if name and each.startswith(name)]
    return difflib.get_close_matches(name, known, n=1) or (starting if len(starting) == 1 else [])


def describe_cast(what: str, dtype: Any) -> str:
    """Format the error for a table of a code, or for positions, that something has cast below float32."""
    causes = (
        ".bfloat16(), .half() or .to(dtype) on it, a cast by hand, or FSDP2, which casts the inputs of a module by default"
    )
    mend = "MixedPrecisionPolicy(…, cast_forward_inputs=False) keeps FSDP2 from it"
    return f"{what} must be at least float32, got {dtype}. Precision was lost by a cast: {causes}; {mend}"


class FieldRule(NamedTuple):
    """What a value must be, in words and as a test; and what it is where there is none."""

    wanted: str
    right: Callable[[Any], bool]
    default: Any = None


def find_violation(entry: Any, rules: Mapping[str, FieldRule]) -> str | None:
    """What an entry must be and is not, in words, by the first rule that it breaks."""
    if not isinstance(entry, dict):
        return f"must be an object, got {reprlib.repr(entry)}"
    for name, (wanted, right, default) in rules.items():
        if not right(value := entry.get(name, default)):
            return f"must have {name}, {wanted}, got {reprlib.repr(value) if name in entry else 'none'}"
    return None


def is_finite_number(value: Any) -> bool:
    """Whether it is a number that can be averaged."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def parse_finite(value: Any) -> float | None:
    """Return the value if it is a finite number, else None."""
    return value if is_finite_number(value) else None


def is_number_list(value: Any) -> bool:
    """Whether it is a list of such."""
    return isinstance(value, list) and all(map(is_finite_number, value))


def is_integer(value: Any) -> bool:
    """Whether it is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def make_range_rule(least: int, most: int) -> FieldRule:
    """Of a whole number that is neither less nor more."""
    return FieldRule(f"a whole number from {least} to {most}", lambda value: is_integer(value) and least <= value <= most)


def is_nonempty_string(value: Any) -> bool:
    """Whether it is a name."""
    return isinstance(value, str) and value != ""


INTEGER_RULE = FieldRule("a whole number", is_integer)
NAME_RULE = FieldRule("a name", is_nonempty_string)

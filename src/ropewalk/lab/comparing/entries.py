"""Encodings to compare: a name, or a name with options, `name:key=value,key=value`, or both as a pair.

Options of a shape (heads, layers, size and the like) come from the model and the data, which all encodings share; they are
refused. A label is the shortest spelling of what was said, and says the same when it is read again.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ropewalk import factory
from ropewalk.encoding import parameters_of
from ropewalk.lab.choose import Refusal, parse, refusing
from ropewalk.lab.config import Config

SHAPE = ("head_dim", "heads", "kv_heads", "axes", "layers", "size")
"""Options that the model and the data decide."""
BETWEEN = re.compile(r",(?=[A-Za-z][\w-]*=)")
"""A comma between options; those inside a value have no key after them."""

Said = str | tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Entry:
    """An encoding with its options, as plain JSON values."""

    encoding: str
    options: dict[str, Any]

    @property
    def label(self) -> str:
        """As one would write it, options in alphabetical order."""
        words = ",".join(f"{key}={_word(value)}" for key, value in sorted(self.options.items()))
        return f"{self.encoding}:{words}" if words else self.encoding


def label_of(config: Config) -> str:
    """The label of the encoding of a run."""
    return Entry(config.encoding, config.options).label


def entry(said: Said) -> Entry:
    """What was said, if there is such an encoding and it has such options."""
    name, options = _apart(said) if isinstance(said, str) else said
    with refusing():
        kind = factory.find(name)
    options = {key.replace("-", "_"): value for key, value in options.items()}
    free = [key for key in parameters_of(kind) if key not in SHAPE]
    for key in options:
        _check(kind.name, key, free)
    return Entry(kind.name, _plain(kind.name, options))


def _apart(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the options of `name:key=value,key=value`."""
    name, colon, rest = text.partition(":")
    return name, parse(BETWEEN.split(rest)) if colon else {}


def _check(name: str, key: str, free: list[str]) -> None:
    """Refuse an option that there is not, or that is not free."""
    if key in SHAPE:
        raise Refusal(f"{key} is the same for all encodings: it comes from the model and the data, got it for {name}")
    if key not in free:
        close = difflib.get_close_matches(key, free, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise Refusal(f"{name} has no option {key!r}{hint}; it takes {', '.join(free)}")


def _plain(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they come back from a file."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(options, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise Refusal(f"options of {name} must be plain JSON values, got {options!r}: {error}") from error
    return plain


def _word(value: Any) -> str:
    """A value so that `parse` gives it back: strings without quotes where they need none."""
    if isinstance(value, str) and parse([f"k={value}"])["k"] == value:
        return value
    return json.dumps(value, ensure_ascii=False)

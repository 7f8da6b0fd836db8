"""Encodings from the words of a command line: a name or module:Class, and options as key=value."""

import difflib
import importlib
import inspect
import json
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ropewalk import factory
from ropewalk.encoding import Encoding
from ropewalk.lab.describe import sample

WORDS = {"true": True, "false": False, "null": None, "none": None}


class Refusal(Exception):
    """What was asked for cannot be done; the message says what was wanted and what came."""

    code = 2


class Failure(Refusal):
    """What was asked for was begun, and came to nothing."""

    code = 1


def known(what: str, name: str, there: Collection[str]) -> str:
    """A name that is there; one that is not is refused, with the nearest that is."""
    if name in there:
        return name
    close = difflib.get_close_matches(name, there, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise Refusal(f"no {what} is named {name!r}{hint}; there are {', '.join(there)}")


def find(name: str) -> type[Encoding]:
    """The class of a registered name, or of module:Class, where the current directory counts as a place of modules."""
    if ":" in name:
        return _encoding(name)
    with refusing():
        return factory.find(name)


def build(kind: type[Encoding], words: Sequence[str]) -> Encoding:
    """An instance with the options that the words give, and an ordinary shape where they are silent."""
    options = parse(words)
    if type(options.get("size")) is int:
        options["size"] = [options["size"]]
    with refusing():
        return sample(kind, **options)


def examples(kind: type[Encoding]) -> list[Encoding]:
    """The instances that the class itself holds up."""
    with refusing():
        found: list[Encoding] = list(kind.examples())
    if not found:
        raise Refusal(f"{kind.__name__}.examples() must yield at least one instance, got none")
    return found


def parse(words: Sequence[str]) -> dict[str, Any]:
    """Options from key=value. Values are JSON, or lists without brackets, or else strings: 8, 1e4, true, 3,5, heo."""
    options: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not key or not equals:
            raise Refusal(f"options are key=value, got {word!r}")
        key = key.replace("-", "_")
        if key in options:
            raise Refusal(f"each option is given once, got {key} twice")
        options[key] = _value(text)
    return options


def _value(text: str) -> Any:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return [_value(part) for part in text.split(",")] if "," in text else text


def _encoding(path: str) -> type[Encoding]:
    module, _, name = path.partition(":")
    found = getattr(_module(module), name, None)
    if found is None:
        raise Refusal(f"module {module} has no class {name!r}")
    if not (isinstance(found, type) and issubclass(found, Encoding)):
        raise Refusal(f"{path} must be a subclass of ropewalk.Encoding, got {found!r}")
    if inspect.isabstract(found):
        raise Refusal(f"{path} is abstract: it must define {', '.join(sorted(found.__abstractmethods__))}")
    return found


def _module(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise Refusal(f"module {name!r} cannot be imported: {type(error).__name__}: {error}") from error


@contextmanager
def refusing() -> Iterator[None]:
    """What an encoding refuses, the command line refuses."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise Refusal(str(error)) from error

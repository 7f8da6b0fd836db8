"""Encodings from the words of a command line: a name or module:Class, and options as key=value.

Encodings to compare: a name, or a name with options, `name:key=value,key=value`, or both as a pair.

Options of a shape (heads, layers, size and the like) come from the model and the data, which all encodings share; they are
refused. A label is the shortest spelling of what was said, and says the same when it is read again.
"""

import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ropewalk import factory
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.lab.config import Config
from ropewalk.lab.errors import CommandError, translate_value_errors
from ropewalk.lab.inspect.encoding_facts import create_sample_encoding
from ropewalk.validation import describe_unknown

LITERAL_VALUES = {"true": True, "false": False, "null": None, "none": None}


def find_encoding_class(name: str) -> type[Encoding]:
    """The class of a registered name, or of module:Class, where the current directory counts as a place of modules."""
    if ":" in name:
        return _import_encoding_class(name)
    with translate_value_errors():
        return factory.find(name)


def build_encoding(kind: type[Encoding], words: Sequence[str]) -> Encoding:
    """An instance with the options that the words give, and an ordinary shape where they are silent."""
    options = parse_options(words)
    if type(options.get("size")) is int:
        options["size"] = [options["size"]]
    with translate_value_errors():
        return create_sample_encoding(kind, **options)


def get_class_examples(kind: type[Encoding]) -> list[Encoding]:
    """The instances that the class itself holds up."""
    with translate_value_errors():
        found: list[Encoding] = list(kind.examples())
    if not found:
        raise CommandError(f"{kind.__name__}.examples() must yield at least one instance, got none")
    return found


def parse_options(words: Sequence[str]) -> dict[str, Any]:
    """Options from key=value. Values are JSON, or lists without brackets, or else strings: 8, 1e4, true, 3,5, heo."""
    options: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not key or not equals:
            raise CommandError(f"options are key=value, got {word!r}")
        key = key.replace("-", "_")
        if key in options:
            raise CommandError(f"each option is given once, got {key} twice")
        options[key] = _parse_value(text)
    return options


def _parse_value(text: str) -> Any:
    if text.lower() in LITERAL_VALUES:
        return LITERAL_VALUES[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return [_parse_value(part) for part in text.split(",")] if "," in text else text


def _import_encoding_class(path: str) -> type[Encoding]:
    module, _, name = path.partition(":")
    found = getattr(_import_module(module), name, None)
    if found is None:
        raise CommandError(f"module {module} has no class {name!r}")
    if not (isinstance(found, type) and issubclass(found, Encoding)):
        raise CommandError(f"{path} must be a subclass of ropewalk.Encoding, got {found!r}")
    if inspect.isabstract(found):
        raise CommandError(f"{path} is abstract: it must define {', '.join(sorted(found.__abstractmethods__))}")
    return found


def _import_module(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise CommandError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}") from error


SHAPE_OPTIONS = ("head_dim", "heads", "kv_heads", "axes", "layers", "size")
"""Options that the model and the data decide."""
OPTION_SEPARATOR = re.compile(r",(?=[A-Za-z][\w-]*=)")
"""A comma between options; those inside a value have no key after them."""

EncodingSpec = str | tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ParsedEncoding:
    """An encoding with its options, as plain JSON values."""

    encoding: str
    options: dict[str, Any]

    @property
    def label(self) -> str:
        """As one would write it, options in alphabetical order."""
        words = ",".join(f"{key}={_format_value(value)}" for key, value in sorted(self.options.items()))
        return f"{self.encoding}:{words}" if words else self.encoding


def get_encoding_label(config: Config) -> str:
    """The label of the encoding of a run."""
    return ParsedEncoding(config.encoding, config.options).label


def parse_encoding(said: EncodingSpec) -> ParsedEncoding:
    """What was said, if there is such an encoding and it has such options."""
    name, options = _split_spec(said) if isinstance(said, str) else said
    with translate_value_errors():
        kind = factory.find(name)
    options = {key.replace("-", "_"): value for key, value in options.items()}
    free = [key for key in parameters_of(kind) if key not in SHAPE_OPTIONS]
    for key in options:
        _check_option(kind.name, key, free)
    return ParsedEncoding(kind.name, _normalize_options(kind.name, options))


def _split_spec(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the options of `name:key=value,key=value`."""
    name, colon, rest = text.partition(":")
    return name, parse_options(OPTION_SEPARATOR.split(rest)) if colon else {}


def _check_option(name: str, key: str, free: list[str]) -> None:
    """Refuse an option that there is not, or that is not free."""
    if key in SHAPE_OPTIONS:
        raise CommandError(f"{key} is the same for all encodings: it comes from the model and the data, got it for {name}")
    if key not in free:
        raise CommandError(describe_unknown("option", [key], free, of=name))


def _normalize_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they come back from a file."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(options, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise CommandError(f"options of {name} must be plain JSON values, got {options!r}: {error}") from error
    return plain


def _format_value(value: Any) -> str:
    """A value so that `parse` gives it back: strings without quotes where they need none."""
    if isinstance(value, str) and parse_options([f"k={value}"])["k"] == value:
        return value
    return json.dumps(value, ensure_ascii=False)

"""Encodings as they are written on the command line and in comparisons.

`show`, `check`, `draw` and `theory` take a name, or module:Class, and options as words key=value. A run takes a name with
its options, `name:key=value,key=value` or `module:Class:key=value`, or in Python the pair of both. Its label is the shortest
such spelling. There, options of the shape (heads, layers, size and the like) are refused: the model and the data determine
them.

A module is imported only when a user names it. Names that are read from files import nothing.
"""

import json
import os
import re
import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ropewalk import factory
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.lab.config import Config
from ropewalk.lab.errors import CommandError, translate_value_errors
from ropewalk.lab.file_gate import JsonDepthError, parse_json
from ropewalk.lab.inspect.encoding_facts import create_sample_encoding
from ropewalk.validation import describe_unknown

LITERAL_VALUES = {"true": True, "false": False, "null": None, "none": None}


def find_encoding_class(name: str) -> type[Encoding]:
    """The class of a name, or of module:Class, whose module is imported; modules of the current directory are found."""
    if ":" in name:
        _add_current_directory()
    with translate_value_errors():
        return factory.find(name, load=True)


def import_modules(names: Sequence[str]) -> None:
    """Import modules that define encodings; modules of the current directory are found."""
    for name in names:
        _add_current_directory()
        with translate_value_errors():
            factory.import_module(name)


def _add_current_directory() -> None:
    """Find modules in the current directory, after all others: a file there must not replace one of another package."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def build_encoding(kind: type[Encoding], words: Sequence[str]) -> Encoding:
    """An instance with the options of `words`, 8 heads of 48 channels by default, and a usual size if it needs one."""
    options = parse_options(words)
    _import_parts(options)
    if type(options.get("size")) is int:
        options["size"] = [options["size"]]
    with translate_value_errors():
        return create_sample_encoding(kind, **options)


def get_class_examples(kind: type[Encoding]) -> list[Encoding]:
    """The instances that `examples()` of the class yields."""
    with translate_value_errors():
        found: list[Encoding] = list(kind.examples())
    if not found:
        raise CommandError(f"{kind.__name__}.examples() must yield at least one instance, got none")
    return found


def _import_parts(options: Mapping[str, Any]) -> None:
    """Import the modules of a chain's parts."""
    parts = options.get("parts")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, Mapping) and isinstance(part.get("name"), str):
            find_encoding_class(part["name"])


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
        return parse_json(text)
    except JsonDepthError as error:
        raise CommandError(str(error)) from error
    except ValueError:
        return [_parse_value(part) for part in text.split(",")] if "," in text else text


SHAPE_OPTIONS = ("head_dim", "heads", "kv_heads", "axes", "layers", "size")
"""Options that the model and the data determine."""
OPTION_SEPARATOR = re.compile(r",(?=[A-Za-z][\w-]*=)")
"""A comma between options; those inside a value have no key after them."""
CLASS_PATH = re.compile(r"[A-Za-z_][\w.]*(:|$)")
"""The class of module:Class, up to its options; an option has an equals sign."""

EncodingSpec = str | tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ParsedEncoding:
    """An encoding with its options, as plain JSON values."""

    encoding: str
    options: dict[str, Any]

    @property
    def label(self) -> str:
        """The spelling of the command line, with options in alphabetical order."""
        words = ",".join(f"{key}={_format_value(value)}" for key, value in sorted(self.options.items()))
        return f"{self.encoding}:{words}" if words else self.encoding


def get_encoding_label(config: Config) -> str:
    """The label of the encoding of a run."""
    return ParsedEncoding(config.encoding, config.options).label


def parse_encoding(spec: EncodingSpec, *, load: bool = False) -> ParsedEncoding:
    """Parse an encoding and its options, and check that they exist; `load` imports the module of module:Class."""
    name, options = _split_spec(spec) if isinstance(spec, str) else spec
    options = {key.replace("-", "_"): value for key, value in options.items()}
    if load:
        find_encoding_class(name)
        _import_parts(options)
    with translate_value_errors():
        kind, name = factory.find(name), factory.canonical_name(name)
    free = [key for key in parameters_of(kind) if key not in SHAPE_OPTIONS]
    for key in options:
        _check_option(name, key, free)
    return ParsedEncoding(name, _normalize_options(name, options))


def _split_spec(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the options of `name:key=value,key=value` or `module:Class:key=value,key=value`."""
    name, colon, rest = text.partition(":")
    if CLASS_PATH.match(rest) and not factory.is_known(name):
        class_name, colon, rest = rest.partition(":")
        name = f"{name}:{class_name}"
    return name, parse_options(OPTION_SEPARATOR.split(rest)) if colon else {}


def _check_option(name: str, key: str, free: list[str]) -> None:
    """Refuse an unknown option, or one of the shape."""
    if key in SHAPE_OPTIONS:
        raise CommandError(f"{key} is the same for all encodings: the model and the data determine it, got it for {name}")
    if key not in free:
        raise CommandError(describe_unknown("option", [key], free, of=name))


def _normalize_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON gives them back."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(options, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise CommandError(f"options of {name} must be plain JSON values, got {reprlib.repr(options)}: {error}") from error
    return plain


def _format_value(value: Any) -> str:
    """A value as `parse_options` reads it: strings have quotes only where they need them."""
    if isinstance(value, str) and parse_options([f"k={value}"])["k"] == value:
        return value
    return json.dumps(value, ensure_ascii=False)

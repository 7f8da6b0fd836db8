"""The docstring of an encoding, taken apart. All are written in one form, in paragraphs:

the first is the summary; what is indented by four is a formula; "Beware:" begins a warning; and a list is made of names,
each with words that go on below it, indented:

    variant  Whose settings.
      heo    Names indented by two belong to the entry above.
    base     Replaces the
             variant's.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ropewalk.encoding import Encoding

FORMULA = " " * 4
BEWARE = "Beware:"


@dataclass(frozen=True)
class Entry:
    """A name of a list, what is said of it, and the names that belong to it."""

    name: str
    text: str
    entries: tuple["Entry", ...] = ()


@dataclass(frozen=True, kw_only=True)
class Docstring:
    """The parts of a docstring. Formulas stand in the definition too, where they stood, still indented."""

    summary: str
    definition: tuple[str, ...]
    options: dict[str, Entry]
    beware: tuple[str, ...]

    @property
    def formulas(self) -> tuple[str, ...]:
        """The formulas of the definition, no longer indented."""
        return tuple(inspect.cleandoc(paragraph) for paragraph in self.definition if paragraph.startswith(FORMULA))


def parse(text: str) -> Docstring:
    """Take a docstring apart. Paragraphs that are nothing else belong to the definition, also after a list."""
    summary, *rest = paragraphs(text)
    lists = [entry for paragraph in rest for entry in entries(paragraph)]
    warnings = [paragraph for paragraph in rest if paragraph.startswith(BEWARE)]
    return Docstring(
        summary=" ".join(summary.split()),
        definition=tuple(p for p in rest if p not in warnings and not entries(p)),
        options={entry.name: entry for entry in lists},
        beware=tuple(_line(warning.removeprefix(BEWARE)) for warning in warnings),
    )


def describe(kind: type[Encoding]) -> Docstring:
    """The docstring of a class; options that its family explains and it does not itself come last."""
    own, *family = [parse(vars(cls)["__doc__"]) for cls in kind.__mro__ if cls in _encodings(kind)]
    inherited = {name: entry for parent in reversed(family) for name, entry in parent.options.items()}
    return replace(own, options=own.options | {n: entry for n, entry in inherited.items() if n not in own.options})


def paragraphs(text: str) -> list[str]:
    """The parts of a docstring between empty lines, formulas still indented."""
    return [part.strip("\n").rstrip() for part in re.split(r"\n\s*\n", inspect.cleandoc(text))]


def entries(paragraph: str) -> tuple[Entry, ...]:
    """The entries of a paragraph that is a list, else none. Names begin a line; the first shows that it is a list."""
    first, _, rest = paragraph.partition("\n")
    begins = re.match(r"[a-z]\w*  +\S", first) or (re.fullmatch(r"[a-z]\w*", first) and rest.startswith("  "))
    return tuple(_entry(part) for part in re.split(r"\n(?=\S)", paragraph)) if begins else ()


def _entry(part: str) -> Entry:
    """An entry from its lines: a name, words, and lines indented by two if other names belong to it."""
    head, *nested = re.split(r"\n  (?=\S)", part)
    name, _, words = head.partition(" ")
    return Entry(name.strip(), _line(words), tuple(_entry(line) for line in nested))


def _encodings(kind: type[Encoding]) -> Iterator[type]:
    """The class and its family: what lies between it and `Encoding`."""
    return (cls for cls in kind.__mro__ if issubclass(cls, Encoding) and cls is not Encoding)


def _line(words: str) -> str:
    return " ".join(words.split())

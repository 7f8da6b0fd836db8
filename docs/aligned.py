"""Lists of names and words, as docstrings align them, in Markdown; and for mkdocstrings, whole docstrings."""

import re
import textwrap
from typing import Any

import griffe

from ropewalk.lab.inspect.encoding_facts import FORMULA_INDENT, DocstringEntry, parse_docstring_entries, split_paragraphs


class Aligned(griffe.Extension):
    """Rewrites the aligned lists of every docstring that the reference shows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """A docstring in Markdown."""
    return "\n\n".join(
        listing(parse_docstring_entries(paragraph)) or prose(paragraph) for paragraph in split_paragraphs(text)
    )


def prose(paragraph: str) -> str:
    """A paragraph in Markdown, to which brackets, stars and angles outside of code are no marks.

    What follows a formula in its line, as a condition does, gets a line of its own: pages are narrow.
    """
    if paragraph.startswith(FORMULA_INDENT):
        return re.sub(r"(?<=[^\s:]) {4,}", f"\n{FORMULA_INDENT}", paragraph)
    return re.sub(r"(`[^`]*`)|([\[<*])", lambda found: found[1] or f"&#{ord(found[2])};", paragraph)


def listing(items: tuple[DocstringEntry, ...]) -> str:
    """Entries as a definition list, those that belong to one inside it."""
    return "\n\n".join(definition(f"`{item.name}`", prose(item.text), listing(item.entries)) for item in items)


def definition(term: str, *parts: str) -> str:
    """One entry of a definition list; the parts are paragraphs."""
    body = textwrap.indent("\n\n".join(part for part in parts if part), FORMULA_INDENT)
    return f"{term}\n:{body[1:] or FORMULA_INDENT + term}"

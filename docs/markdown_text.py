"""Markdown: tables, pictures, and docstrings with their aligned lists of names. Also an extension of mkdocstrings."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import griffe

from ropewalk.lab.figures.theme import FIGURE_THEMES
from ropewalk.lab.inspect.encoding_facts import FORMULA_INDENT, DocstringEntry, parse_docstring_entries, split_paragraphs


def format_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in line)} |" for line in lines)


def format_picture(path: str, alt: str, *, width: int | None = None) -> str:
    """A figure in both themes, of which the site shows one."""
    size = "" if width is None else f"{{ width={width} }}"
    return "\n".join(f"![{alt}]({path}-{theme}.png#only-{theme}){size}" for theme in FIGURE_THEMES)


def format_percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


class AlignedLists(griffe.Extension):
    """Rewrites the aligned lists of every docstring that the reference shows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = format_docstring(obj.docstring.value)


def format_docstring(text: str) -> str:
    return "\n\n".join(
        format_entries(parse_docstring_entries(paragraph)) or escape_prose(paragraph) for paragraph in split_paragraphs(text)
    )


def escape_prose(paragraph: str) -> str:
    """Escape brackets, stars and angles outside of code.

    What follows a formula in its line, as a condition does, gets a line of its own: pages are narrow.
    """
    if paragraph.startswith(FORMULA_INDENT):
        return re.sub(r"(?<=[^\s:]) {4,}", f"\n{FORMULA_INDENT}", paragraph)
    return re.sub(r"(`[^`]*`)|([\[<*])", lambda found: found[1] or f"&#{ord(found[2])};", paragraph)


def format_entries(items: tuple[DocstringEntry, ...]) -> str:
    """A definition list; entries of an entry are a list inside it."""
    return "\n\n".join(
        format_definition(f"`{item.name}`", escape_prose(item.text), format_entries(item.entries)) for item in items
    )


def format_definition(term: str, *parts: str) -> str:
    """One entry of a definition list; the parts are paragraphs."""
    body = textwrap.indent("\n\n".join(part for part in parts if part), FORMULA_INDENT)
    return f"{term}\n:{body[1:] or FORMULA_INDENT + term}"

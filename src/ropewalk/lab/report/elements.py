"""HTML from words: whatever is not already HTML is escaped, so that nothing from a file can be anything but text."""

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is HTML already."""


def tag(name: str, *children: str, **attributes: str) -> Html:
    """An element. Attributes are spelt with `_` for `-`, and with a last `_` where Python keeps the word for itself."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{given}>{joined(children)}</{name}>")


def joined(children: Iterable[str], between: str = "") -> Html:
    """Children in a row."""
    return Html(between.join(child if isinstance(child, Html) else escape(child) for child in children))


def table(head: Sequence[str], body: Iterable[Sequence[str]], *, label: str, marked: int | None = None) -> Html:
    """A table that scrolls by itself; the first cell of a row is its heading, and one row may be marked."""
    top = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    rows = []
    for index, (first, *others) in enumerate(body):
        cells = (tag("th", first, scope="row"), *(tag("td", cell) for cell in others))
        rows.append(tag("tr", *cells, class_="marked") if index == marked else tag("tr", *cells))
    inside = tag("table", tag("thead", top), tag("tbody", *rows))
    return tag("div", inside, class_="scroll", role="region", tabindex="0", aria_label=label)


def bullets(sentences: Iterable[str], kind: str = "") -> Html:
    """A list of sentences."""
    return tag("ul", *(tag("li", each) for each in sentences), class_=kind)


def details(summary: str, *children: str) -> Html:
    """What opens when it is asked for."""
    return tag("details", tag("summary", summary), *children)

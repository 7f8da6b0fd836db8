"""HTML from words: whatever is not already HTML is escaped, so that nothing from a file can be anything but text.

Numbers and settings in words.
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ropewalk.lab.metrics import TOP1_ACCURACY
from ropewalk.lab.record import RunRecord
from ropewalk.lab.results_table import format_difference, format_score
from ropewalk.lab.statistics import MeanEstimate


class HtmlText(str):
    """Text that is HTML already."""


def make_html_tag(name: str, *children: str, **attributes: str) -> HtmlText:
    """An element. Attributes are spelt with `_` for `-`, and with a last `_` where Python keeps the word for itself."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return HtmlText(f"<{name}{given}>{join_html(children)}</{name}>")


def join_html(children: Iterable[str], between: str = "") -> HtmlText:
    """Children in a row."""
    return HtmlText(between.join(child if isinstance(child, HtmlText) else escape(child) for child in children))


def make_html_table(
    head: Sequence[str], body: Iterable[Sequence[str]], *, label: str, marked: int | None = None
) -> HtmlText:
    """A table that scrolls by itself; the first cell of a row is its heading, and one row may be marked."""
    top = make_html_tag("tr", *(make_html_tag("th", cell, scope="col") for cell in head))
    rows = []
    for index, (first, *others) in enumerate(body):
        cells = (make_html_tag("th", first, scope="row"), *(make_html_tag("td", cell) for cell in others))
        rows.append(make_html_tag("tr", *cells, class_="marked") if index == marked else make_html_tag("tr", *cells))
    inside = make_html_tag("table", make_html_tag("thead", top), make_html_tag("tbody", *rows))
    return make_html_tag("div", inside, class_="scroll", role="region", tabindex="0", aria_label=label)


def make_html_list(sentences: Iterable[str], kind: str = "") -> HtmlText:
    """A list of sentences."""
    return make_html_tag("ul", *(make_html_tag("li", each) for each in sentences), class_=kind)


def make_html_details(summary: str, *children: str) -> HtmlText:
    """What opens when it is asked for."""
    return make_html_tag("details", make_html_tag("summary", summary), *children)


def format_accuracy(estimate: MeanEstimate | None) -> str:
    """An accuracy."""
    return format_score(estimate, TOP1_ACCURACY)


def format_accuracy_difference(estimate: MeanEstimate | None) -> str:
    """A difference of accuracies."""
    return format_difference(estimate, TOP1_ACCURACY)


def exceeds_interval(estimate: MeanEstimate) -> bool:
    """Whether a difference is larger than half its interval; one without an interval is not."""
    return estimate.half is not None and abs(estimate.mean) > estimate.half


def format_setting(value: Any) -> str:
    """A setting as text: yes and no, lists with commas."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(format_setting(each) for each in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {format_setting(each)}" for key, each in value.items()) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def join_words(words: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def format_count(count: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_record_error(record: RunRecord, error: Exception) -> str:
    """An error without the path of the folder that holds the run."""
    return str(error) if record.location is None else str(error).replace(record.location, Path(record.location).name)

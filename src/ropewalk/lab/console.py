"""Output of the command line: consoles, JSON documents and links."""

import importlib.util
import json
import os
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.lab.errors import CommandError

ESCAPED_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories: control, format (invisible, or changing the direction of text), surrogate, line and paragraph."""
NOT_PLAIN = re.compile(r"[^\n\t -~]")
FORMAT_WARNING = warnings.formatwarning

if TYPE_CHECKING:
    from rich.console import Console


def print_json(value: Any) -> int:
    """Print one JSON document."""
    print(json.dumps(value, indent=2).replace("\x7f", "\\u007f"), flush=True)  # JSON escapes all others
    return 0


def make_console(*, stderr: bool = False) -> "Console":
    """A console for plain text, which the terminal wraps. Output to a pipe is not wrapped."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Piped(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for each in super().render(renderable, options):
                yield each if each.control else Segment(escape_control_characters(each.text), each.style)

        def on_broken_pipe(self) -> None:  # rich would exit with 1, as if a check had failed
            raise BrokenPipeError

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 1000
    return Piped(stderr=stderr, quiet=not is_main_process(), width=wide, markup=False, highlight=False, soft_wrap=True)


def print_line(words: object) -> None:
    """Print a line of plain text, unwrapped."""
    print(escape_control_characters(str(words)), flush=True)


def escape_control_characters(text: str) -> str:
    r"""Write characters that control a terminal as escapes, such as \x1b; newlines and tabs stay.

    Names of files and labels may have them: they could hide text, or make a terminal do things.
    """
    return NOT_PLAIN.sub(_escape_character, text)


def _escape_character(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1] if unicodedata.category(found[0]) in ESCAPED_CATEGORIES else found[0]


def escape_warnings() -> None:
    """From now on, format warnings without characters that control a terminal."""
    warnings.formatwarning = _format_warning


def _format_warning(*about: Any, **more: Any) -> str:
    return escape_control_characters(FORMAT_WARNING(*about, **more))


def print_file_link(path: Path) -> None:
    """Print the file:// URL of a file, as a hyperlink in terminals that have them."""
    from rich.style import Style

    url = path.resolve().as_uri()
    make_console().print(url, style=Style(link=url))


def is_main_process() -> bool:
    """Whether this process prints for all that train together."""
    return os.environ.get("RANK", "0") == "0"


def require_matplotlib() -> None:
    """Raise an error if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise CommandError("figures need matplotlib: pip install 'ropewalk[lab]'")


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table whose columns are as wide as their longest cell; the first row are the titles."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def collapse_whitespace(words: object) -> str:
    """The text in one line."""
    return " ".join(str(words).split())

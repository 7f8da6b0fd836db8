"""Output of the command line: consoles, JSON documents and links."""

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.lab.errors import CommandError

if TYPE_CHECKING:
    from rich.console import Console


def print_json(value: Any) -> int:
    """Print one JSON document."""
    print(json.dumps(value, indent=2), flush=True)
    return 0


def make_console(*, stderr: bool = False) -> "Console":
    """A console for plain text, which the terminal wraps. Output to a pipe is not wrapped."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1, as if a check had failed
            raise BrokenPipeError

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 1000
    return Piped(stderr=stderr, quiet=not is_main_process(), width=wide, markup=False, highlight=False, soft_wrap=True)


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

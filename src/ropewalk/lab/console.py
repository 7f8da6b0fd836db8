"""Where verbs say what they have to say, and what they need for it."""

import importlib.util
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from ropewalk.lab.errors import CommandError

if TYPE_CHECKING:
    from rich.console import Console


def print_json(value: Any) -> int:
    """Print one JSON document."""
    print(json.dumps(value, indent=2), flush=True)
    return 0


def make_console(*, stderr: bool = False) -> "Console":
    """Plain words, wrapped by the terminal. A pipe has no width: what goes there has a line to itself."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:  # Rich would end the program as if a check had failed.
            raise BrokenPipeError

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 1000
    return Piped(stderr=stderr, quiet=not is_main_process(), width=wide, markup=False, highlight=False, soft_wrap=True)


def is_main_process() -> bool:
    """Whether this process speaks for all that train together."""
    return os.environ.get("RANK", "0") == "0"


def require_matplotlib() -> None:
    """Refuse figures where nobody can draw them."""
    if importlib.util.find_spec("matplotlib") is None:
        raise CommandError("figures need matplotlib: pip install 'ropewalk[lab]'")


def collapse_whitespace(words: object) -> str:
    """Words without their line breaks."""
    return " ".join(str(words).split())

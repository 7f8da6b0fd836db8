import difflib
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class CommandError(Exception):
    """What was asked for cannot be done; the message says what was wanted and what came."""

    code = 2


class CommandFailedError(CommandError):
    """What was asked for was begun, and came to nothing."""

    code = 1


def check_choice(what: str, name: str, there: Collection[str]) -> str:
    """A name that is there; one that is not is refused, with the nearest that is."""
    if name in there:
        return name
    close = difflib.get_close_matches(name, there, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise CommandError(f"no {what} is named {name!r}{hint}; there are {', '.join(there)}")


@contextmanager
def translate_value_errors() -> Iterator[None]:
    """What an encoding refuses, the command line refuses."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise CommandError(str(error)) from error


class DamagedFileError(RuntimeError):
    """A file of a run that cannot be trusted."""


class RunBusyError(RuntimeError):
    """A run that another process writes."""


class NonFiniteLossError(RuntimeError):
    """A loss that is no number."""

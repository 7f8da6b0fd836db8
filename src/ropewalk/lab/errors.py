"""Errors of the lab, and their translation for the command line, which prints a `CommandError` in one line."""

from collections.abc import Iterator
from contextlib import contextmanager


class CommandError(Exception):
    """A command that cannot be carried out as given; the message says what was expected and what came."""

    code = 2


class CommandFailedError(CommandError):
    """A command that was started and failed."""

    code = 1


@contextmanager
def translate_value_errors() -> Iterator[None]:
    """Turn the ValueError and TypeError of invalid arguments into a CommandError."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise CommandError(str(error)) from error


class DamagedFileError(RuntimeError):
    """A file of a run that is damaged or was written by something else."""


class RunBusyError(RuntimeError):
    """A run that another process is writing."""


class NonFiniteLossError(RuntimeError):
    """A loss that is NaN or infinite."""

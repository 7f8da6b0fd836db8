"""The contract of `ropewalk.testing`, told on a console as it is checked."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ropewalk.encoding import Encoding

if TYPE_CHECKING:
    from rich.console import Console


def verdicts(instance: Encoding, console: "Console", *, quiet: bool) -> Iterator[dict[str, Any]]:
    """The outcome of every check of one instance; told on the console as it comes, unless quiet."""
    from ropewalk.testing import checks_for

    tests = checks_for(instance)
    if not quiet:
        console.print(repr(instance))
    for done, test in enumerate(tests, start=1):
        title = test.__name__.removeprefix("check_").replace("_", " ")
        promise = (test.__doc__ or "").strip().partition("\n")[0]
        with console.status(f"{title}, {done} of {len(tests)}"):
            fault = _fault(test, instance)
        if not quiet:
            console.print("✗" if fault else "✓", style="red" if fault else "green", end=" ")
            console.print(f"{title:<12} {fault or promise}")
        told = {"encoding": repr(instance), "check": test.__name__, "promise": promise}
        yield told | {"passed": fault is None, "message": fault}
    if not quiet:
        console.print()


def one_line(words: object) -> str:
    """Words without their line breaks."""
    return " ".join(str(words).split())


def _fault(test: Callable[[Encoding], None], instance: Encoding) -> str | None:
    """Why a check fails, in a line; None if it passes."""
    try:
        test(instance)
    except AssertionError as error:
        return one_line(error) or "it failed without a message"
    except Exception as error:
        return one_line(f"{type(error).__name__}: {error}")
    return None

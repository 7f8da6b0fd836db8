"""The contract of `ropewalk.testing`, told on a console as it is checked."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ropewalk.encoding import Encoding
from ropewalk.lab.console import collapse_whitespace

if TYPE_CHECKING:
    from rich.console import Console


def run_contract_checks(instance: Encoding, console: "Console", *, quiet: bool) -> Iterator[dict[str, Any]]:
    """The outcome of every check of one instance; told on the console as it comes, unless quiet."""
    from ropewalk.testing import checks_for

    tests = checks_for(instance)
    if not quiet:
        console.print(repr(instance))
    for done, test in enumerate(tests, start=1):
        title = test.__name__.removeprefix("check_").replace("_", " ")
        promise = (test.__doc__ or "").strip().partition("\n")[0]
        with console.status(f"{title}, {done} of {len(tests)}"):
            fault = _describe_failure(test, instance)
        if not quiet:
            console.print("✗" if fault else "✓", style="red" if fault else "green", end=" ")
            console.print(f"{title:<12} {fault or promise}")
        told = {"encoding": repr(instance), "check": test.__name__, "promise": promise}
        yield told | {"passed": fault is None, "message": fault}
    if not quiet:
        console.print()


def _describe_failure(test: Callable[[Encoding], None], instance: Encoding) -> str | None:
    """Why a check fails, in a line; None if it passes."""
    try:
        test(instance)
    except AssertionError as error:
        return collapse_whitespace(error) or "it failed without a message"
    except Exception as error:
        return collapse_whitespace(f"{type(error).__name__}: {error}")
    return None

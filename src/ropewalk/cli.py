"""The command `ropewalk`. A verb is a function and a line in `VERBS`; its signature and docstring make its command line."""

import contextlib
import importlib.util
import io
import json as notation
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ropewalk import factory
from ropewalk.encoding import Encoding
from ropewalk.lab import choose, describe

if TYPE_CHECKING:
    from rich.console import Console


def list_encodings(*, json: bool = False) -> int:
    """All encodings, in a table.

    Args:
        json: Print one JSON document and nothing else.
    """
    rows = [describe.row(factory.find(name)) for name in factory.names()]
    if json:
        return _document(rows)
    console = _console()
    console.print(describe.table(rows, width=console.width), soft_wrap=False)
    return 0


def show(name: str, options: tuple[str, ...] = (), /, *, json: bool = False) -> int:
    """One encoding: what it does and promises, what it learns, and how to build it again.

    Args:
        name: A name from `ropewalk list`, or module:Class.
        options: What to build it with, as key=value: head_dim=64 size=14,14. Eight heads of 48 channels by default.
        json: Print one JSON document and nothing else.
    """
    card = describe.card(choose.build(choose.find(name), options))
    if json:
        return _document(card)
    console = _console()
    console.print(f"{card['class']}, {card['paper']}\n\n{card['description']}\n")
    for label, words in describe.facts(card):
        console.print(f"{label:<12} {words}")
    return 0


def check(name: str, options: tuple[str, ...] = (), /, *, json: bool = False) -> int:
    """Hold an encoding, ours or yours, to the contract of `ropewalk.testing`.

    Args:
        name: A name from `ropewalk list`, or module:Class, the current directory included.
        options: Check the one instance built with these, as key=value, instead of all examples.
        json: Print one JSON document and nothing else.
    """
    kind = choose.find(name)
    torch.manual_seed(0)
    instances = [choose.build(kind, options)] if options else choose.examples(kind)
    console = _console(stderr=json)
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        results = [result for instance in instances for result in _checked(instance, console, quiet=json)]
    failed = sum(not result["passed"] for result in results)
    if json:
        _document({"name": name, "passed": not failed, "checks": results})
    else:
        counts = f"{_count(results, 'check')} of {_count(instances, 'instance')}"
        console.print(f"{name}: {counts}, {failed or 'none'} failed")
    return 1 if failed else 0


VERBS: dict[str, Callable[..., int]] = {"list": list_encodings, "show": show, "check": check}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and say how it went: 0 well, 1 a check failed, 2 refused, 130 interrupted."""
    if any(importlib.util.find_spec(name) is None for name in ("rich", "tyro")):
        print("ropewalk: the command line needs rich and tyro: pip install 'ropewalk[lab]'", file=sys.stderr)
        return 2
    import tyro

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    style = (tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName)
    about = "Positional encodings for PyTorch: look at them, hold them to their promises."
    try:
        return tyro.extras.subcommand_cli_from_dict(VERBS, prog="ropewalk", description=about, args=arguments, config=style)
    except choose.Refusal as refusal:
        print(f"ropewalk: {_line(refusal)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read the output has gone; what is left in the buffer must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _checked(instance: Encoding, console: "Console", *, quiet: bool) -> Iterator[dict[str, Any]]:
    """The outcome of every check of one instance, told on the console as it comes."""
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


def _fault(test: Callable[[Encoding], None], instance: Encoding) -> str | None:
    """Why a check fails, in a line; None if it passes."""
    try:
        test(instance)
    except AssertionError as error:
        return _line(error) or "it failed without a message"
    except Exception as error:
        return _line(f"{type(error).__name__}: {error}")
    return None


def _line(words: object) -> str:
    return " ".join(str(words).split())


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}" + ("" if len(things) == 1 else "s")


def _document(value: Any) -> int:
    print(notation.dumps(value, indent=2), flush=True)
    return 0


def _console(*, stderr: bool = False) -> "Console":
    """Plain words, wrapped by the terminal. A pipe has no width: what goes there has a line to itself."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    return Console(stderr=stderr, width=wide, markup=False, highlight=False, soft_wrap=True)

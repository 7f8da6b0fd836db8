"""Tables and lists that follow from the library's own names and docstrings."""

import inspect
from collections.abc import Iterable
from typing import Any

import ropewalk as rw
from markdown_text import format_table
from ropewalk import code, rotary, testing
from ropewalk.encodings import REGISTRY
from ropewalk.lab.figures import FIGURES
from ropewalk.positions import CONVENTIONS, grid


def list_conventions() -> str:
    """The coordinate conventions: what each means, five patches in it, and the encodings whose default it is."""
    rows = []
    for name, meaning in CONVENTIONS.items():
        line = ", ".join(f"{x:.3g}" for x in grid(3, 5, coordinates=name)[:5, 1].tolist())
        users = [kind.name for kind in REGISTRY.values() if next(iter(kind.variants.values()))["coordinates"] == name]
        rows.append((f"`{name}`", meaning, line, ", ".join(f"[`{user}`](encodings/{user}.md)" for user in users)))
    return format_table(["convention", "meaning", "columns of a 3 × 5 grid", "default of"], rows)


def list_checks() -> str:
    """Every check of the contract, with its promise."""
    found = {name: thing for name, thing in vars(testing).items() if name.startswith("check_") and thing.__doc__}
    del found["check_encoding"]
    promises = {name: (inspect.getdoc(check) or "").partition("\n")[0] for name, check in sorted(found.items())}
    rows = [(name.removeprefix("check_").replace("_", " "), promise) for name, promise in promises.items()]
    return format_table(["check", "promise"], rows)


def reference_codes() -> str:
    """The kinds of code, the one that does nothing first."""
    kinds = [kind for kind in vars(code).values() if isinstance(kind, type) and issubclass(kind, code.Code)]
    return _reference(sorted(kinds, key=lambda kind: (kind is not code.Code, kind.__module__, kind.__name__)))


def reference_encodings() -> str:
    return _reference(REGISTRY[name] for name in rw.names())


def reference_families() -> str:
    """The classes that encodings derive from."""
    bases = [base for name in rw.names() for base in REGISTRY[name].__mro__ if base.__module__ == rotary.__name__]
    return _reference(dict.fromkeys(bases))


def reference_figures() -> str:
    return _reference(FIGURES.values())


def _reference(things: Iterable[Any]) -> str:
    """Directives of mkdocstrings."""
    return "\n".join(f"::: {thing.__module__}.{thing.__name__}" for thing in things)

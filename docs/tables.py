"""Tables of hand-written pages that follow from the library."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ropewalk as rw
from ropewalk import code, rotary, testing
from ropewalk.encodings import REGISTRY
from ropewalk.lab.figures import FIGURES
from ropewalk.positions import CONVENTIONS, grid


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def conventions() -> str:
    """The coordinate conventions: what each means, five patches in it, and the encodings whose default it is."""
    rows = []
    for name, meaning in CONVENTIONS.items():
        line = ", ".join(f"{x:.3g}" for x in grid(3, 5, coordinates=name)[:5, 1].tolist())
        users = [f"[`{kind.name}`](encodings/{kind.name}.md)" for kind in REGISTRY.values() if _default(kind) == name]
        rows.append((f"`{name}`", meaning, line, ", ".join(users)))
    return table(["convention", "meaning", "columns of a 3 × 5 grid", "default of"], rows)


def checks() -> str:
    """Every check of the contract, with its promise."""
    found = {name: thing for name, thing in vars(testing).items() if name.startswith("check_") and thing.__doc__}
    del found["check_encoding"]
    return table(["check", "promise"], [(_title(n), _first(check)) for n, check in sorted(found.items())])


def codes() -> str:
    """The kinds of code, for the reference, the one that does nothing first."""
    return _reference(sorted(_codes(), key=lambda kind: (kind is not code.Code, kind.__module__, kind.__name__)))


def encodings() -> str:
    """The classes of all encodings, for the reference."""
    return _reference(REGISTRY[name] for name in rw.names())


def families() -> str:
    """The classes that encodings derive from, for the reference."""
    bases = [base for name in rw.names() for base in REGISTRY[name].__mro__ if base.__module__ == rotary.__name__]
    return _reference(dict.fromkeys(bases))


def figures() -> str:
    """The functions that draw, for the reference."""
    return _reference(FIGURES.values())


TABLES: dict[str, Callable[[], str]] = {
    "conventions": conventions,
    "checks": checks,
    "codes": codes,
    "encodings": encodings,
    "families": families,
    "figures": figures,
}


def _codes() -> list[type]:
    return [kind for kind in vars(code).values() if isinstance(kind, type) and issubclass(kind, code.Code)]


def _reference(things: Iterable[Any]) -> str:
    return "\n".join(f"::: {thing.__module__}.{thing.__name__}" for thing in things)


def _default(kind: type[rw.Encoding]) -> str:
    return next(iter(kind.variants.values()))["coordinates"]


def _title(name: str) -> str:
    return name.removeprefix("check_").replace("_", " ")


def _first(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]

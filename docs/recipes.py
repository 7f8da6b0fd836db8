"""Tables of the lab's pages, from its recipes and settings."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import aligned
from gallery import explained
from ropewalk.lab import recipes as module
from ropewalk.lab.config import UNHASHED_FIELDS, Config
from ropewalk.lab.inspect.encoding_facts import parse_docstring, parse_docstring_entries, split_paragraphs
from ropewalk.lab.recipes import RECIPES
from tables import table


class Contradiction(NamedTuple):
    """What a source says in one place, what it or its code says in another, and where a recipe says it."""

    source: str
    what: str
    one: tuple[float, str]
    other: tuple[float, str]
    recipe: str
    value: Callable[[Config], float]


GEIJN, LIERE = (f"[{number}](https://arxiv.org/abs/{number})" for number in ("2511.08368", "2406.10322"))
CIFAR, IMAGENET = f"{GEIJN}, CIFAR-100", f"{GEIJN}, ImageNet"
CONTRADICTIONS = (
    Contradiction(CIFAR, "patch", (4, "text"), (16, "Table 6"), "van-de-geijn-cifar", lambda c: c.patch),
    Contradiction(CIFAR, "batch", (256, "text"), (1024, "Table 6"), "van-de-geijn-cifar", lambda c: c.batch),
    Contradiction(IMAGENET, "batch", (256, "text"), (512, "Table 5"), "van-de-geijn", lambda c: c.batch),
    Contradiction(IMAGENET, "learning rate", (3e-3, "text"), (4e-3, "Table 5"), "van-de-geijn", lambda c: c.learning_rate),
    Contradiction(LIERE, "hidden channels", (3096, "paper"), (3072, "code"), "liere", lambda c: c.width * c.ratio),
)


def recipes() -> str:
    """All recipes side by side: settings in which they differ, but for those that change no result."""
    documents = {name: config.document() for name, config in RECIPES.items()}
    differ = [key for key in Config().document() if len({word(each[key]) for each in documents.values()}) > 1]
    rows = [
        [f"`{key}`", *(_narrow(each[key]) for each in documents.values())] for key in differ if key not in UNHASHED_FIELDS
    ]
    return table(["", *(f"`{name}`" for name in documents)], rows)


def whose() -> str:
    """What the recipes say of themselves."""
    return "\n\n".join(aligned.listing(parse_docstring_entries(part)) for part in split_paragraphs(module.__doc__ or "")[1:])


def contradictions() -> str:
    """Where a source contradicts itself, and which side a recipe takes."""
    rows = []
    for each in CONTRADICTIONS:
        sides = [f"{word(value)} ({where})" for value, where in (each.one, each.other)]
        rows.append((each.source, each.what, *sides, word(each.value(RECIPES[each.recipe]))))
    return table(["source", "what", "in one place", "in another", "we take"], rows)


def settings() -> str:
    """Every setting with its default, and what is said of it."""
    said = parse_docstring(inspect.getdoc(Config) or "")
    rows = [(f"`{name}`", word(value), explained(name, said)) for name, value in Config().document().items()]
    return table(["setting", "default", ""], rows)


def word(value: Any) -> str:
    """A setting as one reads it."""
    if isinstance(value, bool):
        return ("no", "yes")[value]
    if isinstance(value, list):
        return ", ".join(map(word, value)) or "–"
    if isinstance(value, dict):
        return ", ".join(f"{key} {word(inside)}" for key, inside in value.items()) or "–"
    return "–" if value is None else f"{value:,.6g}" if isinstance(value, int | float) else str(value)


def _narrow(value: Any) -> str:
    """A setting in a column of its own, where names of operations have lines of theirs."""
    return word(value).replace(", ", ",<br>") if isinstance(value, list) and len(value) > 2 else word(value)


TABLES: dict[str, Callable[[], str]] = {
    "recipes": recipes,
    "whose": whose,
    "contradictions": contradictions,
    "settings": settings,
}

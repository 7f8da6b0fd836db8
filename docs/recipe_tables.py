"""Tables of the lab's recipes and settings."""

from collections.abc import Callable
from typing import Any, NamedTuple

from markdown_text import format_entries, format_table
from ropewalk.lab import recipes
from ropewalk.lab.config import UNHASHED_FIELDS, Config, describe_settings
from ropewalk.lab.inspect.encoding_facts import parse_docstring_entries, split_paragraphs
from ropewalk.lab.recipes import RECIPES


class Contradiction(NamedTuple):
    """A setting for which a source gives two values, each with its place, and the recipe that has one of them."""

    source: str
    setting: str
    one: tuple[float, str]
    other: tuple[float, str]
    recipe: str
    get_value: Callable[[Config], float]


GEIJN, LIERE = (f"[{number}](https://arxiv.org/abs/{number})" for number in ("2511.08368", "2406.10322"))
CIFAR, IMAGENET = f"{GEIJN}, CIFAR-100", f"{GEIJN}, ImageNet"
CONTRADICTIONS = (
    Contradiction(CIFAR, "patch", (4, "text"), (16, "Table 6"), "van-de-geijn-cifar", lambda c: c.patch),
    Contradiction(CIFAR, "batch", (256, "text"), (1024, "Table 6"), "van-de-geijn-cifar", lambda c: c.batch),
    Contradiction(IMAGENET, "batch", (256, "text"), (512, "Table 5"), "van-de-geijn", lambda c: c.batch),
    Contradiction(IMAGENET, "learning rate", (3e-3, "text"), (4e-3, "Table 5"), "van-de-geijn", lambda c: c.learning_rate),
    Contradiction(LIERE, "hidden channels", (3096, "paper"), (3072, "code"), "liere", lambda c: c.width * c.ratio),
)


def list_recipes() -> str:
    """All recipes side by side: settings in which they differ, without those that change no result."""
    documents = {name: config.document() for name, config in RECIPES.items()}
    differ = [key for key in Config().document() if len({format_value(each[key]) for each in documents.values()}) > 1]
    rows = [
        [f"`{key}`", *(_format_narrow(each[key]) for each in documents.values())]
        for key in differ
        if key not in UNHASHED_FIELDS
    ]
    return format_table(["", *(f"`{name}`" for name in documents)], rows)


def describe_recipes() -> str:
    """The docstring of the recipes' module."""
    paragraphs = split_paragraphs(recipes.__doc__ or "")[1:]
    return "\n\n".join(format_entries(parse_docstring_entries(part)) for part in paragraphs)


def list_contradictions() -> str:
    """Settings for which a source gives two values, and the one that a recipe has."""
    rows = []
    for each in CONTRADICTIONS:
        sides = [f"{format_value(value)} ({where})" for value, where in (each.one, each.other)]
        rows.append((each.source, each.setting, *sides, format_value(each.get_value(RECIPES[each.recipe]))))
    return format_table(["source", "setting", "in one place", "in another", "in the recipe"], rows)


def list_settings() -> str:
    """Every setting with its group, its default and its description."""
    defaults = Config().document()
    rows = [(f"`{each.name}`", each.group, format_value(defaults[each.name]), each.help) for each in describe_settings()]
    return format_table(["setting", "group", "default", ""], rows)


def format_value(value: Any) -> str:
    if isinstance(value, bool):
        return ("no", "yes")[value]
    if isinstance(value, list):
        return ", ".join(map(format_value, value)) or "–"
    if isinstance(value, dict):
        return ", ".join(f"{key} {format_value(inside)}" for key, inside in value.items()) or "–"
    return "–" if value is None else f"{value:,.6g}" if isinstance(value, int | float) else str(value)


def _format_narrow(value: Any) -> str:
    """For a column of its own: long lists have an item a line."""
    return format_value(value).replace(", ", ",<br>") if isinstance(value, list) and len(value) > 2 else format_value(value)

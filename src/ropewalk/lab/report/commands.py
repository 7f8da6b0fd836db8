"""How a run is had again: a line for a shell where one says all of its settings, else lines of Python.

A run does not keep the name of its recipe, so that the line has the one from which it differs in the fewest settings.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ropewalk.lab.choose import Refusal, parse
from ropewalk.lab.comparing.entries import entry, label_of
from ropewalk.lab.comparing.plan import OWN
from ropewalk.lab.config import ELSEWHERE, Config
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.studying import settings


def again(configs: Sequence[Config]) -> list[str]:
    """Lines that train these runs again."""
    lines = [command(config) for config in configs]
    return [line for line in lines if line] if all(lines) else _python(configs)


def command(config: Config) -> str | None:
    """The words that train a run again; None where a shell cannot say them."""
    recipe, words = min(((name, changed(config, base)) for name, base in RECIPES.items()), key=lambda pair: len(pair[1]))
    label = label_of(config)
    if not _same(config, label, recipe, words):
        return None
    given = ["--set", *words] if words else []
    return shlex.join(["ropewalk", "train", label, "--recipe", recipe, *given, "--seed", str(config.seed)])


def changed(config: Config, base: Config) -> list[str]:
    """Settings that differ from a recipe's, as key=value."""
    own, others = config.document(), base.document()
    names = [name for name in own if name not in (*OWN, *ELSEWHERE)]
    return [f"{name}={_word(own[name])}" for name in names if json.dumps(own[name]) != json.dumps(others[name])]


def _word(value: Any) -> str:
    """The shortest spelling that is read as this value: words without quotes, lists without brackets, else JSON."""
    plain = value if isinstance(value, str) else ",".join(map(str, value)) if isinstance(value, list) else "none"
    return plain if parse([f"k={plain}"])["k"] == value else json.dumps(value, ensure_ascii=False)


def _same(config: Config, label: str, recipe: str, words: Sequence[str]) -> bool:
    """Whether these words, read as the command line reads them, name the same run."""
    try:
        chosen, found = entry(label), settings(recipe, words)
    except Refusal:
        return False
    return replace(found, encoding=chosen.encoding, options=chosen.options, seed=config.seed).name == config.name


def _python(configs: Sequence[Config]) -> list[str]:
    documents = [{name: value for name, value in each.document().items() if name not in ELSEWHERE} for each in configs]
    return [
        "from pathlib import Path",
        "from ropewalk.lab.config import Config",
        "from ropewalk.lab.train import train",
        "",
        *(f'train(Config.of({each!r}), Path("runs"))' for each in documents),
    ]

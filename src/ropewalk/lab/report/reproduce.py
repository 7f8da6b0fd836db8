"""Commands that train runs again: for a shell if it can express all settings, else in Python.

A run does not record the name of its recipe, so the command has the recipe from which it differs in the fewest settings.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ropewalk.lab.config import PER_RUN_FIELDS, UNHASHED_FIELDS, Config
from ropewalk.lab.encoding_spec import get_encoding_label, parse_encoding, parse_options
from ropewalk.lab.errors import CommandError
from ropewalk.lab.recipes import RECIPES, parse_settings


def format_reproduction(configs: Sequence[Config]) -> list[str]:
    """Lines of a shell, or of Python, that train these runs again."""
    lines = [format_train_command(config) for config in configs]
    return [line for line in lines if line] if all(lines) else _format_python(configs)


def format_train_command(config: Config) -> str | None:
    """The command that trains a run again; None if a command line cannot express its settings."""
    recipe, words = min(
        ((name, list_changed_settings(config, base)) for name, base in RECIPES.items()), key=lambda pair: len(pair[1])
    )
    label = get_encoding_label(config)
    if not _is_same_run(config, label, recipe, words):
        return None
    given = ["--set", *words] if words else []
    return shlex.join(["ropewalk", "train", label, "--recipe", recipe, *given, "--seed", str(config.seed)])


def list_changed_settings(config: Config, base: Config) -> list[str]:
    """Settings that differ from those of a recipe, as key=value."""
    own, others = config.document(), base.document()
    names = [name for name in own if name not in (*PER_RUN_FIELDS, *UNHASHED_FIELDS)]
    return [f"{name}={_format_value(own[name])}" for name in names if json.dumps(own[name]) != json.dumps(others[name])]


def _format_value(value: Any) -> str:
    """The shortest spelling that is parsed as this value: strings without quotes, lists without brackets, else JSON."""
    plain = value if isinstance(value, str) else ",".join(map(str, value)) if isinstance(value, list) else "none"
    return plain if parse_options([f"k={plain}"])["k"] == value else json.dumps(value, ensure_ascii=False)


def _is_same_run(config: Config, label: str, recipe: str, words: Sequence[str]) -> bool:
    """Whether the command line parses these words into settings of the same run."""
    try:
        chosen, found = parse_encoding(label), parse_settings(recipe, words)
    except CommandError:
        return False
    return replace(found, encoding=chosen.encoding, options=chosen.options, seed=config.seed).name == config.name


def _format_python(configs: Sequence[Config]) -> list[str]:
    documents = [{name: value for name, value in each.document().items() if name not in UNHASHED_FIELDS} for each in configs]
    return [
        "from pathlib import Path",
        "from ropewalk.lab import Config, train_run",
        "",
        *(f'train_run(Config.of({each!r}), Path("runs"))' for each in documents),
    ]

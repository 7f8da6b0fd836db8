"""Runs of one part of a study that begin with the weights of another part's: each with those of its own encoding."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ropewalk.lab.choose import Refusal
from ropewalk.lab.config import Config
from ropewalk.lab.store import Run
from ropewalk.lab.studies.lines import settings
from ropewalk.lab.studies.study import Study


def groups(
    study: Study, part: str, names: Sequence[str], seed: int, given: Mapping[str, Any], runs: Path
) -> list[tuple[list[str], Config]]:
    """Encodings whose runs share all other settings, with these: all of them, or each alone if each begins elsewhere."""
    config = study.config(part, given)
    if study.parts[part].after is None:
        return [(list(names), config)]
    return [([name], replace(config, start=str(start_of(study, part, name, seed, given, runs)))) for name in names]


def start_of(study: Study, part: str, name: str, seed: int, given: Mapping[str, Any], runs: Path) -> Path:
    """The folder of the run that one begins with: of the same seed, or of the first where the other part has it not."""
    wanted, after = settings_of_start(study, part, name, seed, given), study.parts[part].after
    for path in sorted(runs.glob(f"{wanted.encoding}-seed{wanted.seed}-*/result.json")):
        if _alike(Run.at(path.parent).config, wanted):
            return path.parent
    wanting = f"{runs} has none that is done with the settings that are given for both"
    how = f"--part {after} makes them, with an --out that has no lines of them"
    raise Refusal(f"{part} begins with runs of {after}, and of {name}, seed {wanted.seed}, {wanting}: {how}")


def settings_of_start(study: Study, part: str, name: str, seed: int, given: Mapping[str, Any]) -> Config:
    """The settings of the run that one begins with."""
    after = study.parts[part].after
    assert after is not None
    seeds = study.parts[after].seeds
    return study.of(after, name, seed if seed in seeds else seeds[0], given)


def _alike(one: Config, other: Config) -> bool:
    """Whether settings are the same, wherever their data lie."""
    named = (one.options == other.options, one.epochs == other.epochs)
    return all(named) and settings(one) == settings(other)

"""Whose a line is: the study that it is of, and all settings of its run, of which lines leave out what the study says."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.lab.choose import known
from ropewalk.lab.comparing.entries import entry
from ropewalk.lab.config import Config
from ropewalk.lab.studies import STUDIES
from ropewalk.lab.studies.lines import settings, told
from ropewalk.lab.studies.study import Study

Line = dict[str, Any]

WANTED = {
    "part": str, "name": str, "encoding": dict, "seed": int, "epochs": int, "step": int, "curve": list, "probes": dict,
    "device": str, "torch": str, "settings": dict,
}  # fmt: skip
"""What a line must have, beside what its run came to."""


def check(line: Any) -> None:
    """Refuse what is no line."""
    if not isinstance(line, dict):
        raise ValueError(f"it must be an object, got {line!r}")
    for name, kind in WANTED.items():
        if type(line.get(name)) is not kind:
            came = repr(line[name]) if name in line else "nothing"
            raise ValueError(f"{name} must be {kind.__name__}, got {came}")


def check_number(name: str, line: Line) -> None:
    """Refuse what is no finite number."""
    if not _finite(line.get(name)):
        raise ValueError(f"{name} must be a number, got {repr(line[name]) if name in line else 'nothing'}")


def check_numbers(name: str, line: Line, count: int) -> None:
    """Refuse what is no list of so many finite numbers."""
    if not isinstance(line[name], list) or len(line[name]) != count or not all(map(_finite, line[name])):
        raise ValueError(f"{name} must have a number for each of {count} validations, got {_short(line[name])}")


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _short(value: Any) -> str:
    return f"{len(value)}: {value[:3]!r}" if isinstance(value, list) else repr(value)


def study_of(line: Line) -> Study:
    """The study that a line names. Older lines name none: of those with such a part and such an encoding, the one from whose
    settings it is least far."""
    if "study" in line:
        study = STUDIES[known("study", line["study"], STUDIES)]
        known("part", line["part"], study.parts)
        known("encoding of this study", line["name"], study.encodings)
        return study
    part = known("part", line["part"], dict.fromkeys(part for study in STUDIES.values() for part in study.parts))
    having = [study for study in STUDIES.values() if part in study.parts]
    name = known(f"encoding of {part}", line["name"], dict.fromkeys(name for each in having for name in each.encodings))
    return min(
        (study for study in having if name in study.encodings), key=lambda study: len(_apart(study.config(part, {}), line))
    )


def _apart(config: Config, line: Line) -> list[str]:
    """Settings of which a line says something else."""
    own, said = settings(config), told(line["settings"])
    return [name for name in {**own, **said} if own.get(name) != said.get(name)]


def given_of(study: Study, line: Line) -> dict[str, Any]:
    """Settings that were replaced for all parts, as far as lines tell. What they do not say is none."""
    own = study.config(line["part"], {})
    said = {name: line["settings"].get(name) for name in _apart(own, line)} | {"epochs": line["epochs"]}
    config = Config.of(own.document() | said)
    return {name: getattr(config, name) for name in said if getattr(config, name) != getattr(own, name)}


def config_of(study: Study, line: Line, given: Mapping[str, Any]) -> Config:
    """All settings of a run but the one that it began with."""
    said = entry(study.encodings[line["name"]])
    trained = {"name": said.encoding, **said.options}
    if differing := [name for name, value in trained.items() if name != "parts" and line["encoding"].get(name) != value]:
        told = ", ".join(f"{name} is {line['encoding'].get(name)!r} and not {trained[name]!r}" for name in differing)
        raise ValueError(f"its encoding must be what the study calls {line['name']}, and {told}")
    own = study.config(line["part"], given)
    return replace(own, encoding=said.encoding, options=said.options, seed=line["seed"])

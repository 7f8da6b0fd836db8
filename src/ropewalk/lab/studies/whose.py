"""Whose a line is: the study that it is of, and all settings of its run, of which lines leave out what the study says."""

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
    "part": str, "name": str, "seed": int, "epochs": int, "step": int, "curve": list, "probes": dict, "device": str,
    "torch": str, "settings": dict,
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


def study_of(line: Line) -> Study:
    """The study that has such a part and such an encoding; of several, the one from whose settings it is least far."""
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
    own = study.config(line["part"], given)
    return replace(own, encoding=said.encoding, options=said.options, seed=line["seed"])

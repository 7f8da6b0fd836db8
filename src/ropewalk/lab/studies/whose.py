"""Whose a line is: the study that it is of, and all settings of its run, of which lines leave out what the study says."""

import typing
from collections.abc import Mapping
from typing import Any

import torch

from ropewalk import factory
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.factory import Chained
from ropewalk.lab.building import stretch_of
from ropewalk.lab.choose import known
from ropewalk.lab.comparing.entries import SHAPE
from ropewalk.lab.config import Config
from ropewalk.lab.rules import NAME, Rule, between, broken, numbers
from ropewalk.lab.studies import STUDIES
from ropewalk.lab.studies.lines import ELSEWHERE, data_of, settings, told
from ropewalk.lab.studies.study import Study

Line = dict[str, Any]

_OBJECT = Rule("an object", lambda value: isinstance(value, dict))
_NUMBERS = Rule("a list of numbers", numbers)
_NAMED = NAME._replace(default="the study's")
_MOST = 10**12
WANTED = {
    "study": _NAMED, "part": NAME, "name": NAME, "encoding": _OBJECT, "data": _NAMED, "seed": between(0, _MOST),
    "epochs": between(1, _MOST), "step": between(0, _MOST), "curve": _NUMBERS, "box_curve": _NUMBERS._replace(default=[]),
    "probes": _OBJECT, "device": NAME, "torch": NAME, "settings": _OBJECT,
}  # fmt: skip
"""What a line must have, beside what its run came to."""
_SHAPE = dict.fromkeys(("head_dim", "heads", "axes"), between(1, 1024))
"""Of what is built to be compared."""
_SETTINGS = {
    name: Rule("as each run has it", lambda value: value is not None)
    for name, hint in typing.get_type_hints(Config).items()
    if name not in ELSEWHERE and type(None) not in typing.get_args(hint)
}
"""What its settings must have: those that are never none."""


def check(line: Any) -> None:
    """Refuse what is no line."""
    must(line, WANTED)
    must(line["settings"], _SETTINGS, "its settings")
    if strange := [name for name in told(line["settings"]) if name in ELSEWHERE]:
        raise ValueError(f"its settings must not have {', '.join(strange)}, which lines say elsewhere or not at all")


def must(entry: Any, rules: Mapping[str, Rule], what: str = "it") -> None:
    """Refuse what breaks a rule."""
    if fault := broken(entry, rules):
        raise ValueError(f"{what} {fault}")


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
    said = {name: line["settings"].get(name) for name in _apart(own, line)}
    said |= {"epochs": line["epochs"], "data": _data(own, line)}
    config = Config.of(own.document() | said)
    return {name: getattr(config, name) for name in said if getattr(config, name) != getattr(own, name)}


def _data(own: Config, line: Line) -> str:
    """The data of a run: those of its part where its line has the same name for them, or none."""
    said: str = line.get("data", own.data)
    return own.data if said == data_of(own) else said


def check_encoding(line: Line, config: Config) -> None:
    """Refuse a line whose encoding is not that of its run's settings, in its own shape."""
    said, wanted = line["encoding"], f"its encoding must be what the study calls {line['name']}, and"
    if said.get("name") != config.encoding:
        raise ValueError(f"{wanted} name is {said.get('name')!r} and not {config.encoding!r}")
    must(said, _SHAPE, "its encoding")
    shape = {name: said[name] for name in SHAPE if name in said}
    own, came = _options({"name": config.encoding, **shape, **config.options}, config), _options(said, config)
    if differing := [name for name in own if came[name] != own[name]]:
        raise ValueError(f"{wanted} " + ", ".join(f"{name} is {came[name]!r} and not {own[name]!r}" for name in differing))


def _options(said: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """All options of an encoding, those that are not said too, but for what the span of a run stretches."""
    for name in said:
        known(f"option of {config.encoding}", name, ("name", *parameters_of(factory.find(config.encoding))))
    with torch.device("meta"):  # no numbers are drawn
        return _kept(factory.create(**said), stretched=config.span is not None)


def _kept(encoding: Encoding, *, stretched: bool) -> dict[str, Any]:
    if isinstance(encoding, Chained):
        return {"parts": [_kept(part, stretched=stretched) for part in encoding._parts()]}
    left_out = stretch_of(encoding) if stretched else None
    return {name: value for name, value in encoding.config().items() if name != left_out}

"""Whose a line is: the study that it is of, and all settings of its run, of which lines leave out what the study says."""

import typing
from collections.abc import Mapping
from typing import Any

import torch

from ropewalk import factory
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.factory import Chained
from ropewalk.lab.config import Config
from ropewalk.lab.encoding_spec import SHAPE_OPTIONS
from ropewalk.lab.errors import CommandError
from ropewalk.lab.model_building import find_span_option
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.lines import LINE_OMITTED_SETTINGS, drop_unset_settings, get_data_name, get_line_settings
from ropewalk.lab.studies.study import Study
from ropewalk.validation import NAME_RULE, FieldRule, check_choice, find_violation, is_number_list, make_range_rule

LineDocument = dict[str, Any]

_OBJECT = FieldRule("an object", lambda value: isinstance(value, dict))
_NUMBERS = FieldRule("a list of numbers", is_number_list)
_NAMED = NAME_RULE._replace(default="the study's")
_MOST = 10**12
LINE_RULES = {
    "study": _NAMED,
    "part": NAME_RULE,
    "name": NAME_RULE,
    "encoding": _OBJECT,
    "data": _NAMED,
    "seed": make_range_rule(0, _MOST),
    "epochs": make_range_rule(1, _MOST),
    "step": make_range_rule(0, _MOST),
    "curve": _NUMBERS,
    "box_curve": _NUMBERS._replace(default=[]),
    "probes": _OBJECT,
    "device": NAME_RULE,
    "torch": NAME_RULE,
    "settings": _OBJECT,
}
"""What a line must have, beside what its run came to."""
_SHAPE = dict.fromkeys(("head_dim", "heads", "axes"), make_range_rule(1, 1024))
"""Of what is built to be compared."""
_SETTINGS = {
    name: FieldRule("as each run has it", lambda value: value is not None)
    for name, hint in typing.get_type_hints(Config).items()
    if name not in LINE_OMITTED_SETTINGS and type(None) not in typing.get_args(hint)
}
"""What its settings must have: those that are never none."""


def check_line(line: Any) -> None:
    """Refuse what is no line."""
    check_line_fields(line, LINE_RULES)
    check_line_fields(line["settings"], _SETTINGS, "its settings")
    if strange := [name for name in drop_unset_settings(line["settings"]) if name in LINE_OMITTED_SETTINGS]:
        raise ValueError(f"its settings must not have {', '.join(strange)}, which lines say elsewhere or not at all")


def check_line_fields(entry: Any, rules: Mapping[str, FieldRule], what: str = "it") -> None:
    """Refuse what breaks a rule."""
    if fault := find_violation(entry, rules):
        raise ValueError(f"{what} {fault}")


def find_line_study(line: LineDocument) -> Study:
    """The study that a line names. Older lines name none: of those with such a part and such an encoding, the one from whose
    settings it is least far."""
    if "study" in line:
        study = ALL_STUDIES[check_choice("study", line["study"], ALL_STUDIES, error=CommandError)]
        check_choice("part", line["part"], study.parts, error=CommandError)
        check_choice("encoding", line["name"], study.encodings, of=study.name, error=CommandError)
        return study
    parts = dict.fromkeys(part for study in ALL_STUDIES.values() for part in study.parts)
    part = check_choice("part", line["part"], parts, error=CommandError)
    having = [study for study in ALL_STUDIES.values() if part in study.parts]
    known = dict.fromkeys(name for each in having for name in each.encodings)
    name = check_choice("encoding", line["name"], known, of=part, error=CommandError)
    return min(
        (study for study in having if name in study.encodings), key=lambda study: len(_apart(study.config(part, {}), line))
    )


def _apart(config: Config, line: LineDocument) -> list[str]:
    """Settings of which a line says something else."""
    own, said = get_line_settings(config), drop_unset_settings(line["settings"])
    return [name for name in {**own, **said} if own.get(name) != said.get(name)]


def find_replaced_settings(study: Study, line: LineDocument) -> dict[str, Any]:
    """Settings that were replaced for all parts, as far as lines tell. What they do not say is none."""
    own = study.config(line["part"], {})
    said = {name: line["settings"].get(name) for name in _apart(own, line)}
    said |= {"epochs": line["epochs"], "data": _data(own, line)}
    config = Config.of(own.document() | said)
    return {name: getattr(config, name) for name in said if getattr(config, name) != getattr(own, name)}


def _data(own: Config, line: LineDocument) -> str:
    """The data of a run: those of its part where its line has the same name for them, or none."""
    said: str = line.get("data", own.data)
    return own.data if said == get_data_name(own) else said


def check_line_encoding(line: LineDocument, config: Config) -> None:
    """Refuse a line whose encoding is not that of its run's settings, in its own shape."""
    said, wanted = line["encoding"], f"its encoding must be what the study calls {line['name']}, and"
    if said.get("name") != config.encoding:
        raise ValueError(f"{wanted} name is {said.get('name')!r} and not {config.encoding!r}")
    check_line_fields(said, _SHAPE, "its encoding")
    shape = {name: said[name] for name in SHAPE_OPTIONS if name in said}
    own, came = _options({"name": config.encoding, **shape, **config.options}, config), _options(said, config)
    if differing := [name for name in own if came[name] != own[name]]:
        raise ValueError(f"{wanted} " + ", ".join(f"{name} is {came[name]!r} and not {own[name]!r}" for name in differing))


def _options(said: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """All options of an encoding, those that are not said too, but for what the span of a run stretches."""
    for name in said:
        known = ("name", *parameters_of(factory.find(config.encoding)))
        check_choice("option", name, known, of=config.encoding, error=CommandError)
    with torch.device("meta"):  # no numbers are drawn
        return _kept(factory.from_config(said), stretched=config.span is not None)


def _kept(encoding: Encoding, *, stretched: bool) -> dict[str, Any]:
    if isinstance(encoding, Chained):
        return {"parts": [_kept(part, stretched=stretched) for part in encoding._parts()]}
    left_out = find_span_option(encoding) if stretched else None
    return {name: value for name, value in encoding.config().items() if name != left_out}

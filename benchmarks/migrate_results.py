"""Convert results of earlier versions, JSON lines without a `format`, to the JSON lines of RunRecord, in place.

python benchmarks/migrate_results.py results/*/*.jsonl

An earlier line has no weights, no training loss and no full config. What it did not record is null. The study supplies
the options of the encoding and, if the line names the same dataset or none, the path of the data. `run` is null since
the name of a run depends on that path. Lines that are already converted are kept. A file is replaced only if each
earlier line can be recovered from its record, so no number is lost.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import tyro

from ropewalk.lab.config import UNHASHED_FIELDS, Config
from ropewalk.lab.errors import CommandError
from ropewalk.lab.record import RECORD_FORMAT, RunRecord
from ropewalk.lab.record_lines import load_records, write_records
from ropewalk.lab.sealed_files import write_atomically
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.study import Study
from ropewalk.lab.task_types import BOX_AP, select_metric
from ropewalk.validation import check_choice

Line = dict[str, Any]
RESULT_PREFIXES = ("test_", "validation_")
RESULT_FIELDS = ("step", "seconds", "parameters", "encoding_parameters")
CURVES = ("curve", "box_curve")
LINE_FIELDS = {
    "study", "part", "name", "encoding", "seed", "data", "epochs", *RESULT_FIELDS, *CURVES, "probes", "device", "torch",
    "settings",
}  # fmt: skip
EXACT_DIGITS = 17


@dataclass(frozen=True)
class StudySettings:
    """The study of a line, and the part whose settings are nearest to it."""

    study: Study
    part: str


def migrate_file(path: Path) -> int:
    """Convert a file, and return the number of lines that were converted."""
    documents = [_parse_line(path, number, line) for number, line in enumerate(path.read_text().splitlines(), 1)]
    earlier = [each for each in documents if "format" not in each]
    if not earlier:
        return 0
    records: list[RunRecord] = []
    for number, document in enumerate(documents, 1):
        try:
            records.append(RunRecord.from_dict(document) if "format" in document else convert_line(document))
        except KeyError as error:
            raise ValueError(f"line {number} of {path} cannot be converted: missing {error}") from error
        except (CommandError, ValueError, TypeError, ArithmeticError) as error:
            raise ValueError(f"line {number} of {path} cannot be converted: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        written = write_records(Path(folder) / path.name, records, digits=EXACT_DIGITS)
        _check_lossless(path, documents, load_records(written))
        write_atomically(path, lambda part: part.write_bytes(written.read_bytes()))
    return len(earlier)


def convert_line(line: Line) -> RunRecord:
    """Convert an earlier line. Raises KeyError, ValueError or TypeError if it is not one of a registered study."""
    if unknown := [name for name in line if name not in LINE_FIELDS and not name.startswith(RESULT_PREFIXES)]:
        raise ValueError(f"unknown fields {', '.join(unknown)}")
    found = find_study(line)
    config, origins = _restore_config(found, line)
    result = {name: value for name, value in line.items() if name in RESULT_FIELDS or name.startswith(RESULT_PREFIXES)}
    if (score := f"test_{select_metric(config.document()).key}") not in result:
        raise KeyError(score)
    if not _contains(line["encoding"], {"name": config.encoding, **config.document()["options"]}):
        raise ValueError(f"encoding must be that of {line['name']} in the study, got {line['encoding']}")
    record = RunRecord(
        config=config,
        run=None,
        unrecorded=UNHASHED_FIELDS,
        origins=origins,
        encoding=line["encoding"],
        study=found.study.name,
        part=line["part"],
        name=line["name"],
        result=result,
        metrics=_restore_metrics(config, line),
        probes=line["probes"],
        versions={"torch": line["torch"]},
        machine={"device": line["device"]},
        data={"name": line["data"]} if "data" in line else None,
    )
    return RunRecord.from_dict(record.to_dict())  # which checks it


def find_study(line: Line) -> StudySettings:
    """The study that a line names; lines that name none belong to the study and part with the nearest settings."""
    choices = [
        StudySettings(study, part)
        for study in ALL_STUDIES.values()
        if line.get("study", study.name) == study.name and line["name"] in study.encodings
        for part in study.parts
    ]
    choices = [each for each in choices if each.part == line["part"]] or choices
    if not choices:
        if "study" in line:
            check_choice("study", line["study"], ALL_STUDIES)
        raise ValueError(f"no study has an encoding {line['name']!r}")
    return min(choices, key=lambda each: len(_list_differences(each.study.config(each.part), line)))


def _list_differences(config: Config, line: Line) -> list[str]:
    """Settings that a line has and a config has not."""
    own = config.document()
    return [name for name, value in _list_settings(line) if value != own[name]]


def _list_settings(line: Line) -> Iterator[tuple[str, Any]]:
    """All settings that lines recorded. Those that were None were left out, as were those that did not exist yet."""
    left_out = ("encoding", "options", "seed", "data", "start", *UNHASHED_FIELDS)
    settings = line["settings"] | {"epochs": line["epochs"]}
    if unknown := [name for name, value in settings.items() if name in left_out and value is not None]:
        raise ValueError(f"settings must not have {', '.join(unknown)}")
    if unknown := sorted(settings.keys() - {each.name for each in fields(Config)}):
        raise ValueError(f"unknown settings {', '.join(unknown)}")
    yield from ((each.name, settings.get(each.name)) for each in fields(Config) if each.name not in left_out)


def _restore_config(found: StudySettings, line: Line) -> tuple[Config, tuple[Config, ...]]:
    """The settings of a run, and those of the run that it was initialised from."""
    study, base = found.study, found.study.config(found.part)
    settings = dict(_list_settings(line))
    if line.get("data", Path(base.data).name) != Path(base.data).name:
        settings["data"] = line["data"]
    given = vars(Config.of(base.document() | settings))
    given = {name: given[name] for name in settings if given[name] != getattr(base, name)}
    config = study.run_config(found.part, line["name"], line["seed"], given)
    if study.parts[found.part].after is None:
        return config, ()
    origin = study.origin_config(found.part, line["name"], line["seed"], given)
    return replace(config, start=f"runs/{origin.name}"), (origin,)


def _restore_metrics(config: Config, line: Line) -> list[dict[str, float]]:
    """The validation metrics of each epoch that had a validation."""
    epochs = (*config.validation_epochs, config.epochs)
    keys = {"curve": select_metric(config.document()).key, "box_curve": BOX_AP.key}
    if config.task != "masks" and "box_curve" in line:
        raise ValueError("only instance segmentation has a box_curve")
    rows = [{"step": line["step"] * epoch // config.epochs, "epoch": epoch} for epoch in epochs]
    for name in CURVES if config.task == "masks" else CURVES[:1]:
        if len(line[name]) != len(epochs):
            raise ValueError(f"{name} must have a number for each of {len(epochs)} validations, got {len(line[name])}")
        rows = [row | {f"validation_{keys[name]}": value} for row, value in zip(rows, line[name], strict=True)]
    return rows


def _contains(whole: Any, part: Any) -> bool:
    """Whether a JSON value has all entries of another."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(name in whole and _contains(whole[name], value) for name, value in part.items())
    if isinstance(whole, list) and isinstance(part, list):
        return len(whole) == len(part) and all(map(_contains, whole, part))
    return bool(whole == part)


def recover_line(record: RunRecord) -> Line:
    """The earlier line of a record, with all settings."""
    config, metric = record.config.document(), select_metric(record.config.document())
    return {
        **{"study": record.study, "part": record.part, "name": record.name, "encoding": record.encoding},
        **{"seed": config["seed"], "epochs": config["epochs"], "data": (record.data or {}).get("name")},
        **(record.result or {}),
        **{"curve": record.list_metric(f"validation_{metric.key}"), "probes": record.probes},
        **{"box_curve": record.list_metric(f"validation_{BOX_AP.key}")},
        **{"device": (record.machine or {}).get("device"), "torch": (record.versions or {}).get("torch")},
        "settings": config,
    }


def _check_lossless(path: Path, documents: list[Line], records: list[RunRecord]) -> None:
    if len(documents) != len(records):
        raise ValueError(f"{path} has {len(documents)} lines of {len(records)} runs: remove those that are there twice")
    for number, (document, record) in enumerate(zip(documents, records, strict=True), 1):
        if "format" in document:
            continue
        recovered = recover_line(record)
        given = {name: value for name, value in document["settings"].items() if value is not None}
        lost = [name for name, value in document.items() if name != "settings" and value != recovered[name]]
        lost += [name for name, value in given.items() if value != recovered["settings"][name]]
        if lost:
            raise ValueError(f"line {number} of {path} would lose {', '.join(lost)}")


def _parse_line(path: Path, number: int, line: str) -> Line:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number} of {path} must be JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise ValueError(f"line {number} of {path} must be an object, got {type(document).__name__}")
    if "format" in document and document["format"] != RECORD_FORMAT:
        raise ValueError(f"line {number} of {path} must have format {RECORD_FORMAT!r}, got {document['format']!r}")
    return dict(document)


def migrate_results(paths: tyro.conf.Positional[list[Path]]) -> None:
    """Convert files of JSON lines in place.

    Args:
        paths: Files, such as results/equivariance/main.jsonl.
    """
    for path in paths:
        print(f"{path}: {migrate_file(path)} lines converted")


if __name__ == "__main__":
    tyro.cli(migrate_results)

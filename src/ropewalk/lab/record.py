"""The record of a run: settings, results, measurements and provenance, read from a run directory or from a JSON line.

    record = load_run("runs/axial-seed0-0123456789")
    write_records(Path("main.jsonl"), [record])
    load_records(Path("main.jsonl"))[0].result["test_accuracy"]

Everything that reads results takes `RunRecord`s. In a run directory the fields come from

    config.json        config; the settings of the runs it was initialised from come from their own directories
    environment.json   encoding, commit, versions, machine, attention_kernel, processes, neighbors, data, created, index_seed
    metrics.jsonl      metrics
    result.json        result, test_correct
    probes.json        probes
    failed.txt         failure

A JSON line is `RunRecord.to_dict()`: metrics are stored by column, and what was never recorded is null. Numbers that are not
finite are dropped when a directory is read, and refused in JSON lines.
"""

import base64
import binascii
import fcntl
import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from ropewalk.lab.config import UNHASHED_FIELDS, Config
from ropewalk.lab.encoding_spec import get_encoding_label
from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.run_store import RunFolder, write_atomically
from ropewalk.lab.task_types import select_metric
from ropewalk.validation import (
    NAME_RULE,
    FieldRule,
    find_violation,
    is_finite_number,
    is_integer,
    is_nonempty_string,
    make_range_rule,
)

RECORD_FORMAT = "ropewalk record 1"
RECORD_DIGITS = 5
"""Significant digits of results, metrics and probes in JSON lines; settings and encodings are written in full."""
MAX_LINE_BYTES = 2**26
"""Longest JSON line that is read."""
MAX_ORIGINS = 16
"""Longest chain of runs, each initialised from the next, that is followed."""
MAX_COUNT = 10**12


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run. Fields that were never recorded are None or empty.

    config            All settings. Those of UNHASHED_FIELDS that were not recorded have their defaults.
    run               The name of the run, which ends in the hash of its settings. None if it was not recorded, as in results
                      of earlier versions, which kept the name of the data and not its folder.
    unrecorded        The settings among UNHASHED_FIELDS that were not recorded; null in the JSON line.
    origins           Settings of the run it was initialised from, of the run that was initialised from, and so on.
    encoding          The whole config of the encoding as it was built.
    study, part, name The study, its part, and the name of the encoding in the study.
    result            Numbers by name: test_accuracy, validation_loss, step, seconds, parameters, encoding_parameters.
                      None if the run is not finished.
    metrics           Numbers by name for each epoch: step, epoch, loss, validation_accuracy.
    probes            Rows by the name of the probe.
    commit            Of the source tree; `versions` are those of ropewalk, torch, triton, CUDA, Python and others.
    machine           device, processor, cores and threads.
    attention_kernel  The kernels that attention was restricted to.
    processes         Processes of this training; `neighbors` counts other trainings on the machine at the same time.
    data              name, sha256, and counts of samples in train, validation and test.
    created           When training began, in UTC.
    test_correct      One bit for each test image, in the order of the dataset's own index, as `pack_bits` gives it.
    index_seed        Seed of the permutation that split the dataset.
    failure           Why training ended without a result.
    location          The run directory, as a path or a URL. None if the record was read from a JSON line.
    problems          Files in the directory that could not be read. Like `location`, not part of the JSON line.
    """

    config: Config
    run: str | None
    unrecorded: tuple[str, ...] = ()
    origins: tuple[Config, ...] = ()
    encoding: dict[str, Any] | None = None
    study: str | None = None
    part: str | None = None
    name: str | None = None
    result: dict[str, float] | None = None
    metrics: list[dict[str, float]] = field(default_factory=list)
    probes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    commit: str | None = None
    versions: dict[str, Any] | None = None
    machine: dict[str, Any] | None = None
    attention_kernel: str | None = None
    processes: int | None = None
    neighbors: int | None = None
    data: dict[str, Any] | None = None
    created: str | None = None
    test_correct: str | None = None
    index_seed: int | None = None
    failure: str | None = None
    location: str | None = None
    problems: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The encoding with its options, as on the command line."""
        return get_encoding_label(self.config)

    @property
    def data_name(self) -> str:
        """The name of the data, without the folder that they lie in."""
        return Path(self.config.data).absolute().name

    @property
    def score(self) -> float | None:
        """The test metric of the run's task; None if the run is not finished."""
        return (self.result or {}).get(f"test_{select_metric(self.config.document()).key}")

    def list_metric(self, name: str) -> list[float]:
        """The values of a metric over training, from those epochs that have it."""
        return [each[name] for each in self.metrics if name in each]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, without `location` and `problems`."""
        return {
            "format": RECORD_FORMAT,
            **{name: getattr(self, name) for name in ("study", "part", "name", "run")},
            "config": self.config.document() | dict.fromkeys(self.unrecorded),
            "origins": [each.document() | dict.fromkeys(self.unrecorded) for each in self.origins],
            "encoding": self.encoding,
            "result": self.result,
            "metrics": _to_columns(self.metrics),
            "probes": self.probes,
            **{name: getattr(self, name) for name in _PROVENANCE},
            "test_correct": self.test_correct,
            "failure": self.failure,
        }

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Read what `to_dict` returned. Raises ValueError if a field is missing, unknown, or of the wrong type or size."""
        _check_document(document)
        unrecorded = tuple(name for name in UNHASHED_FIELDS if document["config"].get(name, "") is None)
        record = cls(
            **{name: document[name] for name in document if name not in ("format", "config", "origins", "metrics")},
            config=_read_config(document["config"]),
            unrecorded=unrecorded,
            origins=tuple(_read_config(each) for each in document["origins"]),
            metrics=_from_columns(document["metrics"]),
        )
        _check_consistency(record)
        return record


def load_run(path: Path | str) -> RunRecord:
    """Load a run directory. Missing files are skipped; files that cannot be read are listed in `problems`.

    Raises ValueError or DamagedFileError if there is no readable config.json.
    """
    run = RunFolder.at(path)
    problems: list[str] = []

    def attempt(read: Callable[[], Any], default: Any) -> Any:
        try:
            found = read()
        except (DamagedFileError, OSError) as error:
            problems.append(str(error).replace(str(run.path), run.path.name))
            return default
        return default if found is None else found

    problems += filter(None, [run.find_name_problem()])
    result = attempt(run.result, None)
    environment = attempt(lambda: run.read_document("environment.json"), {})
    probes = attempt(lambda: run.read_document("probes.json"), {})
    problems += [
        f"{run.path.name}/probes.json must have a list of objects as {name}, got {reprlib.repr(rows)}"
        for name, rows in probes.items()
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows)
    ]
    metrics, failure = attempt(run.metrics, []), attempt(lambda: _read_failure(run.path / "failed.txt"), None)
    found = attempt(run.find_metrics_problems, []) if result is not None else []
    problems += [each.replace(str(run.path), run.path.name) for each in found if each not in problems]
    correct = (result or {}).get("test_correct")
    return RunRecord(
        config=run.config,
        run=run.config.name,
        origins=_load_origins(run),
        result=None if result is None else _select_finite(result),
        metrics=[_select_finite(each) for each in metrics if isinstance(each, dict)],
        probes=_select_rows(probes),
        **{name: found for name, rule in _PROVENANCE.items() if rule.right(found := environment.get(name))},
        encoding=found if isinstance(found := environment.get("encoding"), dict) else None,
        test_correct=correct if isinstance(correct, str) else None,
        failure=failure if result is None else None,
        location=str(run.path),
        problems=tuple(problems),
    )


def load_records(path: Path | str) -> list[RunRecord]:
    """Load a file of JSON lines. Raises DamagedFileError with the file and line if one is not a valid record."""
    return [_read_line(path, number, line) for number, line in enumerate(_read_lines(Path(path)), 1)]


def write_records(path: Path, records: Iterable[RunRecord], *, digits: int = RECORD_DIGITS) -> Path:
    """Write records to a file of JSON lines, where they replace those of the same run, study and part; others are kept.

    The file is replaced atomically, under a lock, so that several processes can write to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        merged = {_identify(each): each for each in (load_records(path) if path.exists() else [])}
        merged |= {_identify(each): each for each in records}
        text = "".join(f"{_format_line(each, digits)}\n" for each in merged.values())
        write_atomically(path, lambda part: part.write_text(text))
    return path


def pack_bits(correct: Sequence[bool]) -> str:
    """Encode one bit per test image as base64 of big-endian bytes."""
    return base64.b64encode(np.packbits(np.asarray(correct, dtype=bool)).tobytes()).decode()


def unpack_bits(text: str, count: int) -> list[bool]:
    """Decode what `pack_bits` returned for so many images."""
    data = base64.b64decode(text, validate=True)
    if len(data) != -(-count // 8):
        raise ValueError(f"test_correct must hold {count} bits, got {len(data)} bytes")
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=count).astype(bool).tolist()


# Run directories


def _load_origins(run: RunFolder) -> tuple[Config, ...]:
    """Follow `start`; a directory that is not at its path is looked for beside the run that names it."""
    found: list[Config] = []
    while len(found) < MAX_ORIGINS and (origin := _open_origin(run)) is not None:
        found.append(origin.config)
        run = origin
    return tuple(found)


def _open_origin(run: RunFolder) -> RunFolder | None:
    folder = run.config.start_path
    for place in () if folder is None else (folder, run.path.parent / folder.name):
        try:
            return RunFolder.at(place)
        except (ValueError, DamagedFileError, OSError):
            continue
    return None


def _read_failure(path: Path) -> str | None:
    return path.read_text(errors="replace").strip() or None if path.is_file() else None


def _select_finite(record: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in record.items() if is_finite_number(value)}


def _select_rows(document: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    lists = {name: value for name, value in document.items() if isinstance(value, list)}
    return {name: [_drop_nonfinite(each) for each in rows if isinstance(each, dict)] for name, rows in lists.items()}


def _drop_nonfinite(value: Any) -> Any:
    """Replace floats that are not finite by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _drop_nonfinite(each) for name, each in value.items()}
    return [_drop_nonfinite(each) for each in value] if isinstance(value, list) else value


# JSON lines


def _read_lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path} must be text in UTF-8: {error}") from error
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror or error}") from error
    return lines if lines[-1] else lines[:-1]


def _read_line(path: Path | str, number: int, line: str) -> RunRecord:
    try:
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"it must have at most {MAX_LINE_BYTES:,} characters, got {len(line):,}")
        return RunRecord.from_dict(json.loads(line, parse_constant=_refuse_constant))
    except json.JSONDecodeError as error:
        raise DamagedFileError(f"line {number} of {path} must be JSON: {error}") from error
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise DamagedFileError(f"line {number} of {path} is not a valid record: {error}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"numbers must be finite, got {name}")


def _format_line(record: RunRecord, digits: int) -> str:
    document = record.to_dict()
    document |= {name: _round(document[name], digits) for name in ("result", "metrics", "probes")}
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def _round(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {name: _round(each, digits) for name, each in value.items()}
    return [_round(each, digits) for each in value] if isinstance(value, list) else value


def _identify(record: RunRecord) -> tuple[str | None, ...]:
    return record.study, record.part, record.run or record.config.name


def _read_config(document: Mapping[str, Any]) -> Config:
    """Settings that change no result may be null."""
    return Config.of({name: value for name, value in document.items() if value is not None or name not in UNHASHED_FIELDS})


def _to_columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float | None]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _from_columns(columns: Mapping[str, Sequence[float | None]]) -> list[dict[str, float]]:
    count = len(next(iter(columns.values()), ()))
    return [{name: value for name, values in columns.items() if (value := values[i]) is not None} for i in range(count)]


# Validation


def _or_null(rule: FieldRule) -> FieldRule:
    return FieldRule(f"{rule.wanted} or null", lambda value: value is None or rule.right(value))


def _is_result(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_finite_number, value.values()))


def _is_columns(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(column, list) and all(each is None or is_finite_number(each) for each in column)
        for column in value.values()
    )


def _is_probes(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(rows, list) and all(isinstance(row, dict) for row in rows) for rows in value.values()
    )


def _is_data(value: Any) -> bool:
    """Whether data have a name, a hash and counts where they have them at all."""
    if not isinstance(value, dict):
        return False
    counts = value.get("counts")
    return (
        all(value.get(name) is None or is_nonempty_string(value[name]) for name in ("name", "sha256"))
        and (counts is None or isinstance(counts, dict))
        and all(is_integer(each) and 0 <= each <= MAX_COUNT for each in (counts or {}).values())
    )


def _is_base64(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return False


_OBJECT = FieldRule("an object", lambda value: isinstance(value, dict))
_COUNT = _or_null(make_range_rule(0, MAX_COUNT))
_TEXT = _or_null(NAME_RULE)
_PROVENANCE = {
    "commit": _TEXT,
    "versions": _or_null(_OBJECT),
    "machine": _or_null(_OBJECT),
    "attention_kernel": _TEXT,
    "processes": _COUNT,
    "neighbors": _COUNT,
    "data": _or_null(FieldRule("an object with name, sha256 and counts of samples", _is_data)),
    "created": _TEXT,
    "index_seed": _COUNT,
}
"""Fields of environment.json; their names are those of the record."""
_RULES = {
    "study": _TEXT,
    "part": _TEXT,
    "name": _TEXT,
    "run": _TEXT,
    "config": _OBJECT,
    "origins": FieldRule(
        f"a list of at most {MAX_ORIGINS} objects",
        lambda value: (
            isinstance(value, list) and len(value) <= MAX_ORIGINS and all(isinstance(each, dict) for each in value)
        ),
    ),
    "encoding": _or_null(_OBJECT),
    "result": _or_null(FieldRule("an object of finite numbers", _is_result)),
    "metrics": FieldRule("an object of lists of finite numbers", _is_columns),
    "probes": FieldRule("an object of lists of objects", _is_probes),
    **_PROVENANCE,
    "test_correct": _or_null(FieldRule("base64", _is_base64)),
    "failure": _TEXT,
}
assert {*_RULES} == {each.name for each in fields(RunRecord)} - {"location", "problems", "unrecorded"}


def _check_document(document: Any) -> None:
    if not isinstance(document, dict):
        raise ValueError(f"it must be an object, got {type(document).__name__}")
    if "format" not in document and "settings" in document:
        raise ValueError("it has the format of earlier versions: convert the file with benchmarks/migrate_results.py")
    if document.get("format") != RECORD_FORMAT:
        raise ValueError(f"format must be {RECORD_FORMAT!r}, got {document.get('format')!r}")
    if missing := [name for name in _RULES if name not in document]:
        raise ValueError(f"missing {', '.join(missing)}")
    if unknown := [name for name in document if name not in _RULES and name != "format"]:
        raise ValueError(f"unknown {', '.join(unknown)}; expected {', '.join(_RULES)}")
    if fault := find_violation(document, _RULES):
        raise ValueError(f"it {fault}")
    lengths = {name: len(column) for name, column in document["metrics"].items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of metrics must have equal lengths, got {lengths}")


def _check_consistency(record: RunRecord) -> None:
    """Check that fields agree with each other, which damaged and edited lines do not."""
    if record.run not in (None, record.config.name):
        raise ValueError(f"run must be the name of its config, {record.config.name!r}, got {record.run!r}")
    built = record.config.encoding if record.encoding is None else str(record.encoding.get("name"))
    if built != record.config.encoding and ":" not in built:  # module:Class may have been given by another path
        raise ValueError(f"encoding must have the name {record.config.encoding!r}, got {built!r}")
    counts = (record.data or {}).get("counts") or {}
    if record.test_correct is not None and "test" in counts:
        unpack_bits(record.test_correct, counts["test"])

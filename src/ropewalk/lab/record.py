"""The record of a run: settings, results, measurements and provenance.

    record = load_run("runs/axial-seed0-0123456789")       # ropewalk.lab.run_loading
    write_records(Path("main.jsonl"), [record])            # ropewalk.lab.record_lines
    load_records(Path("main.jsonl"))[0].result["test_accuracy"]

Everything that reads results takes `RunRecord`s. As plain JSON values, metrics are stored by column, and what was never
recorded is null. Fields may be added to this format: those that are null where they are unknown may be absent, and fields
that this version does not know are ignored. Settings are the exception: an unknown one is refused, since it may change
results.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from ropewalk.lab.config import UNHASHED_FIELDS, Config
from ropewalk.lab.encoding_spec import get_encoding_label
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
            **{name: getattr(self, name) for name in PROVENANCE_RULES},
            "test_correct": self.test_correct,
            "failure": self.failure,
        }

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Read what `to_dict` returned. Raises ValueError if a field is of the wrong type or size, or missing.

        Fields that may be null may be missing, too. Unknown fields, of a later version, are ignored.
        """
        _check_document(document)
        unrecorded = tuple(name for name in UNHASHED_FIELDS if document["config"].get(name, "") is None)
        record = cls(
            **{name: document.get(name) for name in _RULES if name not in ("config", "origins", "metrics")},
            config=_read_config(document["config"]),
            unrecorded=unrecorded,
            origins=tuple(_read_config(each) for each in document["origins"]),
            metrics=_from_columns(document["metrics"]),
        )
        _check_consistency(record)
        return record


def pack_bits(correct: Sequence[bool]) -> str:
    """Encode one bit per test image as base64 of big-endian bytes."""
    return base64.b64encode(np.packbits(np.asarray(correct, dtype=bool)).tobytes()).decode()


def unpack_bits(text: str, count: int) -> list[bool]:
    """Decode what `pack_bits` returned for so many images."""
    data = base64.b64decode(text, validate=True)
    if len(data) != -(-count // 8):
        raise ValueError(f"test_correct must hold {count} bits, got {len(data)} bytes")
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=count).astype(bool).tolist()


# Conversion


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
PROVENANCE_RULES = {
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
    **PROVENANCE_RULES,
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
    if missing := [name for name, rule in _RULES.items() if name not in document and not rule.right(None)]:
        raise ValueError(f"missing {', '.join(missing)}")
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

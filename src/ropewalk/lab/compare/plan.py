"""A comparison: several encodings with the same seeds, which share all other settings, and how far each run is.

    comparison-<hash>.json    encodings, seeds, baseline, settings, and the names of the run directories beside it

The file has no results: they are in the run directories, which several comparisons may share. A table or a report can
therefore be made at any moment, and wherever the directory has been moved. Of a run directory

    result.json               means that the run is finished, whatever else is there
    failed.txt, trace.txt     have the error and the traceback of its last attempt
"""

import contextlib
import fcntl
import hashlib
import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.lab.config import PER_RUN_FIELDS, Config
from ropewalk.lab.console import collapse_whitespace
from ropewalk.lab.encoding_spec import EncodingSpec, ParsedEncoding, parse_encoding
from ropewalk.lab.errors import CommandError, DamagedFileError, translate_value_errors
from ropewalk.lab.file_gate import open_regular_file, read_file_text, resolve_inside
from ropewalk.lab.run_location import parse_location
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json, write_atomically, write_json
from ropewalk.lab.task_types import TOP1_ACCURACY, RunMetric, find_recorded_metric, select_metric
from ropewalk.validation import is_finite_number

FAILURE_FILE, TRACEBACK_FILE = "failed.txt", "trace.txt"


class RunOutcome(NamedTuple):
    """The result of a run, or a note why it has none."""

    result: dict[str, Any] | None
    note: str


def read_outcome(path: Path) -> RunOutcome:
    """Read the result of a run directory, which need not exist."""
    if (path / "result.json").exists():
        return _read_result(path / "result.json")
    if (path / FAILURE_FILE).exists():
        return RunOutcome(None, f"failed: {_read_failure(path / FAILURE_FILE)}")
    return RunOutcome(None, "begun" if (path / "config.json").exists() else "not begun")


def _read_failure(path: Path) -> str:
    try:
        return collapse_whitespace(read_file_text(path, errors="replace"))
    except (OSError, ValueError) as error:
        return f"{path.name} cannot be read: {collapse_whitespace(error)}"


def _read_result(path: Path) -> RunOutcome:
    """A result that has the fields that tables need."""
    try:
        found = read_json(path, run=path.parent.name)
    except DamagedFileError as error:
        return RunOutcome(None, f"failed: {collapse_whitespace(error)}")
    needed = (f"test_{(find_recorded_metric(found, 'test') or TOP1_ACCURACY).key}", "encoding_parameters")
    if missing := [name for name in needed if not is_finite_number(found.get(name))]:
        return RunOutcome(None, f"failed: {path} has no {', '.join(missing)}")
    return RunOutcome(found, "")


def record_failure(path: Path, error: Exception) -> str:
    """Write failed.txt and trace.txt, if they can be written, and return the message."""
    words = f"{type(error).__name__}: {collapse_whitespace(error)}"
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
        write_atomically(path / FAILURE_FILE, lambda part: part.write_text(f"{words}\n"))
        trace = "".join(traceback.format_exception(error))
        write_atomically(path / TRACEBACK_FILE, lambda part: part.write_text(trace))
    return words


def clear_failure(path: Path) -> None:
    """Remove failed.txt and trace.txt before a new attempt."""
    with contextlib.suppress(OSError):
        for name in (FAILURE_FILE, TRACEBACK_FILE):
            (path / name).unlink(missing_ok=True)


def is_run_locked(path: Path) -> bool:
    """Whether another process has locked the run."""
    try:
        with open_regular_file(path / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


COMPARISON_FORMAT = "ropewalk comparison 1"


class ComparisonRun(NamedTuple):
    """One run: the label of its encoding, its seed, and the name of its folder."""

    label: str
    seed: int
    name: str


@dataclass(frozen=True)
class Comparison:
    """Encodings × seeds. `members` are in the order in which they are trained, seeds outermost.

    runs      The directory of all runs and of the comparison's file.
    baseline  The label of the encoding that the others are compared with; one of the entries.
    settings  The fields of `Config` that all runs share.
    """

    runs: Path
    entries: tuple[ParsedEncoding, ...]
    seeds: tuple[int, ...]
    baseline: str
    settings: dict[str, Any]
    members: tuple[ComparisonRun, ...]

    @classmethod
    def at(cls, path: Path) -> "Comparison":
        """Read a comparison's file."""
        document = read_json(path)
        if document.get("format") != COMPARISON_FORMAT:
            raise DamagedFileError(f"{path} must be a {COMPARISON_FORMAT}, got {document.get('format')!r}")
        try:
            return cls(
                runs=path.parent,
                entries=tuple(ParsedEncoding(each["encoding"], each["options"]) for each in document["encodings"]),
                seeds=tuple(document["seeds"]),
                baseline=document["baseline"],
                settings=_select_shared(Config()) | document["settings"],  # files of earlier versions lack newer settings
                members=tuple(
                    ComparisonRun(each["label"], each["seed"], _check_run_name(path, each["run"]))
                    for each in document["runs"]
                ),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise DamagedFileError(f"{path} has missing or malformed fields ({type(error).__name__}: {error})") from error

    def document(self) -> dict[str, Any]:
        """The content of its file, as plain JSON values."""
        return {
            "format": COMPARISON_FORMAT,
            "baseline": self.baseline,
            "seeds": list(self.seeds),
            "encodings": [
                {"label": each.label, "encoding": each.encoding, "options": each.options} for each in self.entries
            ],
            "settings": self.settings,
            "runs": [{"label": each.label, "seed": each.seed, "run": each.name} for each in self.members],
        }

    @property
    def path(self) -> Path:
        """Its file, named by a hash of its runs and its baseline."""
        identity = json.dumps([self.baseline, *self.members])
        return self.runs / f"comparison-{hashlib.sha256(identity.encode()).hexdigest()[:10]}.json"

    def save(self) -> None:
        """Write its file, atomically."""
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            write_json(self.path, self.document())
        except OSError as error:
            raise CommandError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def config(self, member: ComparisonRun) -> Config:
        """All settings of a run."""
        own = next(each for each in self.entries if each.label == member.label)
        return Config.of({**self.settings, "encoding": own.encoding, "options": own.options, "seed": member.seed})

    @property
    def metric(self) -> RunMetric:
        """The metric of its runs."""
        return select_metric(self.settings)

    def outcome(self, member: ComparisonRun) -> RunOutcome:
        """The result of a run, or a note why it has none."""
        return read_outcome(self.runs / member.name)

    def left(self) -> list[ComparisonRun]:
        """Runs that are not finished."""
        return [member for member in self.members if self.outcome(member).result is None]

    def found(self) -> list[RunFolder]:
        """Run directories that exist."""
        paths = [self.runs / member.name for member in self.members]
        return [RunFolder.at(path) for path in paths if (path / "config.json").is_file()]

    @property
    def code(self) -> int:
        """The exit code of a command: 0 if all runs are finished, 1 if not."""
        return 1 if self.left() else 0


def _check_run_name(path: Path, name: Any) -> str:
    """The name of a run directory beside the file of a comparison, which it may not leave."""
    if not isinstance(name, str) or len(Path(name).parts) != 1:
        raise ValueError(f"names of runs must be those of directories in {path.parent}, got {name!r}")
    resolve_inside(path.parent, name)
    return name


def plan_comparison(
    encodings: Sequence[EncodingSpec], base: Config, runs: Path | str, *, seeds: Sequence[int], baseline: EncodingSpec
) -> Comparison:
    """Plan the runs of a comparison. A baseline that is not among the encodings comes before them."""
    entries, first = [parse_encoding(each) for each in encodings], parse_encoding(baseline)
    entries = entries if first in entries else [first, *entries]
    _check_distinct("encodings", [each.label for each in entries])
    _check_distinct("seeds", seeds)
    if not seeds:
        raise CommandError("a comparison needs at least one seed, got none")
    with translate_value_errors():
        settings = _select_shared(base)
        configs = [
            (each.label, Config.of({**settings, "encoding": each.encoding, "options": each.options, "seed": seed}))
            for seed in seeds
            for each in entries
        ]
    members = tuple(ComparisonRun(label, config.seed, config.name) for label, config in configs)
    return Comparison(parse_location(runs), tuple(entries), tuple(seeds), first.label, settings, members)


def _select_shared(config: Config) -> dict[str, Any]:
    """The settings that all runs of a comparison share."""
    return {name: value for name, value in config.document().items() if name not in PER_RUN_FIELDS}


def _check_distinct(what: str, given: Sequence[Any]) -> None:
    if twice := sorted({each for each in given if given.count(each) > 1}):
        raise CommandError(f"{what} must differ, got {', '.join(map(str, twice))} more than once")

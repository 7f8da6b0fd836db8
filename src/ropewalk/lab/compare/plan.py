"""How far a run of a comparison is, read from its folder.

result.json  it is done, whatever else is there
failed.txt   its last attempt ended with an error: in words; trace.txt says where in the code
neither      it was begun, or not

A comparison: several encodings, each with the same seeds, that share all other settings.

    comparison-<hash>.json    its encodings, seeds, baseline and settings, and the folders of its runs beside it

It holds no results: these are in the folders of the runs, which several comparisons may share. So a table or a report can be
made of it at any moment, finished or not, and wherever the folder has been moved.
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
from ropewalk.lab.metrics import TOP1_ACCURACY, RunMetric, find_recorded_metric, select_metric
from ropewalk.lab.run_store import RunFolder, read_json, write_json
from ropewalk.validation import is_finite_number

FAILURE_FILE, TRACEBACK_FILE = "failed.txt", "trace.txt"


class RunOutcome(NamedTuple):
    """What a run came to, or in words why it came to nothing yet."""

    result: dict[str, Any] | None
    note: str


def read_outcome(path: Path) -> RunOutcome:
    """How far the run in a folder is."""
    if (path / "result.json").exists():
        return _read_result(path / "result.json")
    if (path / FAILURE_FILE).exists():
        return RunOutcome(None, f"failed: {collapse_whitespace((path / FAILURE_FILE).read_text(errors='replace'))}")
    return RunOutcome(None, "begun" if (path / "config.json").exists() else "not begun")


def _read_result(path: Path) -> RunOutcome:
    """A result, if it has what a table needs."""
    try:
        found = read_json(path)
    except DamagedFileError as error:
        return RunOutcome(None, f"failed: {collapse_whitespace(error)}")
    needed = (f"test_{(find_recorded_metric(found, 'test') or TOP1_ACCURACY).key}", "encoding_parameters")
    if missing := [name for name in needed if not is_finite_number(found.get(name))]:
        return RunOutcome(None, f"failed: {path} has no {', '.join(missing)}")
    return RunOutcome(found, "")


def record_failure(path: Path, error: Exception) -> str:
    """Write down why a run ended, if the disk takes it; in words."""
    words = f"{type(error).__name__}: {collapse_whitespace(error)}"
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
        (path / FAILURE_FILE).write_text(f"{words}\n")
        (path / TRACEBACK_FILE).write_text("".join(traceback.format_exception(error)))
    return words


def clear_failure(path: Path) -> None:
    """A new attempt begins: why the last one ended is of no more use."""
    with contextlib.suppress(OSError):
        for name in (FAILURE_FILE, TRACEBACK_FILE):
            (path / name).unlink(missing_ok=True)


def is_run_locked(path: Path) -> bool:
    """Whether another process is writing the run."""
    try:
        with (path / "lock").open() as lock:
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
    """Encodings × seeds. `members` are in the order in which they are trained: seeds outermost.

    runs      The folder of all of them, and of the comparison's own file.
    baseline  The label of the encoding that others are compared with; one of the entries.
    settings  What all runs share, by the names that `Config` has for them.
    """

    runs: Path
    entries: tuple[ParsedEncoding, ...]
    seeds: tuple[int, ...]
    baseline: str
    settings: dict[str, Any]
    members: tuple[ComparisonRun, ...]

    @classmethod
    def at(cls, path: Path) -> "Comparison":
        """One that is there."""
        said = read_json(path)
        if said.get("format") != COMPARISON_FORMAT:
            raise DamagedFileError(f"{path} must be a {COMPARISON_FORMAT}, got {said.get('format')!r}")
        try:
            return cls(
                runs=path.parent,
                entries=tuple(ParsedEncoding(each["encoding"], each["options"]) for each in said["encodings"]),
                seeds=tuple(said["seeds"]),
                baseline=said["baseline"],
                settings=said["settings"],
                members=tuple(ComparisonRun(each["label"], each["seed"], each["run"]) for each in said["runs"]),
            )
        except (KeyError, TypeError) as error:
            raise DamagedFileError(f"{path} is not whole ({type(error).__name__}: {error})") from error

    def document(self) -> dict[str, Any]:
        """As plain JSON values."""
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
        """Its own file, named by a hash of its runs and its baseline."""
        said = json.dumps([self.baseline, *self.members])
        return self.runs / f"comparison-{hashlib.sha256(said.encode()).hexdigest()[:10]}.json"

    def save(self) -> None:
        """Write its file, in one move."""
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
        """What its runs are judged by."""
        return select_metric(self.settings)

    def outcome(self, member: ComparisonRun) -> RunOutcome:
        """How far a run is."""
        return read_outcome(self.runs / member.name)

    def left(self) -> list[ComparisonRun]:
        """Runs that are not done."""
        return [member for member in self.members if self.outcome(member).result is None]

    def found(self) -> list[RunFolder]:
        """The runs that have been begun."""
        paths = [self.runs / member.name for member in self.members]
        return [RunFolder.at(path) for path in paths if (path / "config.json").is_file()]

    @property
    def code(self) -> int:
        """For the command line: 0 if all runs are done, 1 if some are not."""
        return 1 if self.left() else 0


def plan_comparison(
    encodings: Sequence[EncodingSpec], base: Config, runs: Path, *, seeds: Sequence[int], baseline: EncodingSpec
) -> Comparison:
    """The runs of a comparison. A baseline that is not among the encodings comes before them."""
    entries, first = [parse_encoding(said) for said in encodings], parse_encoding(baseline)
    entries = entries if first in entries else [first, *entries]
    _check_distinct("encodings", [each.label for each in entries])
    _check_distinct("seeds", seeds)
    if not seeds:
        raise CommandError("a comparison needs at least one seed, got none")
    with translate_value_errors():
        settings = {name: value for name, value in base.document().items() if name not in PER_RUN_FIELDS}
        configs = [
            (each.label, Config.of({**settings, "encoding": each.encoding, "options": each.options, "seed": seed}))
            for seed in seeds
            for each in entries
        ]
    members = tuple(ComparisonRun(label, config.seed, config.name) for label, config in configs)
    return Comparison(Path(runs), tuple(entries), tuple(seeds), first.label, settings, members)


def _check_distinct(what: str, given: Sequence[Any]) -> None:
    if twice := sorted({each for each in given if given.count(each) > 1}):
        raise CommandError(f"{what} must differ, got {', '.join(map(str, twice))} more than once")

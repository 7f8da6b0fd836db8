"""A run directory, `runs/<name>/`, in the format "ropewalk run 2". It is consistent at every moment.

config.json             settings
environment.json        provenance: commit, versions, machine, data, the encoding as built
metrics.jsonl           one line per validation, appended
checkpoint.safetensors  the state of training, with a checksum; while it trains, the one before is
                        checkpoint.previous.safetensors
result.json             scores, once the run is finished; `test_correct` has one bit per test image
probes.json             rows by the name of the probe
predictions.png         predictions for a few test images, of tasks that find boxes or masks
failed.txt, trace.txt   why the last attempt failed
lock                    locked by the process that writes

A checkpoint may lie anywhere in an epoch. Its tensors are the weights, their moving average, the optimizer's state and the
sum of the losses of the epoch; beside them it has these facts:

step, epoch, batch      steps taken, epochs completed, and batches of the epoch after those that were trained on
seconds                 spent on training
data                    what identifies the data
optimizer               the hyperparameters of each parameter group
logs                    of metrics.jsonl: the number of its lines, and their SHA-256
unvalidated             the losses of an epoch that is complete but not validated, if there is one

A JSON file has beside its own fields the object "ropewalk": the format, the name of the run, and the SHA-256 of the other
fields; that of result.json has `logs`, too. `sealed_files` writes, checks and removes it. Files without it are those of
the format "ropewalk run 1", which are read as well.

Metrics are appended, and on disk before the checkpoint that counts them; those that are later than the checkpoint are
removed when the run is resumed. Other files are replaced atomically. A process that writes notices when its directory was
deleted or replaced, since the lock is another file then. Nothing is unpickled.
"""

import fcntl
import json
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from ropewalk.lab.checkpoint_file import (
    CHECKPOINT_FILE,
    PREVIOUS_CHECKPOINT_FILE,
    Checkpoint,
    read_checkpoint,
    read_latest_checkpoint,
    write_checkpoint,
)
from ropewalk.lab.config import SETTINGS, Config
from ropewalk.lab.environment import continue_environment
from ropewalk.lab.errors import (
    CommandError,
    CommandFailedError,
    DamagedFileError,
    NonFiniteLossError,
    RunBusyError,
    translate_value_errors,
)
from ropewalk.lab.file_gate import open_lock_file, open_own_file
from ropewalk.lab.metrics_log import LogDigest, find_log_problem, list_lines, parse_lines, read_step
from ropewalk.lab.run_location import parse_location
from ropewalk.lab.sealed_files import (
    flush_to_disk,
    make_directory,
    read_json,
    read_sealed,
    seal_document,
    write_atomically,
    write_json,
)

LOCK_FILE, METRICS_FILE, PREDICTIONS_FILE = "lock", "metrics.jsonl", "predictions.png"
LOCK_POLL_SECONDS = 0.1
AVERAGE_PREFIX, MODEL_PREFIX = "average/module.", "model/"
"""How names of weights begin in a checkpoint: those of the moving average, and those that the optimizer updates."""


class RunFolder:
    """The directory of one run. It is created, or found again, from the settings; `acquire` keeps other processes out."""

    def __init__(self, runs: Path | str, config: Config) -> None:
        self.path, self.config, self.name = parse_location(runs) / config.name, config, config.name
        self._is_sealed = True
        self._keeps_newest = True
        self._lock: IO[str] | None = None
        self._written: LogDigest | None = None

    @classmethod
    def at(cls, location: Path | str) -> "RunFolder":
        """Open a run directory that exists."""
        path = parse_location(location)
        if not (path / "config.json").is_file():
            lacks = "it has no config.json" if path.is_dir() else "there is no such directory"
            raise ValueError(f"{path} is not a run directory: {lacks}; expected a directory with config.json")
        document, seal = read_sealed(path / "config.json")
        run = cls(path.parent, _parse_settings(path / "config.json", document))
        if seal and seal.get("run") not in (run.name, path.name):
            raise DamagedFileError(f"{path / 'config.json'} must be that of {run.name}, got that of {seal.get('run')}")
        run.path, run._is_sealed = path, bool(seal)
        run.name = seal.get("run", run.name)  # the same settings had another name in earlier versions
        return run

    def find_name_problem(self) -> str | None:
        """Whether the directory has another name than its run, or than its settings give, so that it is not found again."""
        if self.path.name != self.name and self._is_sealed:
            return f"{self.path} has the run {self.name}: the directory was renamed; rename it back so that the run is found"
        if self.path.name != self.config.name:
            return (
                f"{self.path} has settings whose run is named {self.config.name}: the directory was renamed, config.json "
                "was edited, or another version of ropewalk named it; the same settings begin another run"
            )
        return None

    def acquire(self, environment: Mapping[str, Any]) -> None:
        """Create the directory, or take it over, for this process alone. Files of a finished run are left as they are."""
        make_directory(self.path)
        self.lock_folder()
        try:
            if self.result() is not None:  # another process has finished it since this one looked
                return
            for leftover in self.path.glob("*.part"):
                leftover.unlink()
            self.write_document("config.json", self.config.document())
            before = self.read_document("environment.json")
            now = environment if before is None else continue_environment(before, environment)
            self.write_document("environment.json", now)
        except BaseException:
            self.release()
            raise

    def restore_config(self) -> None:
        """Write config.json of a finished run again if it is missing or damaged; the name of the run is the hash of it."""
        try:
            if self.read_document("config.json") is not None:
                return
        except DamagedFileError as error:
            problem = str(error)
        else:
            problem = f"{self.path / 'config.json'} is missing"
        with self.hold_lock(wait=0.0):
            self.write_document("config.json", self.config.document())
        warnings.warn(f"{problem}; it was written again from the settings of this command", stacklevel=2)

    def update_environment(self, **fields: Any) -> None:
        """Add to environment.json what is known once data and model have been opened."""
        self.write_document("environment.json", (self.read_document("environment.json") or {}) | fields)

    def lock_folder(self, *, wait: float = 0.0) -> None:
        """Keep other processes out of a directory that exists; wait so many seconds at most for one that writes."""
        end = time.monotonic() + wait
        while not self._try_lock():
            if time.monotonic() >= end:
                raise RunBusyError(f"{self.path} is being written by another process")
            time.sleep(LOCK_POLL_SECONDS)

    def _try_lock(self) -> bool:
        path = self.path / LOCK_FILE
        lock = open_lock_file(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock = lock if _is_same_file(lock, path) else None  # it may have been deleted before it was locked
        except BlockingIOError:
            pass
        finally:
            if self._lock is not lock:
                lock.close()
        return self._lock is lock

    def _check_folder(self) -> None:
        """Refuse to write if the directory is no longer the one that this process has locked."""
        if self._lock is not None and not _is_same_file(self._lock, self.path / LOCK_FILE):
            raise RunBusyError(
                f"{self.path} was deleted or replaced while this process was writing to it: its lock is another file; "
                "nothing more is written there, and the same command begins anew"
            )

    @contextmanager
    def hold_lock(self, *, wait: float) -> Iterator[None]:
        """Keep other processes out inside the context, and after it if the lock was held before."""
        if self._lock is not None:
            yield
            return
        self.lock_folder(wait=wait)
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Let other processes in."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # JSON files

    def read_document(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the run, or None if there is none. Raises DamagedFileError if it is damaged or another run's."""
        return read_json(self.path / name, run=self.name) if (self.path / name).exists() else None

    def write_document(self, name: str, document: Mapping[str, Any], **facts: Any) -> None:
        """Replace a JSON file of the run; `facts` stand beside the checksum."""
        self._check_folder()
        write_json(self.path / name, seal_document(document, run=self.name, **facts))

    # Metrics

    def log(self, **record: Any) -> None:
        """Append a line."""
        self._check_folder()
        written, line = self._digest_metrics(), f"{json.dumps(record)}\n".encode()
        with open(open_own_file(self.path / METRICS_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
            file.write(line)
        written.add(line)

    def metrics(self) -> list[dict[str, Any]]:
        """All complete lines: the last one may have been cut off by a kill."""
        return parse_lines(self.path / METRICS_FILE, list_lines(self.path / METRICS_FILE))

    def restore_metrics(self, facts: Mapping[str, Any] | None) -> str | None:
        """Remove metrics that are later than a checkpoint with these facts, or all.

        Lines that the checkpoint counted and that are lost or changed cannot be restored: return a message about them. Later
        lines belong to steps that are trained again; a warning says if they cannot be read.
        """
        path, facts = self.path / METRICS_FILE, facts or {}
        lines, counted = list_lines(path), facts.get("logs", {}).get(METRICS_FILE)
        problem, kept = None, _select_earlier(lines, facts)
        if counted is not None:
            first = lines[: counted["lines"]]
            problem = find_log_problem(path, first, counted)
            kept = kept if problem else first
        unreadable = sum(read_step(line) is None for line in lines)
        missing = self._list_missing_epochs(kept, facts) if problem or (unreadable and counted is None and facts) else []
        if missing:
            problem = f"{problem or f'lines of {path} cannot be read ({unreadable})'}; epochs without metrics: "
            problem += ", ".join(map(str, missing))
        if unreadable and not problem:
            cut = f"lines of {path} that cannot be read were removed ({unreadable}); their steps are trained again"
            warnings.warn(cut, stacklevel=2)
        write_atomically(path, lambda part: part.write_bytes(b"".join(kept)))
        self._written = LogDigest(kept, [*(counted or {}).get("problems", []), *([problem] if problem else [])])
        return problem

    def _list_missing_epochs(self, lines: list[bytes], facts: Mapping[str, Any]) -> list[int]:
        there = {record.get("epoch") for record in parse_lines(self.path / METRICS_FILE, lines)}
        validated = range(1, facts["epoch"] + 1 - ("unvalidated" in facts))
        return [epoch for epoch in validated if self.config.validates_at(epoch) and epoch not in there]

    def find_metrics_problems(self) -> list[str]:
        """What is wrong with the metrics of a finished run: lines that were lost or changed."""
        counted = read_sealed(self.path / "result.json")[1].get("logs", {}).get(METRICS_FILE)
        if counted is None:
            return []
        path = self.path / METRICS_FILE
        problem = find_log_problem(path, list_lines(path), counted)
        return [*counted.get("problems", []), *([problem] if problem else [])]

    def _describe_logs(self) -> dict[str, Any]:
        if (self.path / METRICS_FILE).exists():
            flush_to_disk(self.path / METRICS_FILE)  # before a file that counts its lines
        return {METRICS_FILE: self._digest_metrics().describe()}

    def _digest_metrics(self) -> LogDigest:
        if self._written is None:
            self._written = LogDigest(list_lines(self.path / METRICS_FILE))
        return self._written

    # Checkpoints

    def save_checkpoint(self, tensors: Mapping[str, Tensor], **facts: Any) -> None:
        """Replace the checkpoint; the one before is kept, unless it could not be read."""
        self._check_folder()
        logs = self._describe_logs()
        write_checkpoint(self.path, self.name, tensors, {**facts, "logs": logs}, keeps_newest=self._keeps_newest)
        self._keeps_newest = True

    def load_checkpoint(self) -> Checkpoint | None:
        """The tensors and facts of the newest checkpoint, or None if there is none."""
        path = self.path / CHECKPOINT_FILE
        return self._read_checkpoint(path) if path.exists() else None

    def load_latest_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that can be read, to resume from it. A warning says if it is the previous one."""
        found, problem = read_latest_checkpoint(self.path, self._read_checkpoint)
        if problem is not None:
            self._keeps_newest = False  # the previous one stays until there is another
            warnings.warn(problem, stacklevel=2)
        return found

    def _read_checkpoint(self, path: Path) -> Checkpoint:
        return read_checkpoint(path, self.name, self.path.name)  # some had other names in format 1

    def load_weights(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights of the checkpoint that are evaluated, their moving average if there is one, and its facts."""
        held = self.load_checkpoint()
        if held is None:
            raise ValueError(f"{self.path} must have a {CHECKPOINT_FILE}, but there is none")
        start = MODEL_PREFIX if self.config.ema is None else AVERAGE_PREFIX
        return {name.removeprefix(start): value for name, value in held[0].items() if name.startswith(start)}, held[1]

    # Results

    def finish(self, **result: Any) -> None:
        """Write the result: the run is finished."""
        self.write_document("result.json", result, logs=self._describe_logs())
        (self.path / PREVIOUS_CHECKPOINT_FILE).unlink(missing_ok=True)

    def result(self) -> dict[str, Any] | None:
        """The result, or None if the run is not finished."""
        return self.read_document("result.json")


def _is_same_file(file: IO[str], path: Path) -> bool:
    """Whether an open file is the one at a path, which may have been deleted or replaced."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _select_earlier(lines: Iterable[bytes], facts: Mapping[str, Any]) -> list[bytes]:
    """Lines up to the step of a checkpoint, which may be without that of its last epoch."""
    last = facts.get("step", 0) - ("unjudged" in facts or "unvalidated" in facts)
    return [line for line in lines if (step := read_step(line)) is not None and step <= last]


def _parse_settings(path: Path, document: dict[str, Any]) -> Config:
    """The settings in a config.json. Unknown ones are refused, since they may change results."""
    try:
        return Config.of(document)
    except (ValueError, TypeError) as error:
        newer = "; a run of a newer version of ropewalk needs that version" if document.keys() - SETTINGS.keys() else ""
        raise ValueError(f"{path} has settings that cannot be used: {error}{newer}") from error


@contextmanager
def translate_run_errors() -> Iterator[None]:
    """Raise errors of runs as errors of commands: some refuse the command, non-finite losses and lack of memory fail it."""
    try:
        with translate_value_errors():
            yield
    except (DamagedFileError, RunBusyError) as error:
        raise CommandError(str(error)) from error
    except SafetensorError as error:  # how safetensors reports a full disk
        raise CommandError(f"weights cannot be kept: {error}") from error
    except NonFiniteLossError as error:
        raise CommandFailedError(str(error)) from error
    except torch.OutOfMemoryError as error:
        raise CommandFailedError(f"memory is used up, a smaller batch needs less: {error}") from error

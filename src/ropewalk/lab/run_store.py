"""A run directory, `runs/<name>/`, in the format "ropewalk run 2". It is consistent at every moment.

config.json             settings
environment.json        provenance: commit, versions, machine, data, the encoding as built
metrics.jsonl           one line per validation, appended
checkpoint.safetensors  the state of training, with a checksum
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
fields; that of result.json has `logs`, too. `read_json` checks and removes it. Files without it are those of the format
"ropewalk run 1", which are read as well.

A file is written beside its place and moved there, so that a process that is killed, or a full disk, leaves the old file or
the new one. Metrics are appended, and on disk before the checkpoint that counts them; those that are later than the
checkpoint are removed when the run is resumed. Nothing is unpickled.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ropewalk.lab.config import Config
from ropewalk.lab.environment import continue_environment
from ropewalk.lab.errors import (
    CommandError,
    CommandFailedError,
    DamagedFileError,
    NonFiniteLossError,
    RunBusyError,
    translate_value_errors,
)

RUN_FORMAT = "ropewalk run 2"
READABLE_FORMATS = ("ropewalk run 1", RUN_FORMAT)
FILE_KEY = "ropewalk"
"""The field of a JSON file that has its format, run and checksum."""
METRICS_FILE, PREDICTIONS_FILE = "metrics.jsonl", "predictions.png"
AVERAGE_PREFIX, MODEL_PREFIX = "average/module.", "model/"
"""How names of weights begin in a checkpoint: those of the moving average, and those that the optimizer updates."""


def parse_location(location: Path | str) -> Path:
    """The path of a location: a path, which may begin with `~`, or a file:// URL on this machine."""
    said = str(location)
    url = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?((?:/.*)?)", said, re.DOTALL)
    if url is None or said.endswith(":"):
        return Path(location).expanduser()
    scheme, host, path = url.groups()
    if scheme.lower() != "file" or host not in (None, "", "localhost"):  # a Path has made one slash of two
        raise ValueError(
            f"a location must be a path or a file:// URL of this machine, got {said!r}; copy the run to a local directory"
        )
    return Path(unquote(path))


class RunFolder:
    """The directory of one run. It is created, or found again, from the settings; `acquire` keeps other processes out."""

    def __init__(self, runs: Path | str, config: Config) -> None:
        self.path, self.config = parse_location(runs) / config.name, config
        self._lock: IO[str] | None = None
        self._written: _LogDigest | None = None

    @classmethod
    def at(cls, location: Path | str) -> "RunFolder":
        """Open a run directory that exists."""
        path = parse_location(location)
        if not (path / "config.json").is_file():
            raise ValueError(f"{path} is no run: a run has a config.json")
        document, seal = _read_sealed(path / "config.json")
        run = cls(path.parent, Config.of(document))
        run.path = path
        run._check_seal("config.json", seal)
        return run

    def acquire(self, environment: Mapping[str, Any]) -> None:
        """Create the directory, or take it over, for this process alone."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.lock_folder()
        try:
            for leftover in self.path.glob("*.part"):
                leftover.unlink()
            self.write_document("config.json", self.config.document())
            before = self.read_document("environment.json")
            now = environment if before is None else continue_environment(before, environment)
            self.write_document("environment.json", now)
        except BaseException:
            self.release()
            raise

    def update_environment(self, **fields: Any) -> None:
        """Add to environment.json what is known once data and model have been opened."""
        self.write_document("environment.json", (self.read_document("environment.json") or {}) | fields)

    def lock_folder(self) -> None:
        """Keep other processes out of a directory that exists."""
        self._lock = (self.path / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise RunBusyError(f"{self.path} is being written by another process") from None

    def release(self) -> None:
        """Let other processes in."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # JSON files

    def read_document(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the run, or None if there is none. Raises DamagedFileError if it is damaged or another run's."""
        if not (self.path / name).exists():
            return None
        document, seal = _read_sealed(self.path / name)
        self._check_seal(name, seal)
        return document

    def write_document(self, name: str, document: Mapping[str, Any], **facts: Any) -> None:
        """Replace a JSON file of the run; `facts` stand beside the checksum."""
        seal = {"format": RUN_FORMAT, "run": self.config.name, **facts}
        write_json(self.path / name, {**document, FILE_KEY: {**seal, "sha256": _hash_document(document, seal)}})

    def _check_seal(self, name: str, seal: Mapping[str, Any]) -> None:
        if seal and seal.get("run") not in (self.config.name, self.path.name):
            raise DamagedFileError(f"{self.path / name} must be a file of {self.config.name}, got one of {seal.get('run')}")

    # Metrics

    def log(self, **record: Any) -> None:
        """Append a line."""
        written, line = self._digest_metrics(), f"{json.dumps(record)}\n".encode()
        with (self.path / METRICS_FILE).open("ab") as file:
            file.write(line)
        written.add(line)

    def metrics(self) -> list[dict[str, Any]]:
        """All complete lines: the last one may have been cut off by a kill."""
        return _parse_lines(self.path / METRICS_FILE, _list_lines(self.path / METRICS_FILE))

    def restore_metrics(self, facts: Mapping[str, Any] | None) -> str | None:
        """Remove metrics that are later than a checkpoint with these facts, or all.

        Lines that the checkpoint counted and that are lost or changed cannot be restored: return a message about them.
        """
        path, facts = self.path / METRICS_FILE, facts or {}
        lines, counted = _list_lines(path), facts.get("logs", {}).get(METRICS_FILE)
        kept = self._select_earlier(lines, facts)
        problem = None
        if counted is not None:
            first = lines[: counted["lines"]]
            problem = _find_log_problem(path, first, counted)
            kept = kept if problem else first
        if problem and (missing := self._list_missing_epochs(kept, facts)):
            problem += f"; epochs without metrics: {', '.join(map(str, missing))}"
        write_atomically(path, lambda part: part.write_bytes(b"".join(kept)))
        self._written = _LogDigest(kept, [*(counted or {}).get("problems", []), *([problem] if problem else [])])
        return problem

    def _select_earlier(self, lines: list[bytes], facts: Mapping[str, Any]) -> list[bytes]:
        """Lines up to the step of a checkpoint, which may be without that of its last epoch."""
        last = facts.get("step", 0) - ("unjudged" in facts or "unvalidated" in facts)
        records = _parse_lines(self.path / METRICS_FILE, lines)
        return [line for line, record in zip(lines, records, strict=True) if record["step"] <= last]

    def _list_missing_epochs(self, lines: list[bytes], facts: Mapping[str, Any]) -> list[int]:
        there = {record.get("epoch") for record in _parse_lines(self.path / METRICS_FILE, lines)}
        validated = range(1, facts["epoch"] + 1 - ("unvalidated" in facts))
        return [epoch for epoch in validated if self.config.validates_at(epoch) and epoch not in there]

    def find_metrics_problems(self) -> list[str]:
        """What is wrong with the metrics of a finished run: lines that were lost or changed."""
        counted = _read_sealed(self.path / "result.json")[1].get("logs", {}).get(METRICS_FILE)
        if counted is None:
            return []
        path = self.path / METRICS_FILE
        problem = _find_log_problem(path, _list_lines(path), counted)
        return [*counted.get("problems", []), *([problem] if problem else [])]

    def _describe_logs(self) -> dict[str, Any]:
        if (self.path / METRICS_FILE).exists():
            _flush_to_disk(self.path / METRICS_FILE)  # before a file that counts its lines
        return {METRICS_FILE: self._digest_metrics().describe()}

    def _digest_metrics(self) -> "_LogDigest":
        if self._written is None:
            self._written = _LogDigest(_list_lines(self.path / METRICS_FILE))
        return self._written

    # Checkpoints

    def save_checkpoint(self, tensors: Mapping[str, Tensor], **facts: Any) -> None:
        """Replace the checkpoint."""
        logs = self._describe_logs()
        held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        words = json.dumps({**facts, "logs": logs})
        said = {"format": RUN_FORMAT, "run": self.config.name, "facts": words, "sum": _compute_checksum(held, words)}
        write_atomically(self.path / "checkpoint.safetensors", lambda part: save_file(held, part, metadata=said))

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The tensors and facts of the checkpoint, or None if there is none."""
        path = self.path / "checkpoint.safetensors"
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                said = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise DamagedFileError(f"{path} cannot be read ({error}); delete it to begin anew") from error
        if said.get("format") not in READABLE_FORMATS or said.get("run") not in (self.config.name, self.path.name):
            found = (
                f"{said.get('run')} in the format {said.get('format')!r}"
                if said.get("run")
                else "a file that ropewalk did not write"
            )
            raise DamagedFileError(
                f"{path} must be a checkpoint of {self.config.name} in the format {RUN_FORMAT!r}, got {found}; "
                "delete it to begin anew"
            )
        if said.get("sum") != _compute_checksum(tensors, said.get("facts", "")):
            raise DamagedFileError(f"{path} is damaged: its checksum differs; delete it to begin anew")
        return tensors, json.loads(said["facts"])

    def load_weights(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights of the checkpoint that are evaluated, their moving average if there is one, and its facts."""
        held = self.load_checkpoint()
        if held is None:
            raise ValueError(f"{self.path} must have a checkpoint.safetensors, but there is none")
        start = MODEL_PREFIX if self.config.ema is None else AVERAGE_PREFIX
        return {name.removeprefix(start): value for name, value in held[0].items() if name.startswith(start)}, held[1]

    # Results

    def finish(self, **result: Any) -> None:
        """Write the result: the run is finished."""
        self.write_document("result.json", result, logs=self._describe_logs())

    def result(self) -> dict[str, Any] | None:
        """The result, or None if the run is not finished."""
        return self.read_document("result.json")


class _LogDigest:
    """The number of lines of a log and their running SHA-256, with messages about lines that were lost before."""

    def __init__(self, lines: Iterable[bytes], problems: Iterable[str] = ()) -> None:
        self.count, self.digest, self.problems = 0, hashlib.sha256(), list(problems)
        for line in lines:
            self.add(line)

    def add(self, line: bytes) -> None:
        self.count += 1
        self.digest.update(line)

    def describe(self) -> dict[str, Any]:
        found = {"lines": self.count, "sha256": self.digest.hexdigest()}
        return found | ({"problems": self.problems} if self.problems else {})


def _find_log_problem(path: Path, lines: list[bytes], counted: Mapping[str, Any]) -> str | None:
    """Compare lines with what was recorded of them when they were written."""
    if len(lines) != counted["lines"]:
        return f"{path} must have {counted['lines']} lines, as many as were written, got {len(lines)}"
    if _LogDigest(lines).describe()["sha256"] != counted["sha256"]:
        return f"{path} was changed after it was written: the SHA-256 of its {len(lines)} lines differs"
    return None


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a JSON file."""
    write_atomically(path, lambda part: part.write_text(json.dumps(document, indent=1) + "\n"))


def write_atomically(path: Path, make: Callable[[Path], object]) -> None:
    """Replace a file by one that `make` writes beside it."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # others may write the same file
    try:
        make(part)
        _flush_to_disk(part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _flush_to_disk(path.parent)


def _flush_to_disk(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, whose checksum is verified and removed if it has one."""
    return _read_sealed(path)[0]


def _read_sealed(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The object in a JSON file, and the format, run and checksum that were written with it."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{path} cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise DamagedFileError(f"{path} must hold an object, got {type(found).__name__}")
    seal = found.pop(FILE_KEY, {})
    if seal == {}:
        return found, {}
    if not isinstance(seal, dict) or seal.pop("sha256", None) != _hash_document(found, seal):
        raise DamagedFileError(
            f"{path} is damaged or was edited: its checksum differs; delete its {FILE_KEY!r} to accept an edit"
        )
    if seal.get("format") not in READABLE_FORMATS:
        raise DamagedFileError(f"{path} must have a format of {', '.join(READABLE_FORMATS)}, got {seal.get('format')!r}")
    return found, seal


def _hash_document(document: Mapping[str, Any], seal: Mapping[str, Any]) -> str:
    """SHA-256 of the values of a document, however they are written."""
    plain = json.loads(json.dumps([document, seal]))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _list_lines(path: Path) -> list[bytes]:
    """The complete lines of a file."""
    return [each + b"\n" for each in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def _parse_lines(path: Path, lines: Iterable[bytes]) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(json.loads(line.decode(errors="replace")))
        except json.JSONDecodeError as error:
            raise DamagedFileError(f"line {number} of {path} cannot be read ({error})") from error
    return found


def _compute_checksum(tensors: Mapping[str, Tensor], words: str) -> str:
    """A checksum of names, types, shapes and values, and of the words beside them."""
    digest = hashlib.sha256(words.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


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

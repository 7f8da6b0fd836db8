"""A run on disk: `runs/<name>/`, whole at every moment.

config.json             its settings
environment.json        versions and machine
metrics.jsonl           a line for each thing measured, in order
checkpoint.safetensors  weights, optimiser and counters at the end of an epoch, with a checksum
result.json             what it came to, once it is done
predictions.png         what was found in a few images of the test set, where boxes, masks or maps were

A file is written beside its place and put there in one move, so that a run killed at any moment, or out of disk, leaves the
old file or the new one. Metrics are appended; those that are later than the checkpoint are cut off when the run goes on.
Nothing is unpickled, and a file that is damaged, or another run's, is reported and not read.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

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

RUN_FORMAT = "ropewalk run 1"
PREDICTIONS_FILE = "predictions.png"
AVERAGE_PREFIX, MODEL_PREFIX = "average/module.", "model/"
"""How names of weights begin in a checkpoint: those of the moving average, and those that the optimiser moves."""


class RunFolder:
    """The folder of one run. It is made, or found again, for its settings; `hold` keeps other processes out."""

    def __init__(self, runs: Path, config: Config) -> None:
        self.path, self.config = Path(runs) / config.name, config
        self._lock: IO[str] | None = None

    @classmethod
    def at(cls, path: Path) -> "RunFolder":
        """A run that is there."""
        if not (path / "config.json").is_file():
            raise ValueError(f"{path} is no run: a run has a config.json")
        run = cls(path.parent, Config.of(read_json(path / "config.json")))
        run.path = path
        return run

    def acquire(self, environment: Mapping[str, Any]) -> None:
        """Make the folder, or take it over, for this process alone."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.claim()
        try:
            for leftover in self.path.glob("*.part"):
                leftover.unlink()
            write_json(self.path / "config.json", self.config.document())
            path = self.path / "environment.json"
            before = read_json(path) if path.exists() else None
            write_json(path, environment if before is None else continue_environment(before, environment))
        except BaseException:
            self.release()
            raise

    def update_environment(self, **fields: Any) -> None:
        """Add to environment.json what is known once data and model have been opened."""
        path = self.path / "environment.json"
        write_json(path, read_json(path) | fields)

    def claim(self) -> None:
        """Keep other processes out of a folder that is there."""
        self._lock = (self.path / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise RunBusyError(f"{self.path} is being written by another process") from None

    def release(self) -> None:
        """Let others in."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # Metrics

    def log(self, **record: Any) -> None:
        """Append a line."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All lines that are whole: the last one may have been cut off by a kill."""
        path = self.path / "metrics.jsonl"
        return list(_read_lines(path)) if path.exists() else []

    def cut(self, step: int) -> None:
        """Keep what was measured up to a step."""
        kept = [record for record in self.metrics() if record["step"] <= step]
        write_atomically(
            self.path / "metrics.jsonl", lambda part: part.write_text("".join(json.dumps(each) + "\n" for each in kept))
        )

    # Checkpoints

    def save(self, tensors: Mapping[str, Tensor], **facts: Any) -> None:
        """Replace the checkpoint."""
        held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        words = json.dumps(facts)
        said = {"format": RUN_FORMAT, "run": self.config.name, "facts": words, "sum": _compute_checksum(held, words)}
        write_atomically(self.path / "checkpoint.safetensors", lambda part: save_file(held, part, metadata=said))

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The tensors and facts of the checkpoint, or None where there is none."""
        path = self.path / "checkpoint.safetensors"
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                said = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise DamagedFileError(f"{path} cannot be read ({error}); delete it to begin anew") from error
        if said.get("format") != RUN_FORMAT or said.get("run") not in (self.config.name, self.path.name):
            found = said.get("run") or "a file that ropewalk did not write"
            raise DamagedFileError(
                f"{path} must be a checkpoint of {self.config.name}, got {found}; delete it to begin anew"
            )
        if said.get("sum") != _compute_checksum(tensors, said.get("facts", "")):
            raise DamagedFileError(f"{path} is damaged: its checksum differs; delete it to begin anew")
        return tensors, json.loads(said["facts"])

    def judged(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights of the checkpoint as they were judged, their moving average where there is one, and its facts."""
        held = self.load()
        if held is None:
            raise ValueError(f"{self.path} must have a checkpoint.safetensors, but there is none")
        start = MODEL_PREFIX if self.config.ema is None else AVERAGE_PREFIX
        return {name.removeprefix(start): value for name, value in held[0].items() if name.startswith(start)}, held[1]

    # Results

    def finish(self, **result: Any) -> None:
        """Write what it came to: the run is done."""
        write_json(self.path / "result.json", result)

    def result(self) -> dict[str, Any] | None:
        """What it came to, if it is done."""
        path = self.path / "result.json"
        return read_json(path) if path.exists() else None


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """A JSON file, put in place in one move."""
    write_atomically(path, lambda part: part.write_text(json.dumps(document, indent=1) + "\n"))


def write_atomically(path: Path, make: Callable[[Path], object]) -> None:
    """A file that `make` writes beside its place, put there in one move."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # others may write the same file
    try:
        make(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{path} cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise DamagedFileError(f"{path} must hold an object, got {type(found).__name__}")
    return found


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    lines = path.read_text(errors="replace").split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise DamagedFileError(f"line {number} of {path} cannot be read ({error})") from error


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
    """Refuse what cannot be done, files that cannot be trusted and disks that are full; fail when numbers or memory end."""
    try:
        with translate_value_errors():
            yield
    except (DamagedFileError, RunBusyError) as error:
        raise CommandError(str(error)) from error
    except SafetensorError as error:  # which is what a full disk is, when weights are written
        raise CommandError(f"weights cannot be kept: {error}") from error
    except NonFiniteLossError as error:
        raise CommandFailedError(str(error)) from error
    except torch.OutOfMemoryError as error:
        raise CommandFailedError(f"memory is used up, a smaller batch needs less: {error}") from error

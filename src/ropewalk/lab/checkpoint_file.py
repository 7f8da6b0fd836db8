"""Checkpoints: tensors and facts in a safetensors file with a checksum, and the one before it.

    checkpoint.safetensors            the newest
    checkpoint.previous.safetensors   the one before, while the run is not finished

Training resumes from the previous one if the newest is damaged. Nothing is unpickled.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.file_gate import check_regular_file, parse_json
from ropewalk.lab.sealed_files import READABLE_FORMATS, RUN_FORMAT, write_atomically

CHECKPOINT_FILE, PREVIOUS_CHECKPOINT_FILE = "checkpoint.safetensors", "checkpoint.previous.safetensors"


class Checkpoint(NamedTuple):
    """Tensors by name, and facts as plain JSON values."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def write_checkpoint(
    folder: Path, run: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, keeps_newest: bool
) -> None:
    """Replace the newest checkpoint of a run, which becomes the previous one if it is to be kept."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    words = json.dumps(facts)
    said = {"format": RUN_FORMAT, "run": run, "facts": words, "sum": compute_checksum(held, words)}

    write_atomically(
        folder / CHECKPOINT_FILE,
        lambda part: save_file(held, part, metadata=said),
        before_replacing=(lambda: _keep_newest(folder)) if keeps_newest else None,
    )


def _keep_newest(folder: Path) -> None:
    """Give the newest checkpoint a second name, under which it stays when it is replaced."""
    newest, previous = folder / CHECKPOINT_FILE, folder / PREVIOUS_CHECKPOINT_FILE
    if not newest.exists():
        return
    try:
        previous.unlink(missing_ok=True)
        os.link(newest, previous)
    except OSError:  # a file system without hard links
        write_atomically(previous, lambda part: shutil.copyfile(newest, part))


def read_checkpoint(path: Path, run: str, *old_names: str) -> Checkpoint:
    """Read and check a checkpoint of a run, which had perhaps another name in the format "ropewalk run 1"."""
    try:
        check_regular_file(path)
        with safe_open(path, framework="pt") as file:
            said = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"{path} cannot be read ({error}){_advise_deletion(path)}") from error
    names = (run, *old_names) if said.get("format") != RUN_FORMAT else (run,)
    if said.get("format") not in READABLE_FORMATS or said.get("run") not in names:
        found = (
            f"{said.get('run')} in the format {said.get('format')!r}"
            if said.get("run")
            else "a file that ropewalk did not write"
        )
        raise DamagedFileError(
            f"{path} must be a checkpoint of {run} in the format {RUN_FORMAT!r}, got {found}{_advise_deletion(path)}"
        )
    if said.get("sum") != compute_checksum(tensors, said.get("facts", "")):
        raise DamagedFileError(f"{path} is damaged: its checksum differs{_advise_deletion(path)}")
    return Checkpoint(tensors, _parse_facts(path, said.get("facts")))


def _parse_facts(path: Path, words: str | None) -> dict[str, Any]:
    """The facts of a checkpoint, which have at least its step."""
    if words is None:
        raise DamagedFileError(f"{path} must have facts in its metadata, got none{_advise_deletion(path)}")
    try:
        facts = parse_json(words)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(
            f"{path} must have facts in JSON, but they cannot be read ({error}){_advise_deletion(path)}"
        ) from error
    if not isinstance(facts, dict):
        raise DamagedFileError(f"{path} must have an object of facts, got {type(facts).__name__}{_advise_deletion(path)}")
    if type(facts.get("step")) is not int:  # not a bool
        raise DamagedFileError(
            f"{path} must have an integer step in its facts, got {facts.get('step')!r}{_advise_deletion(path)}"
        )
    return facts


def _advise_deletion(path: Path) -> str:
    """How to begin anew. Training would resume from the other checkpoint if only the damaged one was deleted."""
    there = [name for name in (CHECKPOINT_FILE, PREVIOUS_CHECKPOINT_FILE) if (path.parent / name).exists()]
    return f"; delete {' and '.join(there) or path.name} to begin anew"


def read_latest_checkpoint(folder: Path, read: Callable[[Path], Checkpoint]) -> tuple[Checkpoint | None, str | None]:
    """The newest checkpoint, or the previous one with a message why; None if there is neither."""
    newest, previous = folder / CHECKPOINT_FILE, folder / PREVIOUS_CHECKPOINT_FILE
    if not newest.exists() and not previous.exists():
        return None, None
    try:
        if newest.exists():
            return read(newest), None
        problem = f"{newest} is missing"
    except DamagedFileError as error:
        if not previous.exists():
            raise
        problem = str(error).removesuffix(_advise_deletion(newest))
    try:
        found = read(previous)
    except DamagedFileError as error:
        raise DamagedFileError(f"{problem}; {error}") from error
    step = found.facts["step"]
    return found, f"{problem}; training resumes from the previous checkpoint, of step {step}{_advise_deletion(newest)}"


def compute_checksum(tensors: Mapping[str, Tensor], words: str) -> str:
    """A checksum of names, types, shapes and values, and of the words beside them."""
    digest = hashlib.sha256(words.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

"""Files of runs: written atomically, and JSON with the format, the run and the checksum beside its own fields.

    write_atomically(path, lambda part: part.write_bytes(data))
    write_json(path, seal_document({"test_accuracy": 0.5}, run="axial-seed0-0123456789"))
    read_json(path, run="axial-seed0-0123456789")          # {"test_accuracy": 0.5}

A file is written beside its place and moved there. It is on disk before it is moved, and its directory after, so that a
process that is killed, a full disk or a loss of power leave the old file or the new one.
"""

import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.file_gate import open_own_file, parse_json, read_file_bytes

RUN_FORMAT = "ropewalk run 2"
READABLE_FORMATS = ("ropewalk run 1", RUN_FORMAT)
FILE_KEY = "ropewalk"
"""The field of a JSON file that has its format, run and checksum."""
UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


# Writing


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a JSON file."""
    write_atomically(path, lambda part: part.write_text(json.dumps(document, indent=1) + "\n"))


def write_atomically(
    path: Path, make: Callable[[Path], object], *, before_replacing: Callable[[], object] | None = None
) -> None:
    """Replace a file by one that `make` writes beside it; `before_replacing` is called once the new file is on disk."""
    # Others may write the same file, and nobody can plant a link at a name that cannot be guessed.
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    os.close(open_own_file(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    try:
        mode = stat.S_IMODE(part.stat().st_mode)
        make(part)
        if stat.S_IMODE(part.stat().st_mode) != mode:  # safetensors makes files that others cannot read
            part.chmod(mode)
        flush_to_disk(part)
        if before_replacing is not None:
            before_replacing()
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    flush_to_disk(path.parent)


def make_directory(path: Path) -> None:
    """Make a directory and those above it, on disk."""
    new = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in reversed(new):
        flush_to_disk(each.parent)


def flush_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        # Some network and FUSE file systems cannot flush a directory; the file itself must be on disk.
        if error.errno not in UNSUPPORTED or not stat.S_ISDIR(os.fstat(file).st_mode):
            raise
    finally:
        os.close(file)


# Checksums


def seal_document(document: Mapping[str, Any], *, run: str, **facts: Any) -> dict[str, Any]:
    """A document with its format, run, other facts and checksum under `FILE_KEY`."""
    seal = {"format": RUN_FORMAT, "run": run, **facts}
    return {**document, FILE_KEY: {**seal, "sha256": _hash_document(document, seal)}}


def read_json(path: Path, *, run: str | None = None) -> dict[str, Any]:
    """The object in a JSON file. Its checksum is verified and removed if it has one; so is the name of its run, if given."""
    document, seal = read_sealed(path)
    if run is not None and seal and seal.get("run") != run:
        raise DamagedFileError(
            f"{path} must be a file of {run}, got one of {seal.get('run')}: it was copied from another run, or config.json "
            "was edited"
        )
    return document


def read_sealed(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The object in a JSON file, and the format, run and other facts that were written with it."""
    try:
        found = parse_json(read_file_bytes(path).decode())
    except (OSError, ValueError, RecursionError) as error:
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

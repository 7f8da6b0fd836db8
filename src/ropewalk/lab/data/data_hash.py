"""Describe and hash the data of a run for its record, so that two runs can be known to have used the same data.

Files are hashed by their contents, folders by the names and sizes of their files: a folder may hold millions of images.
`sha256_of` says which. Hashes do not depend on seeds, splits or the size at which images are used.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.lab.config import Config
from ropewalk.lab.data.torchvision_sets import TORCHVISION_SETS, load_digits_source


class DataHash(NamedTuple):
    """A SHA-256 in hexadecimal digits, and what it was computed from."""

    sha256: str | None
    sha256_of: str | None


def describe_data(config: Config, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Name, hash and split counts of the data of a run, from its task's facts; a text counts bytes."""
    splits = {name: value for name, value in facts.items() if isinstance(value, Mapping) and "sha256" in value}
    if splits:
        sums = {name: value["sha256"] for name, value in splits.items()}
        found = DataHash(hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest(), "hashes of the splits")
        counts: Any = {name: value["bytes"] for name, value in splits.items()}
    else:
        found, counts = hash_data(config.data, config.root), facts.get("counts")
    return {"name": Path(config.data).absolute().name, **found._asdict(), "counts": counts}


def hash_data(name: str, root: str) -> DataHash:
    """Hash a data set by its name or path; None where its files cannot be read."""
    path, plain = Path(name).expanduser(), name.lower().replace("_", "-")
    try:
        if plain == "digits":
            return DataHash(_hash_digits(), "arrays")
        if plain in TORCHVISION_SETS:
            folder = Path(root).expanduser() / TORCHVISION_SETS[plain][1]
            files = [file for file in _list_files(folder) if file.suffix != ".gz"]  # beside what was unpacked from them
            return DataHash(_hash_contents(folder, files), "file contents")
        if path.is_dir():
            return DataHash(_hash_listing(path, _list_files(path)), "file names and sizes")
        return DataHash(_hash_contents(path.parent, [path]), "file contents")
    except OSError:
        return DataHash(None, None)


def _hash_digits() -> str:
    source, digest = load_digits_source(), hashlib.sha256()
    for tensor in (*source.train, *source.test()):
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


def _hash_contents(folder: Path, files: Iterable[Path]) -> str:
    """Hash the contents of files; names count only where there are several, so that a file can be renamed."""
    sums: dict[str, str] = {}
    for path in files:
        with path.open("rb") as file:
            sums[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    if len(sums) == 1:
        return next(iter(sums.values()))
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()


def _hash_listing(folder: Path, files: Iterable[Path]) -> str:
    lines = sorted(f"{path.relative_to(folder).as_posix()}\t{path.stat().st_size}\n" for path in files)
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def _list_files(folder: Path) -> Iterator[Path]:
    """Files below a folder, without hidden ones; links are followed, as image folders do, and no folder is entered twice."""
    seen: set[str] = set()
    for where, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        if (real := os.path.realpath(where)) in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(where) / each for each in sorted(names) if not each.startswith("."))

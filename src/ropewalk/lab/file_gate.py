"""The gate through which files of users are opened: regular files, within a budget of memory, named in their folder.

    read_file_text(path)                        # not a named pipe, not a device, not more than fits into memory
    parse_json(data)                            # not nested more than MAX_JSON_DEPTH deep, nor too large
    resolve_inside(folder, name)                # no absolute path, and no ".."
    check_regular_file(path)                    # before a library opens the path by itself

What is refused raises OSError with the file's name, or ValueError, before anything is read. Symbolic links are followed.
"""

import errno
import json
import os
import stat
from collections.abc import Callable
from functools import cache
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, Any

import numpy as np

DEFAULT_MEMORY_BUDGET = 8 * 2**30
"""Bytes that a data file may take in memory where the machine does not say how much memory it has."""
MEMORY_SHARE = 0.5
"""Share of the memory that the contents of one data file may take."""
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
MAX_JSON_DEPTH = 100
"""Deepest nesting of lists and objects in a JSON document."""
DEPTH_CHUNK = 2**20
JSON_MEMORY = {b"{": 250, b"[": 90, b",": 40, b'"': 30}
"""Bytes that parsed JSON takes for each object, list, entry and end of a string; its text is held twice besides."""

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


class JsonDepthError(ValueError):
    """A JSON document that is nested too deeply."""


class NotRegularFileError(OSError):
    """A path that is not a regular file, such as a named pipe or a device; reading it could wait or go on for ever."""

    def __init__(self, path: Path | str, kind: str) -> None:
        super().__init__(errno.EINVAL, f"must be a regular file, got {kind}", str(path))

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}"


def check_regular_file(path: Path | str) -> os.stat_result:
    """Raise an error if the path is not a regular file, or does not exist; its size and times otherwise."""
    found = os.stat(path)
    _check_kind(path, found)
    return found


def _check_kind(path: Path | str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "must be a file, got a directory", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularFileError(path, _KINDS.get(stat.S_IFMT(found.st_mode), "something else"))


def open_regular_file(path: Path | str) -> BufferedReader:
    """Open a regular file to read bytes."""
    check_regular_file(path)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a named pipe would wait for a writer
    try:
        _check_kind(path, os.fstat(descriptor))  # it may have been replaced in between
    except OSError:
        os.close(descriptor)
        raise
    return BufferedReader(FileIO(descriptor))


def open_own_file(path: Path, flags: int) -> int:
    """Open a regular file that ropewalk writes. A link is refused: it would lead the writer to another file."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotRegularFileError(path, "a symbolic link") from error
        if error.errno == errno.ENXIO:  # a socket, or a named pipe that nobody reads
            check_regular_file(path)
        raise
    try:
        _check_kind(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_lock_file(path: Path) -> IO[str]:
    """Open the file of a lock, which is created if there is none and keeps its contents."""
    return open(open_own_file(path, os.O_RDWR | os.O_CREAT), "r+")


def read_file_bytes(path: Path | str) -> bytes:
    """The contents of a regular file that fits into the budget of memory."""
    with open_regular_file(path) as file:
        check_memory_budget(os.fstat(file.fileno()).st_size, str(path))
        return file.read()


def read_file_text(path: Path | str, *, errors: str = "strict") -> str:
    """The contents of a regular text file in UTF-8."""
    try:
        return read_file_bytes(path).decode(errors=errors)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8: {error}") from error


# Memory


def check_memory_budget(size: int, what: str) -> None:
    """Refuse contents of so many bytes if they take more memory than one file may."""
    if size > (budget := find_memory_budget()):
        raise ValueError(
            f"{what} must take at most {_format_bytes(budget)} in memory, half of what this machine has, got "
            f"{_format_bytes(size)}"
        )


@cache
def find_memory_budget() -> int:
    """Bytes that the contents of one data file may take: half of the memory that this process may use."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return DEFAULT_MEMORY_BUDGET
    try:
        limit = CGROUP_LIMIT.read_text().strip()  # of a container
    except OSError:
        limit = ""
    return int(MEMORY_SHARE * min(memory, int(limit) if limit.isdecimal() else memory))


def _format_bytes(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 2**29 else f"{count:,} bytes"


# JSON


def parse_json(data: str | bytes, *, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Parse a JSON document. Raises ValueError if it is none, too large, or nested too deeply, before it is parsed."""
    encoded = _encode_json(data)
    parsed = 2 * len(encoded) + sum(size * encoded.count(mark) for mark, size in JSON_MEMORY.items())
    check_memory_budget(parsed, f"a JSON document of {len(encoded):,} bytes")
    if (depth := measure_json_depth(encoded)) > MAX_JSON_DEPTH:
        raise JsonDepthError(f"JSON must be nested at most {MAX_JSON_DEPTH} deep, got {depth:,}")
    try:
        return json.loads(data, parse_constant=parse_constant)
    except RecursionError as error:  # the caller is near the limit of recursion itself
        raise JsonDepthError(f"JSON must be nested less deeply than Python can parse it here, got {depth:,}") from error


def _encode_json(data: str | bytes) -> bytes:
    """The document in UTF-8, in which no byte of another character is a quote or a bracket."""
    if isinstance(data, str):
        return data.encode(errors="surrogatepass")
    encoding = json.detect_encoding(data)
    return data if encoding.startswith("utf-8") else data.decode(encoding, "surrogatepass").encode(errors="surrogatepass")


def measure_json_depth(data: bytes) -> int:
    """How deeply lists and objects are nested in a JSON document in UTF-8; brackets in strings do not count.

    It is exact up to the first character that is not JSON, where a parser stops. The memory that it takes does not depend
    on the size of the document.
    """
    depth = most = inside = backslashes = 0
    for start in range(0, len(data), DEPTH_CHUNK):
        held = np.frombuffer(data, np.uint8, min(DEPTH_CHUNK, len(data) - start), start)
        quotes = held == ord('"')
        escaped, backslashes = _find_escaped(held == ord("\\"), backslashes)
        in_string = np.bitwise_xor.accumulate((quotes & ~escaped).astype(np.uint8)) ^ inside
        folded = held | 0x20  # [ and {, ] and } agree
        steps = ((folded == ord("{")).astype(np.int32) - (folded == ord("}"))) * (in_string == 0)
        levels = np.cumsum(steps, dtype=np.int32)
        most = max(most, depth + int(levels.max()))
        depth, inside = depth + int(levels[-1]), in_string[-1]
    return most


def _find_escaped(backslash: np.ndarray, before: int) -> tuple[np.ndarray, int]:
    """Which characters follow an odd number of backslashes, and how many backslashes end the text, modulo 2.

    `before` is that number of the text before.
    """
    if not before and not backslash.any():
        return np.zeros_like(backslash), 0
    index = np.arange(len(backslash), dtype=np.int32)
    last_other = np.maximum.accumulate(np.where(backslash, np.int32(-1 - before), index))
    counts = index - last_other  # backslashes up to each character, itself included
    return np.concatenate([[before], counts[:-1]]) % 2 == 1, int(counts[-1]) % 2


# Folders


def resolve_inside(folder: Path, name: str) -> Path:
    """The path of a name in a folder. Raises ValueError if the name leaves it; links in the folder are followed.

    A link is made by the owner of the folder: caches of Hugging Face and git-annex link to files that lie elsewhere.
    """
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or "\0" in name:
        raise ValueError(f"names of files must be relative paths inside {folder}, without '..', got {name!r}")
    return folder / name

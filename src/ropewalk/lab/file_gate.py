"""The gate through which files of users are opened: regular files only, within a budget of memory, and inside their folder.

    read_file_text(path)                        # not a named pipe, not a device, not more than fits into memory
    parse_json(data)                            # not nested more than MAX_JSON_DEPTH deep
    resolve_inside(folder, name)                # not out of the folder, neither by ".." nor through a link
    check_regular_file(path)                    # before a library opens the path by itself

What is refused raises OSError with the file's name, or ValueError, before anything is read. Symbolic links are followed.
"""

import errno
import json
import os
import re
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
    """Parse a JSON document. Raises ValueError if it is none, or nested too deeply, which is found before it is parsed."""
    depth = measure_json_depth(data.encode(errors="surrogatepass") if isinstance(data, str) else data)
    if depth > MAX_JSON_DEPTH:
        raise JsonDepthError(f"JSON must be nested at most {MAX_JSON_DEPTH} deep, got {depth:,}")
    return json.loads(data, parse_constant=parse_constant)


def measure_json_depth(data: bytes) -> int:
    """How deeply lists and objects are nested. Brackets in strings count only if the document is small without them."""
    depth = _count_open_brackets(data)
    if depth <= MAX_JSON_DEPTH:
        return depth
    return _count_open_brackets(re.sub(rb'"(?:[^"\\]|\\.)*"?', b"", data, flags=re.DOTALL))


def _count_open_brackets(data: bytes) -> int:
    """The most brackets that are open at once, closed ones subtracted; at least the depth if no string has brackets."""
    depth = most = 0
    for start in range(0, len(data), DEPTH_CHUNK):
        held = np.frombuffer(data, np.uint8, min(DEPTH_CHUNK, len(data) - start), start) | 0x20  # [ and {, ] and } agree
        levels = np.cumsum((held == ord("{")).astype(np.int32) - (held == ord("}")), dtype=np.int32)
        most = max(most, depth + int(levels.max()))
        depth += int(levels[-1])
    return most


# Folders


def resolve_inside(folder: Path, name: str, *, root: Path | None = None) -> Path:
    """The path of a name in a folder. Raises ValueError if it leaves `root`, which is the folder by default."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or "\0" in name:
        raise ValueError(f"names of files must be relative paths inside {folder}, without '..', got {name!r}")
    path = folder
    for part in parts:
        path = path / part
        if path.is_symlink():
            return _check_link(folder / name, root or folder, folder)
    return path


def _check_link(path: Path, *roots: Path) -> Path:
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(root)) for root in roots):
        raise ValueError(f"{path} must lie in {roots[0]}, but is a link to {real}; move it there, without a link")
    return path

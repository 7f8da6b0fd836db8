"""Read metrics.jsonl and verify it against the line count and hash in a checkpoint or a result."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.file_gate import parse_json, read_file_bytes


class LogDigest:
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


def find_log_problem(path: Path, lines: list[bytes], counted: Mapping[str, Any]) -> str | None:
    """Verify lines against the count and hash that were recorded when they were written."""
    if len(lines) != counted["lines"]:
        return f"{path} must have {counted['lines']} lines, as many as were written, got {len(lines)}"
    if LogDigest(lines).describe()["sha256"] != counted["sha256"]:
        return f"{path} was changed after it was written: the SHA-256 of its {len(lines)} lines differs"
    return None


def list_lines(path: Path) -> list[bytes]:
    """The complete lines of a file: the last one may have been cut off by a kill."""
    return [each + b"\n" for each in read_file_bytes(path).split(b"\n")[:-1]] if path.exists() else []


def parse_lines(path: Path, lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The objects in lines. Raises DamagedFileError with the number of a line that has none."""
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(parse_json(line.decode(errors="replace")))
        except (ValueError, RecursionError) as error:
            raise DamagedFileError(f"line {number} of {path} cannot be read ({error})") from error
    return found


def read_step(line: bytes) -> float | None:
    """The step of a line; None if it cannot be read."""
    try:
        step = parse_json(line)["step"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return step if isinstance(step, int | float) else None

"""Files of records: a JSON line for each, `RunRecord.to_dict()`, in which numbers that are not finite are refused."""

import fcntl
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.file_gate import open_lock_file, parse_json, read_file_bytes
from ropewalk.lab.record import RunRecord
from ropewalk.lab.sealed_files import write_atomically

RECORD_DIGITS = 5
"""Significant digits of results, metrics and probes in JSON lines; settings and encodings are written in full."""
MAX_LINE_BYTES = 2**26
"""Longest JSON line that is read."""


def load_records(path: Path | str) -> list[RunRecord]:
    """Load a file of JSON lines. Raises DamagedFileError with the file and line if one is not a valid record."""
    return _parse_records(path, _read_lines(Path(path)))


def write_records(path: Path, records: Iterable[RunRecord], *, digits: int = RECORD_DIGITS) -> Path:
    """Write records to a file of JSON lines, where they replace those of the same run, study and part.

    Lines of other records keep every byte, and so do lines that equal the new ones when rounded to as many digits. The file
    is replaced atomically, under a lock, so that several processes can write to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_lock_file(path.parent / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = _read_lines(path) if path.exists() else []
        stored = {_identify(record): (record, line) for line, record in zip(lines, _parse_records(path, lines), strict=True)}
        for record in records:
            line, (before, _) = _format_line(record, digits), stored.get(_identify(record), (None, ""))
            if before is None or _format_line(before, digits) != line:
                stored[_identify(record)] = record, line
        content = "".join(f"{line}\n" for _, line in stored.values()).encode()
        write_atomically(path, lambda part: part.write_bytes(content))
    return path


def _read_lines(path: Path) -> list[str]:
    try:
        lines = read_file_bytes(path).decode().split("\n")
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path} must be text in UTF-8: {error}") from error
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DamagedFileError(f"{path} cannot be read: {error}") from error
    return lines if lines[-1] else lines[:-1]


def _parse_records(path: Path | str, lines: Iterable[str]) -> list[RunRecord]:
    return [_read_line(path, number, line) for number, line in enumerate(lines, 1)]


def _read_line(path: Path | str, number: int, line: str) -> RunRecord:
    try:
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"it must have at most {MAX_LINE_BYTES:,} characters, got {len(line):,}")
        return RunRecord.from_dict(parse_json(line, parse_constant=_refuse_constant))
    except json.JSONDecodeError as error:
        raise DamagedFileError(f"line {number} of {path} must be JSON: {error}") from error
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise DamagedFileError(f"line {number} of {path} is not a valid record: {error}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"numbers must be finite, got {name}")


def _format_line(record: RunRecord, digits: int) -> str:
    document = record.to_dict()
    document |= {name: _round(document[name], digits) for name in ("result", "metrics", "probes")}
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def _round(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {name: _round(each, digits) for name, each in value.items()}
    return [_round(each, digits) for each in value] if isinstance(value, list) else value


def _identify(record: RunRecord) -> tuple[str | None, ...]:
    return record.study, record.part, record.run or record.config.name

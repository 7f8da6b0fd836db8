"""How far a run of a comparison is, read from its folder.

result.json  it is done, whatever else is there
failed.txt   its last attempt ended with an error: in words; trace.txt says where in the code
neither      it was begun, or not
"""

import contextlib
import fcntl
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.lab.metric import ACCURACY, metric_in
from ropewalk.lab.rules import finite
from ropewalk.lab.store import Damaged, read
from ropewalk.lab.verdicts import one_line

FAILED, TRACE = "failed.txt", "trace.txt"


class Outcome(NamedTuple):
    """What a run came to, or in words why it came to nothing yet."""

    result: dict[str, Any] | None
    note: str


def outcome(path: Path) -> Outcome:
    """How far the run in a folder is."""
    if (path / "result.json").exists():
        return _result(path / "result.json")
    if (path / FAILED).exists():
        return Outcome(None, f"failed: {one_line((path / FAILED).read_text(errors='replace'))}")
    return Outcome(None, "begun" if (path / "config.json").exists() else "not begun")


def _result(path: Path) -> Outcome:
    """A result, if it has what a table needs."""
    try:
        found = read(path)
    except Damaged as error:
        return Outcome(None, f"failed: {one_line(error)}")
    needed = (f"test_{(metric_in(found, 'test') or ACCURACY).key}", "encoding_parameters")
    if missing := [name for name in needed if not finite(found.get(name))]:
        return Outcome(None, f"failed: {path} has no {', '.join(missing)}")
    return Outcome(found, "")


def fail(path: Path, error: Exception) -> str:
    """Write down why a run ended, if the disk takes it; in words."""
    words = f"{type(error).__name__}: {one_line(error)}"
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
        (path / FAILED).write_text(f"{words}\n")
        (path / TRACE).write_text("".join(traceback.format_exception(error)))
    return words


def forget(path: Path) -> None:
    """A new attempt begins: why the last one ended is of no more use."""
    with contextlib.suppress(OSError):
        for name in (FAILED, TRACE):
            (path / name).unlink(missing_ok=True)


def held(path: Path) -> bool:
    """Whether another process is writing the run."""
    try:
        with (path / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False

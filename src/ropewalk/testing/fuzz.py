"""Odd calls of the public API: `python -m ropewalk.testing.fuzz --seconds 60`.

Each call takes a public function with arguments that it wants, and puts odd values in the place of some: wrong types and
dtypes, wrong shapes, NaN, infinities, strange names. It may do one of two things:

    return    what the function promises for its arguments: shapes, dtypes, norms. An argument of a wrong type, such as True
              for a number, must not be accepted.
    refuse    by a `raise` statement of ropewalk, in its own words.

Errors of Python or PyTorch from inside are internal errors, wrong results are silent ones, and a call of more than LIMIT
seconds hangs. Memory that the operating system refuses is not counted.
"""

import argparse
import ast
import collections
import contextlib
import functools
import json
import platform
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch

import ropewalk
from ropewalk.testing.fuzz_calls import TARGETS, Call, UnexpectedResultError, make_call

LIMIT = 5.0  # seconds
ROOM = 8 << 30  # bytes that a call may ask for beyond what the process has
SOURCE = Path(ropewalk.__file__).parent
HARNESS = ("fuzz.py", "fuzz_calls.py")


class Finding(NamedTuple):
    """What came of a call: returned, refused, memory, internal, silent or hang, where, and in what words."""

    kind: str
    target: str
    where: str
    words: str
    call: str


class CallTookTooLongError(Exception):
    """A call that does not end."""


def run_calls(count: int, *, seconds: float | None = None, seed: int = 0, only: str | None = None) -> Iterator[Finding]:
    """What comes of so many odd calls, or of those that fit into so many seconds."""
    names = [name for name in TARGETS if only is None or only in name]
    started = time.monotonic()
    for number in range(count):
        if seconds is not None and time.monotonic() - started > seconds:
            return
        generator = random.Random(f"{seed} {number}")
        torch.manual_seed(number)
        yield judge_call(make_call(generator, generator.choice(names)))


def judge_call(call: Call) -> Finding:
    """Make a call and say what came of it."""
    shown = str(call)
    try:
        with warnings.catch_warnings(), _time_limit(LIMIT):
            warnings.simplefilter("ignore")
            call.check(call.make())
    except CallTookTooLongError:
        return Finding("hang", call.target, "", f"more than {LIMIT:g} s", shown)
    except UnexpectedResultError as error:
        return Finding("silent", call.target, "", str(error), shown)
    except Exception as error:
        where, own = _locate_error(error)
        words = f"{type(error).__name__}: {error}".partition("\n")[0]
        if isinstance(error, MemoryError) or "allocate memory" in words or "not enough memory" in words:
            return Finding("memory", call.target, where, words, shown)
        return Finding("refused" if own else "internal", call.target, where, words, shown)
    return Finding("returned", call.target, "", "", shown)


def _locate_error(error: Exception) -> tuple[str, bool]:
    """Where in ropewalk an error comes from, and whether by a `raise` there."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    inside = [
        frame for frame in frames if Path(frame.filename).is_relative_to(SOURCE) and Path(frame.filename).name not in HARNESS
    ]
    if not inside:
        return "", False
    where = f"{Path(inside[-1].filename).relative_to(SOURCE)}:{inside[-1].lineno}"
    own = last is inside[-1] and last.lineno in _find_raises(last.filename)
    return where, own


@functools.cache
def _find_raises(path: str) -> frozenset[int]:
    """The lines of a file that `raise` statements fill."""
    nodes = ast.walk(ast.parse(Path(path).read_text()))
    raises = [node for node in nodes if isinstance(node, ast.Raise) and node.exc is not None]
    return frozenset(line for node in raises for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise CallTookTooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))


def main() -> int:
    """The command line: how many calls ended how, and one example of each fault."""
    parser = argparse.ArgumentParser(prog="python -m ropewalk.testing.fuzz", description="Odd calls of the public API.")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--calls", type=int, default=10_000, help="how many calls to make (default: 10,000)")
    parser.add_argument("--seed", type=int, default=0, help="which calls to make (default: 0)")
    parser.add_argument("--only", metavar="NAME", help="functions whose name contains this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts to a file")
    options = parser.parse_args()
    if sys.platform == "linux":
        _limit_memory()
    torch.set_num_threads(1)
    started = time.monotonic()
    found = list(run_calls(options.calls, seconds=options.seconds, seed=options.seed, only=options.only))
    counts = collections.Counter(finding.kind for finding in found)
    print(f"{len(found)} calls in {time.monotonic() - started:.0f} s: {', '.join(f'{n} {k}' for k, n in counts.items())}")
    faults: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in found:
        if finding.kind in ("internal", "silent", "hang"):
            faults.setdefault((finding.kind, finding.target, finding.where), []).append(finding)
    for (kind, target, where), each in sorted(faults.items(), key=lambda item: -len(item[1])):
        print(f"{len(each)} × {kind} in {target} {where}\n    {each[0].words}\n    {each[0].call}")
    if options.json is not None:
        about = {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "torch": torch.__version__}
        counted = {"seed": options.seed, "calls": len(found), "functions": len({each.target for each in found}), **counts}
        options.json.write_text(json.dumps(about | counted, indent=1) + "\n")
    return 1 if faults else 0


def list_faults(findings: Iterator[Finding]) -> list[Finding]:
    """Those that should not be."""
    return [finding for finding in findings if finding.kind in ("internal", "silent", "hang")]


if __name__ == "__main__":
    sys.exit(main())

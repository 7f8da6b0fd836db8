"""The same command in several processes on one machine, which share its runs.

Each compiles for itself, in a folder of its own, and computes with its share of the processors: caches that processes share
have given wrong results, and threads that outnumber processors take turns. On a GPU this pays for small models, above all
since one trains while another compiles or is probed; NVIDIA's MPS lets their kernels run side by side, which without it they
do not.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.text import Text

from ropewalk.lab.environment import count_cpu_cores

TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def run_in_parallel(count: int, words: Sequence[str], console: Console) -> list[int]:
    """Run `ropewalk` with these words so many times at once, tell what each says, and return their codes.

    Interrupted or told to end, it ends them all: what runs have kept stays, as after any kill.
    """
    children: list[subprocess.Popen[str]] = []
    tellers: list[threading.Thread] = []
    with tempfile.TemporaryDirectory(prefix="ropewalk-") as folder, _raise_on_termination():
        try:
            for number in range(count):
                children.append(_start_process(words, make_process_environment(number, count, Path(folder))))
                tellers.append(threading.Thread(target=_print_output, args=(number, children[-1], console)))
                tellers[-1].start()
            return [child.wait() for child in children]
        finally:
            for child in children:
                _stop_process(child)
            for teller in tellers:
                teller.join()


def make_process_environment(number: int, count: int, caches: Path) -> dict[str, str]:
    """That of one of so many processes."""
    share, own = str(max(1, count_cpu_cores() // count)), caches / str(number)
    threads = {"OMP_NUM_THREADS": share, "TORCHINDUCTOR_COMPILE_THREADS": share}
    folders = {"TORCHINDUCTOR_CACHE_DIR": str(own / "inductor"), "TRITON_CACHE_DIR": str(own / "triton")}
    return {**os.environ, **threads, **folders, "PYTHONUNBUFFERED": "1"}


def _start_process(words: Sequence[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
    """A process that leads a group of its own, so that a terminal's Ctrl-C comes to this one alone."""
    return subprocess.Popen(
        [sys.executable, "-m", "ropewalk", *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )


def _stop_process(child: "subprocess.Popen[str]") -> None:
    """End a process that has not ended, and what it has begun itself."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()


def _print_output(number: int, child: "subprocess.Popen[str]", console: Console) -> None:
    assert child.stdout is not None
    with child.stdout as said:
        for line in said:
            console.print(Text(f"{number + 1}: {line.rstrip()}"), soft_wrap=True)


@contextlib.contextmanager
def _raise_on_termination() -> Iterator[None]:
    """What would end this process at once ends it by an exception."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in TERMINATION_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

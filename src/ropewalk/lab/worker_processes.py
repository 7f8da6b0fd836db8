"""Run the same command in several processes on one machine, which share a directory of runs.

Each process compiles in a cache directory of its own, because shared caches have given wrong results, and uses its share of
the cores. On a GPU this pays for small models: one trains while another compiles or is probed. Kernels of several processes
run side by side only with NVIDIA's MPS.
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

from ropewalk.lab.environment import NEIGHBORS_VARIABLE, count_cpu_cores

TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def run_in_parallel(count: int, words: Sequence[str], console: Console) -> list[int]:
    """Run `ropewalk` with these arguments in `count` processes, print what each of them prints, and return their exit codes.

    If this process is interrupted or terminated, it terminates them all; runs can be resumed, as after any kill.
    """
    children: list[subprocess.Popen[str]] = []
    printers: list[threading.Thread] = []
    with tempfile.TemporaryDirectory(prefix="ropewalk-") as folder, _raise_on_termination():
        try:
            for number in range(count):
                children.append(_start_process(words, make_process_environment(number, count, Path(folder))))
                printers.append(threading.Thread(target=_print_output, args=(number, children[-1], console)))
                printers[-1].start()
            return [child.wait() for child in children]
        finally:
            for child in children:
                _stop_process(child)
            for printer in printers:
                printer.join()


def make_process_environment(number: int, count: int, caches: Path) -> dict[str, str]:
    """The environment variables of process `number` out of `count`."""
    share, own = str(max(1, count_cpu_cores() // count)), caches / str(number)
    threads = {"OMP_NUM_THREADS": share, "TORCHINDUCTOR_COMPILE_THREADS": share, NEIGHBORS_VARIABLE: str(count - 1)}
    folders = {"TORCHINDUCTOR_CACHE_DIR": str(own / "inductor"), "TRITON_CACHE_DIR": str(own / "triton")}
    return {**os.environ, **threads, **folders, "PYTHONUNBUFFERED": "1"}


def _start_process(words: Sequence[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
    """Start a process in a group of its own, so that a terminal's Ctrl-C reaches this process alone."""
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
    """Terminate a process that still runs, and its children."""
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
    """Turn signals that would end this process at once into SystemExit."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in TERMINATION_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

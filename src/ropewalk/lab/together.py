"""The same command in several processes on one machine, which share its runs.

Each compiles for itself, in a folder of its own, and computes with its share of the processors: caches that processes share
have given wrong results, and threads that outnumber processors take turns. On a GPU this pays for small models, above all
since one trains while another compiles or is probed; NVIDIA's MPS lets their kernels run side by side, which without it they
do not.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console


def together(count: int, words: Sequence[str], caches: Path, console: Console) -> list[int]:
    """Run `ropewalk` with these words so many times at once, tell what each says, and return their codes.

    Interrupted or told to end, it interrupts them all, and ends when they have ended.
    """
    command = [sys.executable, "-m", "ropewalk", *words]
    children = [_begun(command, environment(i, count, caches)) for i in range(count)]
    tellers = [threading.Thread(target=_tell, args=(i, each, console)) for i, each in enumerate(children)]
    for each in tellers:
        each.start()
    before = signal.signal(signal.SIGTERM, _end)
    try:
        return [child.wait() for child in children]
    finally:
        for child in children:
            child.send_signal(signal.SIGINT)  # those that have ended get none
        for child, teller in zip(children, tellers, strict=True):
            child.wait()
            teller.join()
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def environment(number: int, count: int, caches: Path) -> dict[str, str]:
    """That of one of so many processes."""
    share, own = str(max(1, (os.cpu_count() or 1) // count)), caches.resolve() / str(number)
    threads = {"OMP_NUM_THREADS": share, "TORCHINDUCTOR_COMPILE_THREADS": share}
    folders = {"TORCHINDUCTOR_CACHE_DIR": str(own / "inductor"), "TRITON_CACHE_DIR": str(own / "triton")}
    return {**os.environ, **threads, **folders, "PYTHONUNBUFFERED": "1"}


def _begun(command: list[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
    """A process in a session of its own, so that a terminal's Ctrl-C reaches it once, through this one."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _tell(number: int, child: "subprocess.Popen[str]", console: Console) -> None:
    assert child.stdout is not None
    with child.stdout as said:
        for line in said:
            console.print(f"{number + 1}: {line.rstrip()}", highlight=False)

"""Trials of run directories and readers: kills, flipped bits and hostile files, each with the number that went unnoticed.

python benchmarks/damage_trials.py --kills 200 --bits 1000 --files 500 --out results/damage-trials.json

kills  A small training is killed at random moments and resumed, until it ends; it must end as one that was left alone does.
bits   One random bit in one file of a finished and of an unfinished run is flipped; that must be reported, or change nothing
       that is read, neither in the record nor in what training resumes from.
files  Every reader opens each hostile file: pipes, devices, archives that unpack to gigabytes, deep JSON, mutated documents.
       It must return or refuse, by an error that commands print in a line, within seconds and a limit of memory.

The exit code is 1 if any trial failed. Messages of failed runs, failed.txt and trace.txt, have no checksum and no trial.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ropewalk.lab import train
from ropewalk.lab.config import Config
from ropewalk.lab.environment import count_cpu_cores, list_package_versions
from ropewalk.lab.errors import CommandError, DamagedFileError
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder

SMALL = Config(
    data="digits", patch=2, width=16, depth=1, heads=2, ratio=2.0, epochs=3, batch=64, fraction=0.2, warmup=1.0, workers=0,
    augment=("crop",), ema=0.9, checkpoint=0.0,
)  # fmt: skip
SERVER = multiprocessing.get_context("forkserver")
REFUSALS = (ValueError, OSError, DamagedFileError, CommandError)
"""Errors that commands print in a line."""
SECONDS_PER_FILE = 20


def train_small(runs: Path) -> RunFolder:
    """Train with a checkpoint after each step."""
    torch.set_num_threads(1)
    train.CHECKPOINT_INTERVAL_FACTOR = 0
    return train.train_run(SMALL, runs)


# Kills


def try_kills(kills: int, folder: Path, draw: random.Random) -> dict[str, int]:
    """Kill trainings so many times in all, and compare the end of each with that of an undisturbed one."""
    SERVER.set_forkserver_preload(["ropewalk.lab.train"])
    for name in ("server", "whole"):  # the first one waits for the imports of the server
        begun = time.monotonic()
        process = SERVER.Process(target=train_small, args=(folder / name,))
        process.start()
        process.join()
    lasts, whole = time.monotonic() - begun, describe_end(RunFolder(folder / "whole", SMALL))
    counts = Counter(kills=0, runs=0, other_ends=0)
    while counts["kills"] < kills:
        counts["runs"] += 1
        run = RunFolder(folder / f"killed{counts['runs']}", SMALL)
        while run.result() is None:
            process = SERVER.Process(target=train_small, args=(run.path.parent,))
            process.start()
            process.join(draw.uniform(0.0, lasts) if counts["kills"] < kills else None)
            if process.is_alive():
                os.kill(process.pid or 0, signal.SIGKILL)
                counts["kills"] += 1
            process.join()
            if process.exitcode not in (0, -signal.SIGKILL):
                raise RuntimeError(f"{run.path} could not be resumed, see above")
        counts["other_ends"] += describe_end(run) != whole
        shutil.rmtree(run.path.parent)
    return {**counts}


def describe_end(run: RunFolder) -> list[Any]:
    """All that a run found, but how long it took."""
    rows = [*run.metrics(), run.result() or {}]
    tensors = run.load_weights()[0]
    plain = {name: value.tolist() for name, value in tensors.items()}
    return [
        [{name: value for name, value in row.items() if name != "seconds"} for row in rows],
        plain,
        load_run(run.path).problems,
    ]


# Bits


def try_bits(bits: int, folder: Path, draw: random.Random) -> dict[str, dict[str, int]]:
    """Flip so many bits of a finished and of an unfinished run, one at a time."""
    finished, unfinished = train_small(folder / "finished"), _interrupt_training(folder / "unfinished")
    return {
        "finished": _flip_bits(finished.path, bits, draw, read_finished),
        "unfinished": _flip_bits(unfinished.path, bits, draw, read_unfinished),
    }


def _interrupt_training(runs: Path) -> RunFolder:
    def watch(record: Any) -> None:
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    train.CHECKPOINT_INTERVAL_FACTOR = 0
    try:
        train.train_run(SMALL, runs, watch=watch)
    except KeyboardInterrupt:
        return RunFolder(runs, SMALL)
    raise RuntimeError("the training was not interrupted")


def _flip_bits(path: Path, bits: int, draw: random.Random, read: Callable[[Path], tuple[Any, bool]]) -> dict[str, int]:
    files = sorted(each for each in path.iterdir() if each.stat().st_size)
    (clean, told), counts = read(path), Counter(flipped=0, reported=0, without_effect=0, unnoticed=0)
    if told:
        raise RuntimeError(f"{path} has problems before anything is damaged")
    for _ in range(bits):
        file = draw.choice(files)
        whole = file.read_bytes()
        place = draw.randrange(8 * len(whole))
        file.unlink()  # a checkpoint may be linked under two names
        file.write_bytes(_flip_bit(whole, place))
        found, told = read(path)
        kind = "reported" if told else "without_effect" if found == clean else "unnoticed"
        if kind == "unnoticed":
            print(f"unnoticed: bit {place} of {file}", file=sys.stderr)
        counts.update(["flipped", kind])
        file.write_bytes(whole)
    return {**counts}


def _flip_bit(data: bytes, place: int) -> bytes:
    byte, bit = divmod(place, 8)
    return data[:byte] + bytes([data[byte] ^ (1 << bit)]) + data[byte + 1 :]


def read_finished(path: Path) -> tuple[Any, bool]:
    """What the record and the weights of a run are, and whether anything was reported."""
    try:
        record = load_run(path)
        tensors, facts = RunFolder.at(path).load_weights()
    except REFUSALS:
        return None, True
    return [record.to_dict(), _to_bytes(tensors), facts], bool(record.problems)


def read_unfinished(path: Path) -> tuple[Any, bool]:
    """What training would resume from, and whether anything was reported. It works on a copy."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        copy = Path(shutil.copytree(path, Path(folder) / path.name))
        try:
            record, run = load_run(copy), RunFolder(folder, SMALL)
            checkpoint = run.load_latest_checkpoint()
            assert checkpoint is not None
            problem = run.restore_metrics(checkpoint.facts)
            metrics, environment = run.metrics(), run.read_document("environment.json")
        except REFUSALS:
            return None, True
    provenance = {
        name: environment.get(name) for name in ("commit", "versions", "machine", "data", "encoding", "index_seed")
    }
    found = [record.config, record.run, _to_bytes(checkpoint.tensors), checkpoint.facts, metrics, provenance]
    return found, bool(told or record.problems or problem)


def _to_bytes(tensors: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {name: tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for name, tensor in tensors.items()}


# Hostile files


def try_files(files: int, folder: Path, draw: random.Random) -> dict[str, int]:
    """Open so many hostile files with every reader."""
    from hostile_files import READERS, make_hostile_file  # type: ignore[import-not-found]

    counts = Counter(files=0, opened=0, refused=0, read=0, crashed=0)
    for number in range(files):
        name, path = make_hostile_file(number, folder / str(number), draw)
        counts["files"] += 1
        for reader, read in READERS.items():
            counts["opened"] += 1
            try:
                with _limit_seconds(SECONDS_PER_FILE), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    read(path)
                counts["read"] += 1
            except REFUSALS:
                counts["refused"] += 1
            except Exception as error:
                counts["crashed"] += 1
                print(f"{reader} of {name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        shutil.rmtree(folder / str(number))
    return {**counts}


class LateError(Exception):
    """A reader that waits, or reads without an end."""


@contextmanager
def _limit_seconds(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise LateError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_trials(kills: int, bits: int, files: int, seed: int = 0) -> dict[str, Any]:
    """All trials; those of a count 0 are left out."""
    draw, found = random.Random(seed), dict[str, Any]()
    trials = {"kills": (try_kills, kills), "bits": (try_bits, bits), "files": (try_files, files)}
    for name, (attempt, count) in trials.items():
        if count:
            with tempfile.TemporaryDirectory(prefix="ropewalk-damage-") as folder:
                begun = time.monotonic()
                found[name] = attempt(count, Path(folder), draw)
                print(f"{name}: {found[name]} in {time.monotonic() - begun:.0f} s", flush=True)
    return found


def count_failures(found: dict[str, Any]) -> int:
    """Trials that ended as they must not."""
    bits = sum(each["unnoticed"] for each in found.get("bits", {}).values())
    return bits + found.get("kills", {}).get("other_ends", 0) + found.get("files", {}).get("crashed", 0)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills, flipped bits and hostile files.")
    for name, default in (("kills", 200), ("bits", 1000), ("files", 500), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=Path("results/damage-trials.json"))
    given = parser.parse_args()
    limit = 16 * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    found = run_trials(given.kills, given.bits, given.files, given.seed)
    machine = f"{count_cpu_cores()} cores, CPU"
    about = {"date": str(datetime.date.today()), "machine": machine, "versions": list_package_versions(), "seed": given.seed}
    given.out.write_text(json.dumps({**about, **found}, indent=1) + "\n")
    print(f"written to {given.out}; {count_failures(found)} trials failed")
    return 1 if count_failures(found) else 0


if __name__ == "__main__":
    sys.exit(main())

"""How many trainings side by side use a GPU best: epochs a second of all together, by their number, in one run.

python benchmarks/side_by_side.py --path results/side-by-side-h200.json

Each is a process of its own with the tiny model of CIFAR-100, compiled, on made-up images, with its share of the processors
and with folders of its own for what compilers keep. All compile at first; then one trains, then two, and so on, while the
others wait. If one fails, the others are ended, and so is the measurement, in words.
"""

import dataclasses
import datetime
import json
import multiprocessing
import os
import queue
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro

CLASSES = 100


def worker(number: int, most: int, epochs: int, given: dict[str, Any], data: str, gate: Any, times: Any) -> None:
    """One training: it compiles, then takes part in every round that has room for it."""
    with tempfile.TemporaryDirectory(dir=Path(data).parent) as folder:
        share = str(max(1, (os.cpu_count() or 1) // most))
        os.environ |= {"OMP_NUM_THREADS": share, "TORCHINDUCTOR_COMPILE_THREADS": share}
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        from accelerate import Accelerator

        from ropewalk.lab.recipes import RECIPES
        from ropewalk.lab.run_store import RunFolder
        from ropewalk.lab.train import Trainer

        config = dataclasses.replace(RECIPES["cifar100-tiny"], data=data, encoding="mixed", learning_rate=1e-8, **given)
        precision = "bf16" if config.precision == "bfloat16" else "no"
        trainer = Trainer(
            config, RunFolder(Path(folder), config), Accelerator(mixed_precision=precision), lambda record: None
        )
        for _ in range(2):
            trainer.train_epoch()
        for count in range(1, most + 1):
            gate.wait()
            begun = time.perf_counter()
            for _ in range(epochs if number < count else 0):
                trainer.train_epoch()
            if number < count:
                times.put((count, time.perf_counter() - begun))
            gate.wait()


def measured(most: int, epochs: int, given: dict[str, Any], images: int) -> list[dict[str, Any]]:
    """A row for each number of trainings: seconds an epoch in each of them, the slowest, and of all together."""
    spawn = multiprocessing.get_context("spawn")
    gate, times = spawn.Barrier(most), spawn.Queue()
    found: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = made_up(Path(folder) / "made-up.npz", images)
        members = [spawn.Process(target=worker, args=(i, most, epochs, given, data, gate, times)) for i in range(most)]
        for each in members:
            each.start()
        try:
            for count, seconds in gathered(most * (most + 1) // 2, members, times):
                found.setdefault(count, []).append(seconds / epochs)
        except BaseException:
            for each in members:
                each.terminate()
            raise
        finally:
            for each in members:
                each.join()
    return [{"trainings": count, "each": max(own), "together": max(own) / count} for count, own in sorted(found.items())]


def gathered(count: int, members: Sequence[Any], times: Any) -> list[tuple[int, float]]:
    """So many times of the members, if none of them fails."""
    found: list[tuple[int, float]] = []
    while len(found) < count:
        try:
            found.append(times.get(timeout=1))
        except queue.Empty:
            if codes := [each.exitcode for each in members if each.exitcode]:
                raise SystemExit(f"one of {len(members)} trainings ended with the code {codes[0]}: see above") from None
    return found


def made_up(path: Path, images: int) -> str:
    """Images and labels without meaning, as many as CIFAR-100 has."""
    draw = np.random.default_rng(0)
    sets = {"train": images, "test": max(images // 5, CLASSES)}
    pixels = {f"{split}_images": draw.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8) for split, n in sets.items()}
    np.savez(path, **pixels, **{f"{split}_labels": np.arange(n) % CLASSES for split, n in sets.items()})
    return str(path)


def main(
    path: Path | None = None, most: int = 4, epochs: int = 5, images: int = 50_000, given: tuple[str, ...] = ()
) -> None:
    """Measure and, if a file is named, write it.

    Args:
        path: The file.
        most: Trainings side by side, from one on.
        epochs: Of each round.
        images: To train on.
        given: Settings that replace the recipe's, as key=value.
    """
    from ropewalk.lab.encoding_spec import parse_options
    from ropewalk.lab.environment import describe_machine, list_package_versions

    rows = measured(most, epochs, parse_options(given), images)
    for row in rows:
        print(f"{row['trainings']} side by side: {row['each']:.2f} s an epoch in each, {row['together']:.2f} s in all")
    if path is not None:
        head = {
            "machine": describe_machine(),
            "versions": list_package_versions(),
            "date": datetime.date.today().isoformat(),
        }
        path.write_text(
            json.dumps({**head, "model": "cifar100-tiny, mixed", "epochs": epochs, "rows": rows}, indent=1) + "\n"
        )
        print(path)


if __name__ == "__main__":
    tyro.cli(main)

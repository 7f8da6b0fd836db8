"""The whole training loop beside the bare step on one batch that does not change: images a second of both, in one run.

python benchmarks/training_loop.py cifar100.npz results/training-loop-h200.json

The bare step is forward, backward and update of the same compiled model; the loop adds what training needs: picking samples,
augmentation, normalisation, clipping, the learning rate, and summing the loss. Both go through as many steps in turn.
"""

import dataclasses
import datetime
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from accelerate import Accelerator

from ropewalk.lab.environment import describe_machine, list_package_versions
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks.classify import classification_loss
from ropewalk.lab.train import Trainer

CASES = {"cifar100-tiny": ("none", "mixed"), "cifar100-small": ("mixed",)}
ROUNDS = 7


def bare(trainer: Trainer, images: torch.Tensor, targets: torch.Tensor) -> None:
    """One step of nothing but the model and its optimiser."""
    loss = classification_loss(trainer.model(images), targets, trainer.config)
    trainer.accelerator.backward(loss)
    trainer.optimiser.step()
    trainer.optimiser.zero_grad(set_to_none=True)


def timed(work) -> float:
    """Seconds of some work, until the device has done it."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def measured(data: str, recipe: str, encoding: str) -> dict:
    """Milliseconds a step of the bare step, of the loop, and of augmentation alone."""
    config = dataclasses.replace(RECIPES[recipe], data=data, encoding=encoding, learning_rate=1e-8)  # it learns nothing
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, RunFolder(Path(folder), config), Accelerator(mixed_precision="bf16"), lambda record: None)
        images = torch.randn(config.batch, 3, 32, 32, device="cuda")
        targets = torch.nn.functional.one_hot(torch.arange(config.batch, device="cuda") % 100, 100).float()
        steps = trainer.per_epoch
        compiling = timed(trainer.train_epoch)
        batches, augment = list(trainer.load_batches()), trainer.task.augment
        works = {
            "bare": lambda: [bare(trainer, images, targets) for _ in range(steps)],
            "loop": trainer.train_epoch,
            "augmentation": lambda: [augment(b.images, b.labels, b.index, epoch=0, classes=100) for b in batches],
            "validation": lambda: trainer.compute_scores("validation"),
        }
        times = {name: [] for name in works}
        for _ in range(ROUNDS + 1):
            for name, work in works.items():
                times[name].append(timed(work))
        row = {"recipe": recipe, "encoding": encoding, "steps": steps, "batch": config.batch, "first epoch s": compiling}
        row |= {f"{name} ms": 1e3 * statistics.median(found[1:]) / steps for name, found in times.items()}
        ratios = [bare / loop for bare, loop in zip(times["bare"][1:], times["loop"][1:], strict=True)]
        return row | {"loop of bare": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}


def main(data: str, path: Path) -> None:
    head = {"machine": describe_machine(), "versions": list_package_versions(), "date": datetime.date.today().isoformat()}
    found = head | {"finished": False, "rows": []}
    for recipe, encodings in CASES.items():
        for encoding in encodings:
            row = measured(data, recipe, encoding)
            print({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}, flush=True)
            found["rows"].append(row)
            path.write_text(json.dumps(found, indent=1) + "\n")
            torch.compiler.reset()
    found["finished"] = True
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "training-loop.json"))

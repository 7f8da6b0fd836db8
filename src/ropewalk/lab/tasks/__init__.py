"""What a run trains a model for. `ropewalk.lab.task_types` declares the tasks; here is a file for each.

A task has the model, its data and its loss. All else, from the optimizer to checkpoints, is `Trainer`'s, which uses no more
of a task than this:

    task = build_task(config, device)
    for batch in task.batches(epoch, rank, world):
        loss = task.loss(model, batch, epoch=epoch, step=step, rank=rank)
    task.scores(model, "validation", accelerator)   # {"accuracy": …, "loss": …}
"""

import importlib
from typing import Any

import torch

from ropewalk.lab.config import Config
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.task_types import find_task
from ropewalk.lab.tasks.base import Task, TrainedRun, load_trained_weights


def load_task(config: Config) -> type[Task]:
    """The class that implements the task of a run. It is imported here, so that a run needs no other task's libraries."""
    module, _, name = find_task(config).implementation.partition(":")
    kind: type[Task] = getattr(importlib.import_module(module), name)
    return kind


def build_task(config: Config, device: torch.device | str) -> Task:
    """The task of a run, with its data and a model at its random initialization."""
    return load_task(config)(config, device)


def load_trained_model(run: RunFolder) -> Any:
    """The model of a finished run as it was evaluated, with averaged weights if there are any. It needs no data."""
    return load_trained_weights(load_task(run.config), run)


def open_trained_run(run: RunFolder, device: torch.device | str | None = None) -> TrainedRun:
    """The model and the data of a finished run on a device, by default a GPU if there is one."""
    where = ("cuda" if torch.cuda.is_available() else "cpu") if device is None else device
    return load_task(run.config).open_trained(run, torch.device(where))

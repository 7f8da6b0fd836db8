"""What a run trains a model for: images with classes, boxes, masks or maps, or text whose next byte is to be found.

A task has the model, its data and its loss. All else, from optimiser to checkpoints, is `Trainer`'s, which knows no more of
a task than this:

    task = task_of(config, device)
    for batch in task.batches(epoch, rank, world):
        loss = task.loss(model, batch, epoch=epoch, step=step, rank=rank)
    task.scores(model, "validation", accelerator)   # {"accuracy": …, "loss": …}
"""

import torch

from ropewalk.lab.config import Config
from ropewalk.lab.tasks.base import Task


def build_task(config: Config, device: torch.device | str) -> Task:
    """The task of a run: text where it has a length, else images."""
    if config.task == "segment":
        from ropewalk.lab.tasks.segment import SegmentationTask

        return SegmentationTask(config, device)
    if config.task is not None:
        from ropewalk.lab.tasks.detect import DetectionTask

        return DetectionTask(config, device)
    if config.length is None:
        from ropewalk.lab.tasks.classify import ClassificationTask

        return ClassificationTask(config, device)
    from ropewalk.lab.tasks.text import TextTask

    return TextTask(config, device)

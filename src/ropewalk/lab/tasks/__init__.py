"""What a run trains a model for: images with classes, boxes, masks or maps, or text whose next byte is to be found.

A task has the model, its data and its loss. All else, from optimiser to checkpoints, is `Trainer`'s, which knows no more of
a task than this:

    task = task_of(config, device)
    for batch in task.batches(epoch, rank, world):
        loss = task.loss(model, batch, epoch=epoch, step=step, rank=rank)
    task.scores(model, "validation", accelerator)   # {"accuracy": …, "loss": …}
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.lab.config import Config

if TYPE_CHECKING:
    from ropewalk.lab.starting import Model


class Task(Protocol):
    """A model and what it is trained on; `steps` are those of an epoch."""

    steps: int

    @property
    def model(self) -> "Model":
        """With its first weights, on the device."""

    def batches(self, epoch: int, rank: int, world: int) -> Iterator[Any]:
        """One process's share of each batch of an epoch."""

    def loss(self, model: nn.Module, batch: Any, *, epoch: int, step: int, rank: int) -> Tensor:
        """Of a share of a batch, that of process `rank`; `model` is `self.model`, perhaps wrapped."""

    def facts(self) -> dict[str, Any]:
        """What tells its data from others, as plain JSON values."""

    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """How well a model does on a part of the data, in all processes together."""


@runtime_checkable
class Pictured(Protocol):
    """A task of which a picture is kept beside the result."""

    def picture(self, model: nn.Module) -> bytes:
        """What a model makes of a few test images."""


def task_of(config: Config, device: torch.device | str) -> Task:
    """The task of a run: text where it has a length, else images."""
    if config.task == "segment":
        from ropewalk.lab.tasks.segment import Segmenting

        return Segmenting(config, device)
    if config.task is not None:
        from ropewalk.lab.tasks.detect import Detecting

        return Detecting(config, device)
    if config.length is None:
        from ropewalk.lab.tasks.vision import Vision

        return Vision(config, device)
    from ropewalk.lab.tasks.text import Reading

    return Reading(config, device)

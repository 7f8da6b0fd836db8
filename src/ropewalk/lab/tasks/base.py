"""What a task is: the protocol that training, checks and probes rely on, and what several tasks share."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.encoding import Encoding
from ropewalk.lab.config import Config, check_unused_settings
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.task_types import find_task

if TYPE_CHECKING:
    from ropewalk.lab.init_from import TrainableModel

CHECKED_SAMPLES = 2
"""Samples in a trial: two, since mixup mixes pairs."""
Trial = Callable[[Config], None]
"""Builds the model of a config with one layer and runs it on blank samples; it raises what training would raise."""


class ChannelStatistics(Protocol):
    """Mean and deviation of each channel of images in [0, 1]."""

    @property
    def mean(self) -> tuple[float, ...]: ...

    @property
    def std(self) -> tuple[float, ...]: ...


def normalize_images(images: Tensor, data: ChannelStatistics) -> Tensor:
    """Normalize images in [0, 1], (B C *size), by the mean and standard deviation of each channel of the training set."""
    shape = (1, -1, *[1] * (images.ndim - 2))
    spread = tuple(value or 1.0 for value in data.std)
    mean, std = (_copy_to_device(values, images.device).view(shape) for values in (data.mean, spread))
    return (images - mean) / std


@functools.cache
def _copy_to_device(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Copy once: a copy in every step would synchronize with the device."""
    return torch.tensor(values, device=device)


class Task(Protocol):
    """A model and what it is trained on; `steps` are those of an epoch."""

    steps: int

    def __init__(self, config: Config, device: torch.device | str) -> None: ...

    @property
    def model(self) -> "TrainableModel":
        """The model on the device, at first with random weights."""

    def batches(self, epoch: int, rank: int, world: int, *, first: int = 0) -> Iterator[Any]:
        """One process's share of each batch of an epoch, from batch `first` on."""

    def loss(self, model: nn.Module, batch: Any, *, epoch: int, step: int, rank: int) -> Tensor:
        """The loss of process `rank`'s share of a batch; `model` is `self.model`, perhaps wrapped."""

    def facts(self) -> dict[str, Any]:
        """What identifies the data, as plain JSON values."""

    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Scores of a model on a part of the data, over all processes."""

    @classmethod
    def open_trial(cls, config: Config, processes: int) -> Trial:
        """Check settings and data before training; the result checks each encoding with a forward pass."""

    @classmethod
    def build_from_facts(cls, config: Config, facts: Mapping[str, Any]) -> "TrainableModel":
        """The model of a run with these facts about its data, at its random initialization."""

    @classmethod
    def open_trained(cls, run: RunFolder, device: torch.device) -> "TrainedRun":
        """A finished run with its model and what probes need of its data."""


@runtime_checkable
class PerImageTask(Protocol):
    """A task whose test answers are recorded image by image.

    index_seed  The seed by which images of the dataset were assigned to training and validation.
    """

    index_seed: int

    def score_images(self, model: nn.Module, split: str, accelerator: Accelerator) -> tuple[Mapping[str, float], Tensor]:
        """The scores of a split, and whether each of its images is classified correctly, in the dataset's own order."""


@runtime_checkable
class PicturedTask(Protocol):
    """A task that saves a picture of predictions beside the result."""

    def picture(self, model: nn.Module) -> bytes:
        """The predictions of a model for a few test images, as a PNG file."""


def load_trained_weights(task: type[Task], run: RunFolder) -> Any:
    """Build the model of a finished run and load its weights: their moving average, if there is one."""
    weights, facts = run.load_weights()
    with torch.random.fork_rng(devices=[]):  # the random weights are overwritten
        model = task.build_from_facts(run.config, facts["data"])
    model.load_state_dict(weights)
    return model.eval().requires_grad_(False)


@dataclass(frozen=True)
class TrainedRun(ABC):
    """A finished run, opened for measurements: its directory, and its model in evaluation mode on a device."""

    run: RunFolder
    model: Any

    @property
    def config(self) -> Config:
        """The settings of the run."""
        return self.run.config

    @property
    def encoding(self) -> Encoding:
        """The trained encoding."""
        found: Encoding = self.model.encoding
        return found

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the model is."""

    @property
    @abstractmethod
    def model_facts(self) -> Mapping[str, Any]:
        """What `Task.build_from_facts` needs to build such a model."""

    @abstractmethod
    def make_blank_inputs(self, count: int) -> Tensor:
        """A batch of the size of training."""

    def select_timed_part(self, model: nn.Module) -> nn.Module:
        """The part of a model whose throughput is measured, if it is not the whole."""
        return model


def check_dense_config(config: Config, operations: Sequence[str]) -> None:
    """Refuse data that are not a folder, settings that have no effect, and unknown augmentation operations."""
    task = find_task(config).name
    if not Path(config.data).expanduser().is_dir():
        wanted = "a folder of images and annotations, as the recipes penn-fudan and penn-fudan-maps take"
        raise ValueError(f"the task {task} needs data in {wanted}, got {config.data!r}")
    check_unused_settings(config)
    if unknown := [name for name in config.augment if name not in operations]:
        raise ValueError(f"augment takes {', '.join(operations)} for the task {task}, got {', '.join(unknown)}")

"""Settings that a dense task needs, and that it has no use for."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.lab.config import Config

if TYPE_CHECKING:
    from ropewalk.lab.init_from import TrainableModel


_DEFAULT_CONFIG = Config()
_DETECTION_UNUSED = (
    "model",
    "loss",
    "smoothing",
    "strength",
    "mixup",
    "cutmix",
    "perturb",
    "shift",
    "rescale",
    "per_sample",
)
UNUSED_FIELDS = {"detect": _DETECTION_UNUSED, "masks": _DETECTION_UNUSED, "segment": ("model", "loss", "mixup", "cutmix")}
"""Settings of classes that a task has no use for."""


def check_dense_config(config: Config, ways: Sequence[str]) -> None:
    """Refuse data that are no folder, and settings that would do nothing: those of classes that differ from their defaults,
    and augmentation that is not among the ways that there are."""
    if not Path(config.data).expanduser().is_dir():
        wanted = "a folder of images and what is in them, as the recipes penn-fudan and penn-fudan-maps take"
        raise ValueError(f"the task {config.task} needs data in {wanted}, got {config.data!r}")
    for name in UNUSED_FIELDS[str(config.task)]:
        if (value := getattr(config, name)) != (default := getattr(_DEFAULT_CONFIG, name)):
            raise ValueError(f"{name} is of classes: for {config.task} it must be {default!r}, got {value!r}")
    if unknown := [name for name in config.augment if name not in ways]:
        raise ValueError(f"augment takes {', '.join(ways)} for {config.task}, got {', '.join(unknown)}")


class ChannelStatistics(Protocol):
    """Mean and deviation of each channel of images in [0, 1]."""

    @property
    def mean(self) -> tuple[float, ...]: ...

    @property
    def std(self) -> tuple[float, ...]: ...


def normalize_images(images: Tensor, data: ChannelStatistics) -> Tensor:
    """Images in [0, 1], (B C *size), with the mean 0 and deviation 1 of the training set in each channel that varies."""
    shape = (1, -1, *[1] * (images.ndim - 2))
    spread = tuple(value or 1.0 for value in data.std)
    mean, std = (_copy_to_device(values, images.device).view(shape) for values in (data.mean, spread))
    return (images - mean) / std


@functools.cache
def _copy_to_device(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers on a device; sending them there in every step would make it wait."""
    return torch.tensor(values, device=device)


class Task(Protocol):
    """A model and what it is trained on; `steps` are those of an epoch."""

    steps: int

    @property
    def model(self) -> "TrainableModel":
        """With its first weights, on the device."""

    def batches(self, epoch: int, rank: int, world: int, *, first: int = 0) -> Iterator[Any]:
        """One process's share of each batch of an epoch, from batch `first` on."""

    def loss(self, model: nn.Module, batch: Any, *, epoch: int, step: int, rank: int) -> Tensor:
        """Of a share of a batch, that of process `rank`; `model` is `self.model`, perhaps wrapped."""

    def facts(self) -> dict[str, Any]:
        """What tells its data from others, as plain JSON values."""

    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """How well a model does on a part of the data, in all processes together."""


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
    """A task of which a picture is kept beside the result."""

    def picture(self, model: nn.Module) -> bytes:
        """What a model makes of a few test images."""

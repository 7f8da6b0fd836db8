"""Accuracy and loss of a model on a part of the data."""

import functools
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.lab.data import Data, in_order


class Scores(NamedTuple):
    """The share of samples whose class is found, and the mean cross entropy."""

    accuracy: float
    loss: float


class Normal(Protocol):
    """Mean and deviation of each channel of images in [0, 1]."""

    @property
    def mean(self) -> tuple[float, ...]: ...

    @property
    def std(self) -> tuple[float, ...]: ...


def normalised(images: Tensor, data: Normal) -> Tensor:
    """Images in [0, 1], (B C *size), with the mean 0 and deviation 1 of the training set in each channel that varies."""
    shape = (1, -1, *[1] * (images.ndim - 2))
    spread = tuple(value or 1.0 for value in data.std)
    mean, std = (_there(values, images.device).view(shape) for values in (data.mean, spread))
    return (images - mean) / std


@functools.cache
def _there(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers on a device; sending them there in every step would make it wait."""
    return torch.tensor(values, device=device)


@torch.no_grad()
def evaluate(model: nn.Module, data: Data, split: str, accelerator: Accelerator, *, batch: int) -> Scores:
    """On all samples of a split, each process taking its share."""
    model.eval()
    right, lost, seen = torch.zeros(3, dtype=torch.float64, device=accelerator.device).unbind()
    order = in_order(data.counts[split], batch, accelerator.process_index, accelerator.num_processes)
    for some in data.batches(split, order, epoch=0):
        images = padded(some.images, len(order[0]))
        logits = model(normalised(images.float() / 255, data)).float()[: len(some.labels)]
        right += (logits.argmax(-1) == some.labels).sum()
        lost += F.cross_entropy(logits, some.labels, reduction="sum")
        seen += len(some.labels)
    right, lost, seen = accelerator.reduce(torch.stack([right, lost, seen]), "sum").tolist()
    return Scores(right / seen, lost / seen)


def padded(images: Tensor, count: int) -> Tensor:
    """As many images, the last ones black: all batches have one shape, so that nothing is compiled for the last alone."""
    return F.pad(images, (*[0] * (2 * images.ndim - 1), count - len(images)))

"""How far maps of classes agree: counts of pixels, from which all scores follow.

    counts = confusion(truth, answer, classes)   # (classes classes), truths in rows, answers in columns
    mean_iou(counts), pixel_accuracy(counts)

Counts are whole numbers: those of several images, or processes, are added and give what all of them together give.
"""

import torch
from torch import Tensor

from ropewalk.lab.data.maps.pairs import IGNORED


def confusion(truth: Tensor, answer: Tensor, classes: int) -> Tensor:
    """How many pixels of each class were taken for each, int64; those of which nothing is known are left out."""
    known = truth != IGNORED
    pairs = truth[known] * classes + answer[known]
    return torch.bincount(pairs, minlength=classes * classes).view(classes, classes)


def iou(counts: Tensor) -> Tensor:
    """Of each class, the pixels that are its own and were found over those that are its own or were taken for it, float64.

    It is NaN for a class that does not occur.
    """
    right, own, taken = counts.diagonal(), counts.sum(1), counts.sum(0)
    return torch.where(own > 0, right.double() / (own + taken - right), torch.nan)


def mean_iou(counts: Tensor) -> float:
    """The mean over the classes that occur."""
    return iou(counts).nanmean().item()


def pixel_accuracy(counts: Tensor) -> float:
    """The share of pixels whose class was found."""
    return (counts.diagonal().sum().double() / counts.sum()).item()

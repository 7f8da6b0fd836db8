"""What the page on papers computes: a module for each paper, and one for the spans of all of them."""

from typing import Any

import torch

import ropewalk as rw

SIDE = 14  # patches


def create_seeded_encoding(name: str, *, seed: int = 0, **options: Any) -> rw.Encoding:
    """An encoding in float64 whose random start is always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return rw.create(name, **options).double()


def count_parameters(name: str, **options: Any) -> int:
    """Learned parameters in a ViT-B of 12 layers with 12 heads of 64."""
    encoding = create_seeded_encoding(name, head_dim=64, heads=12, layers=12, **options)
    return sum(parameter.numel() for parameter in encoding.parameters())

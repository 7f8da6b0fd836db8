"""Augmentation of patch positions in training, the same for all encodings.

Positions are drawn in units of patches, on the CPU, from (seed, step), and then converted to the coordinates of the
encoding: whatever these are, tokens move by the same fractions of a patch.
"""

import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.encoding import Encoding
from ropewalk.lab.config import Config
from ropewalk.lab.hash_random import derive_seed

PERTURB_STREAM = 1007  # random stream of a step; dropout's are numbered by process


def perturb_positions(
    config: Config,
    encoding: Encoding,
    grid: tuple[int, ...],
    *,
    step: int,
    share: slice,
    resolution: str = "extrapolate",
) -> Tensor | None:
    """Augmented positions (N, axes), or (B, N, axes) of a share of the batch with `per_sample`; None without augmentation.

    `resolution` is how an encoding computes the positions of a grid that is not its own.
    """
    if not (config.perturb or config.shift or config.rescale != 1):
        return None
    generator = torch.Generator().manual_seed(derive_seed(config.seed, step, PERTURB_STREAM))
    middle = torch.tensor([(side - 1) / 2 for side in grid])
    p = positions.grid(*grid, coordinates="index") - middle
    p = p.expand(config.batch, -1, -1) if config.per_sample else p
    p = positions.perturb(p, 1.0, sigma=config.perturb, generator=generator) if config.perturb else p
    p = positions.rescale(p, config.rescale, generator=generator) if config.rescale != 1 else p
    sides = torch.tensor(grid)
    p = positions.shift(p / sides, config.shift, generator=generator) * sides if config.shift else p
    p = p[share] if config.per_sample else p
    return patches_to_coordinates(encoding, grid, p + middle, resolution)


def patches_to_coordinates(
    encoding: Encoding, grid: tuple[int, ...], patches: Tensor, resolution: str = "extrapolate"
) -> Tensor:
    """Convert positions in units of patches to the coordinates of an encoding, which are linear in them along each axis."""
    whole = encoding.grid(*grid, resolution=resolution, device="cpu")
    first, last = whole[0], whole[-1]
    steps = torch.tensor([max(side - 1, 1) for side in grid])
    return first + patches * (last - first) / steps

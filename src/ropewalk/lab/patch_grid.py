"""Patches of images, volumes and clips: their sizes, how many there are along each axis, and their positions in training.

A patch has one side for all axes, or one for each, such as a tubelet of 2 × 16 × 16. Augmentation of positions is the same
for all encodings: positions are drawn in units of patches, on the CPU, from (seed, step), and then converted to the
coordinates of the encoding. Whatever these are, tokens move by the same fractions of a patch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.encoding import Encoding
from ropewalk.lab.config import Config
from ropewalk.lab.hash_random import derive_seed

# Type of the setting `patch`.
PatchSize = int | Sequence[int]


def get_patch_sides(patch: PatchSize, axes: int) -> tuple[int, ...]:
    """The side of a patch along each axis."""
    sides = (patch,) * axes if isinstance(patch, int) else tuple(patch)
    if len(sides) != axes:
        raise ValueError(f"patch must be one number or {axes}, one for each axis of the images, got {format_patch(sides)}")
    return sides


def get_square_side(patch: PatchSize) -> int:
    """The side of a patch of an image, which is the same along both axes."""
    rows, columns = get_patch_sides(patch, 2)
    if rows != columns:
        raise ValueError(f"patch must be square for the tasks detect, masks and segment, got {format_patch(patch)}")
    return rows


def patch_divides_image(size: Sequence[int], patch: PatchSize) -> bool:
    """Whether patches fill an image of this size."""
    return not any(side % own for side, own in zip(size, get_patch_sides(patch, len(size)), strict=True))


def compute_patch_grid(size: Sequence[int], patch: PatchSize) -> tuple[int, ...]:
    """Number of patches along each axis of an image; a remainder is dropped."""
    return tuple(side // own for side, own in zip(size, get_patch_sides(patch, len(size)), strict=True))


def compute_grid_size(grid: Sequence[int], patch: PatchSize) -> tuple[int, ...]:
    """Size of an image with this number of patches along each axis."""
    return tuple(side * own for side, own in zip(grid, get_patch_sides(patch, len(grid)), strict=True))


def format_patch(patch: PatchSize) -> str:
    """Format a patch or a size: 2 × 16 × 16."""
    return str(patch) if isinstance(patch, int) else " × ".join(map(str, patch))


PERTURB_STREAM = 1007  # random stream of a step; dropout's are numbered by process


def perturb_positions(
    config: Config,
    encoding: Encoding,
    grid: tuple[int, ...],
    *,
    step: int,
    share: slice,
    resolution: positions.Resolution | None = None,
) -> Tensor | None:
    """Augmented positions (N, axes), or (B, N, axes) of a share of the batch with `per_sample`; None without augmentation.

    `resolution` is how an encoding computes the positions of a grid that is not its own, by default as `Encoding.grid`.
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
    encoding: Encoding, grid: tuple[int, ...], patches: Tensor, resolution: positions.Resolution | None = None
) -> Tensor:
    """Convert positions in units of patches to the coordinates of an encoding, which are linear in them along each axis."""
    whole = encoding.grid(*grid, resolution=resolution, device="cpu")
    first, last = whole[0], whole[-1]
    steps = torch.tensor([max(side - 1, 1) for side in grid])
    return first + patches * (last - first) / steps

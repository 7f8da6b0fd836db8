"""Sizes of patches of images, volumes and clips: one side for all axes, or one for each, such as tubelets of 2 × 16 × 16."""

from collections.abc import Sequence

PatchSize = int | Sequence[int]
"""The setting `patch`."""


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

"""Patches of images, volumes and clips: one side for all axes, or one for each, such as tubelets of 2 × 16 × 16."""

from collections.abc import Sequence

Patch = int | Sequence[int]
"""As settings have it."""


def sides_of(patch: Patch, axes: int) -> tuple[int, ...]:
    """The sides of a patch along so many axes."""
    sides = (patch,) * axes if isinstance(patch, int) else tuple(patch)
    if len(sides) != axes:
        raise ValueError(f"patch must be one number or {axes}, one for each axis of the images, got {told(sides)}")
    return sides


def square(patch: Patch) -> int:
    """The side of a patch of an image, which is the same along both axes."""
    rows, columns = sides_of(patch, 2)
    if rows != columns:
        raise ValueError(f"patch must be as high as it is wide for tasks that find places, got {told(patch)}")
    return rows


def fills(size: Sequence[int], patch: Patch) -> bool:
    """Whether patches fill an image of this size."""
    return not any(side % own for side, own in zip(size, sides_of(patch, len(size)), strict=True))


def grid_of(size: Sequence[int], patch: Patch) -> tuple[int, ...]:
    """Patches along each axis of an image of this size; what is left over at an end is not counted."""
    return tuple(side // own for side, own in zip(size, sides_of(patch, len(size)), strict=True))


def size_of(grid: Sequence[int], patch: Patch) -> tuple[int, ...]:
    """The size of an image of so many patches along each axis."""
    return tuple(side * own for side, own in zip(grid, sides_of(patch, len(grid)), strict=True))


def told(patch: Patch) -> str:
    """A patch in words."""
    return str(patch) if isinstance(patch, int) else " × ".join(map(str, patch))

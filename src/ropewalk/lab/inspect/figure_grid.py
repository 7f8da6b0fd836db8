"""The grid of a figure: the size of an image, a clip or a text in patches, and its positions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.arguments import positives
from ropewalk.encoding import Encoding

DEFAULT_TEXT_LENGTH = 64
DEFAULT_IMAGE_GRID = (14, 14)
DEFAULT_FRAME_COUNT = 8
AXIS_NAMES = {1: ("position",), 2: ("row", "column"), 3: ("frame", "row", "column")}


def get_default_grid_size(axes: int) -> tuple[int, ...]:
    """A text of 64 positions, the 14 x 14 patches of a ViT, or 8 frames of them."""
    return (DEFAULT_TEXT_LENGTH,) if axes == 1 else (*(DEFAULT_FRAME_COUNT,) * (axes - 2), *DEFAULT_IMAGE_GRID)


def resolve_grid_size(
    encoding: Encoding, size: Sequence[int] | None = None, *, places: int = DEFAULT_TEXT_LENGTH
) -> tuple[int, ...]:
    """The number of patches along each axis: as given, else the encoding's training grid, else that of an ordinary ViT.

    A text has `places` positions, whatever its training length, unless that exceeds the reach of the encoding.
    """
    if size is not None and len(positives("size", size)) != encoding.axes:
        raise ValueError(f"size must have one number for each of the {encoding.axes} axes, got {tuple(size)}")
    if size is not None:
        return positives("size", size)
    if encoding.axes == 1 and (encoding.size is None or _reaches_length(encoding, places)):
        return (places,)
    return encoding.size or get_default_grid_size(encoding.axes)


def _reaches_length(encoding: Encoding, places: int) -> bool:
    return encoding.coordinates == "index" and encoding.traits.reach >= places - 1


def get_axis_names(axes: int) -> tuple[str, ...]:
    """The name of a step along each axis, in the singular; an s makes the plural."""
    return AXIS_NAMES.get(axes) or tuple(f"axis-{axis + 1} step" for axis in range(axes))


def get_step_unit(axes: int) -> str:
    """The plural of the unit of positions: positions of a text, patches of an image."""
    return "positions" if axes == 1 else "patches"


def format_grid_size(size: Sequence[int]) -> str:
    """A size in words."""
    across = " × ".join(f"{n:,}" for n in size)
    return f"{across} {get_step_unit(len(size))}" if len(size) != 3 else f"{size[0]} frames of {size[1]} × {size[2]} patches"


def interpolate_positions(encoding: Encoding, size: Sequence[int], *indices: Tensor) -> Tensor:
    """Positions (N, axes) at all combinations of these indices of patches, one tensor an axis, fractions included."""
    grid = encoding.grid(*size, resolution="extrapolate", device="cpu").unflatten(0, tuple(size))
    origin = grid[(0,) * len(size)]
    steps = [grid.select(axis, 1)[(0,) * (len(size) - 1)] - origin if n > 1 else 0 * origin for axis, n in enumerate(size)]
    mesh = torch.meshgrid(*indices, indexing="ij")
    return origin + sum(index.reshape(-1, 1) * step for index, step in zip(mesh, steps, strict=True))


def compute_axis_endpoints(encoding: Encoding, size: Sequence[int]) -> Tensor:
    """Positions (1 + axes, axes) of the first patch and of the last one along each axis."""
    ends = torch.diag(torch.tensor([n - 1.0 for n in size]))
    points = torch.cat([torch.zeros(1, len(size)), ends])
    return torch.cat([interpolate_positions(encoding, size, *point[:, None]) for point in points])


def subdivide_patches(n: int, samples: int) -> Tensor:
    """`samples` indices that part n patches evenly, from edge to edge."""
    return (torch.arange(samples) + 0.5) * (n / samples) - 0.5


def spread_indices(count: int, wanted: int) -> list[int]:
    """At most `wanted` of `count` indices, evenly spread."""
    taken = min(wanted, count)
    return [i * count // taken for i in range(taken)]

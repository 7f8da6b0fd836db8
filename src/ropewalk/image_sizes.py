"""Positions of a model's patches at any image size.

The `size` of an encoding is its training grid; `resolution` says how it positions other grids: see `Encoding.grid`. A model
also has the grid that it was made for. So it can raise for images whose positions would depend on a `size` that is not
given, and apply context extension rules, which depend on the size of the image.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.positions import Resolution, check_resolution


def place_patches(
    encoding: Encoding,
    sizes: Sequence[int],
    *,
    known: Sequence[int],
    resolution: Resolution | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """Positions (N, axes) of a grid of patches, for a model that was made for the grid `known`."""
    modes = None if resolution is None else check_resolution(resolution, encoding.axes)
    if encoding.size is None and tuple(sizes) != tuple(known):
        _check_without_size(encoding, sizes, known, modes)
    if modes is not None and "rescale" in modes and getattr(encoding, "extension", None) is not None:
        reason = f"the extension {encoding.extension} of {encoding.name} treats larger images already"
        raise ValueError(f"{reason}: give resolution='extrapolate' or None, or make the encoding without it")
    return encoding.grid(*sizes, resolution=modes, device=device)


def settle_size(encoding: Encoding, sizes: Sequence[int]) -> Encoding:
    """The encoding for images of so many patches: itself, or where a rule depends on that, one with the same parameters."""
    return encoding.at(sizes) if encoding.waiting else encoding


def _check_without_size(
    encoding: Encoding, sizes: Sequence[int], known: Sequence[int], modes: tuple[str, ...] | None
) -> None:
    """Without `size`, indices can be extrapolated alone and all other coordinates rescaled alone."""
    able = "extrapolate" if encoding.coordinates == "index" else "rescale"
    if set(modes or ()) == {able} or (modes is None and (able == "rescale" or encoding.own_resolution == able)):
        return
    words = f"the model was made for {_format_sizes(known)} patches, and its encoding {encoding.name} has size=None"
    ways = f"make the encoding with size={tuple(known)}, so that images can be rescaled or extrapolated"
    only = f"or give resolution={able!r}, which does not depend on it"
    raise ValueError(f"{words}: for {_format_sizes(sizes)} patches, {ways}, {only}")


def _format_sizes(sizes: Sequence[int]) -> str:
    return " × ".join(map(str, sizes))

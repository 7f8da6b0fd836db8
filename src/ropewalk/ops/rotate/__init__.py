"""Turn pairs of channels by an angle."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.ops.fused import declare, fits, fuse
from ropewalk.ops.rotate.reference import rotate_reference

torch.library.define(
    "ropewalk::rotate",
    "(Tensor[] xs, Tensor[] angles, Tensor?[] gains, bool interleaved, SymInt[] prefixes) -> Tensor[]",
)
declare("rotate", "Tensor?[] gains, bool interleaved, SymInt[] prefixes")


def even(angles: list[Tensor], gains: list[Tensor | None]) -> bool:
    """Whether q and k have as many pairs, and either all have gains, each shaped like its angles, or none."""
    shapes = [None if gain is None else gain.shape for gain in gains]
    return len({angle.shape[-1] for angle in angles}) == 1 and shapes in ([None] * len(gains), [a.shape for a in angles])


def _rotate(
    xs: list[Tensor], angles: list[Tensor], gains: list[Tensor | None], interleaved: bool, prefixes: list[int]
) -> list[Tensor]:
    if fits(xs, angles, gains) and even(angles, gains):
        return fuse("rotate", xs, angles, gains, interleaved, prefixes)
    return rotate_reference(xs, angles, gains, interleaved, prefixes)


torch.library.impl("ropewalk::rotate", "CompositeImplicitAutograd", _rotate)
torch.library.impl("ropewalk::rotate", "FuncTorchBatched", rotate_reference)


def rotate(
    xs: Sequence[Tensor],
    angles: Sequence[Tensor],
    gains: Sequence[Tensor | None],
    *,
    interleaved: bool,
    prefixes: Sequence[int],
) -> list[Tensor]:
    """Rotate each x (B H N D) by its angle ([B] h n P), h dividing H and N = prefix + n.

    Pair i is channels (2i, 2i + 1) when interleaved and (i, i + P) otherwise. Channels from 2P on and the first
    `prefix` tokens stay as they are. A gain ([B] h n P) stretches its pairs. The result has the dtype of x.
    """
    if torch.compiler.is_compiling():
        return torch.ops.ropewalk.rotate(list(xs), list(angles), list(gains), interleaved, list(prefixes))
    return _rotate(list(xs), list(angles), list(gains), interleaved, list(prefixes))

"""Turn triplets of channels by one angle an axis, axis after axis."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.ops.fused import Fused, declare, fits
from ropewalk.ops.sphere.reference import PLANES as PLANES
from ropewalk.ops.sphere.reference import sphere_reference

torch.library.define("ropewalk::sphere", "(Tensor[] xs, Tensor[] angles, SymInt[] prefixes) -> Tensor[]")
declare("sphere", "SymInt[] prefixes")


def _sphere(xs: list[Tensor], angles: list[Tensor], prefixes: list[int]) -> list[Tensor]:
    if fits(xs, angles) and len({angle.shape[-2:] for angle in angles}) == 1:
        return list(Fused.apply("sphere", len(xs), (prefixes,), *xs, *angles))
    return sphere_reference(xs, angles, prefixes)


torch.library.impl("ropewalk::sphere", "CompositeImplicitAutograd", _sphere)
torch.library.impl("ropewalk::sphere", "FuncTorchBatched", sphere_reference)


def sphere(xs: Sequence[Tensor], angles: Sequence[Tensor], *, prefixes: Sequence[int]) -> list[Tensor]:
    """Turn each x (B H N D) by its angles ([B] h n T A), one to three axes, axis 0 first, in the planes of `PLANES`.

    Triplet j is channels (3j, 3j + 1, 3j + 2). Channels from 3T on and the first `prefix` tokens stay as they are.
    """
    if torch.compiler.is_compiling():
        return torch.ops.ropewalk.sphere(list(xs), list(angles), list(prefixes))
    return _sphere(list(xs), list(angles), list(prefixes))

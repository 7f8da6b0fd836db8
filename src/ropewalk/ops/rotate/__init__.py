"""Turn pairs of channels by an angle."""

from collections.abc import Sequence

from torch import Tensor

from ropewalk.ops.fused import DTYPES
from ropewalk.ops.rotate.reference import rotate_reference
from ropewalk.ops.turning import Turning

Gains = Sequence[Tensor | None]


def suits(
    x: Tensor, angles: list[Tensor], gains: Gains, interleaved: bool, sections: Sequence[int], prefixes: Sequence[int]
) -> bool:
    """Whether q and k have as many pairs, and either all have gains that do not learn, shaped like their angles, or none."""
    pairs = angles[0].shape[-1]
    if pairs != angles[-1].shape[-1] or 2 * pairs > x.shape[-1]:
        return False
    if sections and (interleaved or sum(sections) != pairs or min(sections) < 1):
        return False  # which the reference refuses
    if all(gain is None for gain in gains):
        return True
    return all(_known(*pair) for pair in zip(gains, angles, strict=True))


def _known(gain: Tensor | None, angle: Tensor) -> bool:
    if gain is None or gain.device != angle.device or gain.dtype not in DTYPES:
        return False
    return gain.shape == angle.shape and not gain.requires_grad


_OPTIONS = "Tensor?[] gains, bool interleaved, int[] sections, SymInt[] prefixes"
_rotate = Turning("rotate", 1, _OPTIONS, rotate_reference, suits)


def rotate(
    xs: Sequence[Tensor],
    angles: Sequence[Tensor],
    gains: Gains,
    *,
    interleaved: bool,
    prefixes: Sequence[int],
    sections: Sequence[int] | None = None,
) -> list[Tensor]:
    """Rotate each x (B H N D) by its angle ([B] h n P), h dividing H and N = prefix + n.

    Pair i is channels (2i, 2i + 1) when interleaved and (i, i + P) otherwise; with `sections`, numbers of pairs that make
    P, channels are cut into parts of twice so many, each half-split by itself. Channels from 2P on and the first `prefix`
    tokens stay as they are. A gain ([B] h n P) stretches its pairs. The result has the dtype of x. The kernel is not
    differentiable twice.
    """
    return _rotate(xs, angles, list(gains), interleaved, list(sections or ()), list(prefixes))


def rotate_(
    xs: Sequence[Tensor],
    angles: Sequence[Tensor],
    gains: Gains,
    *,
    interleaved: bool,
    prefixes: Sequence[int],
    sections: Sequence[int] | None = None,
) -> None:
    """As `rotate`, where xs lie, for inference."""
    _rotate.in_place(xs, angles, list(gains), interleaved, list(sections or ()), list(prefixes))


def rotate_qkv(
    x: Tensor,
    heads: int,
    angles: Sequence[Tensor],
    gains: Gains,
    *,
    interleaved: bool,
    prefixes: Sequence[int],
    sections: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotate q (B H N D) and k (B h N D) of a projection x (B N H+h+h D), H = `heads`; v comes with them."""
    return _rotate.qkv(x, heads, angles, list(gains), interleaved, list(sections or ()), list(prefixes))

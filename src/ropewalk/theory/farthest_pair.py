"""The largest singular value of M - N over all pairs of blocks M and N that are rotations.

Trying all pairs is out of reach: 64 × 64 places make 16.8 million. Their Frobenius norms are one matrix product, and bound
the singular values. For rotations M and N, M - N = M (I - MᵀN) and I - MᵀN is normal with the values |1 - exp(iθ)|, two of
each: the largest is at most ‖M - N‖_F / √2, equal to it for blocks of 2 and 3, and at most 2. So the pairs of the largest
norms are tried first, and then those whose norms leave room for more.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

ELEMENTS = 2**22  # distances at a time
FIRST = 64  # pairs of a block that are tried first
TRIED = 2**26  # pairs of a head that are tried at most, times the cube of the block
LEAST = 2**12  # pairs of a head that are tried in any case
BATCH = 2**13
CLOSE = 1e-6  # relative
ROUNDING = 1e-12


class Farthest(NamedTuple):
    """The largest singular value found, and the most that it can be over all pairs."""

    found: float
    bound: float


def find_farthest(queries: Tensor, keys: Tensor) -> Farthest:
    """Of M (N G b b) less N (K G b b), block by block, for one head."""
    middle = keys.mean(0)  # distances cancel less about it
    blocks = list(zip((queries - middle).unbind(1), (keys - middle).unbind(1), strict=True))
    closed = queries.shape[-1] <= 3
    best, bounds = 0.0, []
    for block in blocks:
        radii = sum(side.flatten(1).norm(dim=1).max().item() for side in block)
        bound = _limit(radii)
        if bound > max(best * (1 + CLOSE), ROUNDING):
            distances, pairs = _take_farthest(*block)
            bound = _limit(distances[0].item())
            best = max(best, bound if closed else _compute_largest(*block, pairs))
        bounds.append(bound)
    left = max(LEAST, TRIED // queries.shape[-1] ** 3)
    for block, bound in zip(blocks, bounds, strict=True):
        if closed or bound <= max(best * (1 + CLOSE), ROUNDING):
            continue
        for pairs in _find_farther(*block, best, min(left, BATCH)):
            best, left = max(best, _compute_largest(*block, pairs, above=best)), left - len(pairs)
            if left <= 0:
                return Farthest(best, max(best, *bounds))
    return Farthest(best, best)


def _limit(distance: float) -> float:
    """The most that a singular value can be at a Frobenius norm."""
    return min(distance / math.sqrt(2), 2.0)


def _compute_distances(left: Tensor, right: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Frobenius norms of M (N b b) less N (K b b), some M at a time, and the first of these."""
    step = max(1, ELEMENTS // len(right))
    for start in range(0, len(left), step):
        some = left[start : start + step].flatten(1)
        yield start, torch.cdist(some, right.flatten(1), compute_mode="use_mm_for_euclid_dist")


def _take_farthest(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """The largest Frobenius norms, falling, and their pairs."""
    norms, pairs = [], []
    for start, far in _compute_distances(left, right):
        top = far.flatten().topk(min(FIRST, far.numel()))
        norms.append(top.values)
        pairs.append(torch.stack([start + top.indices // len(right), top.indices % len(right)], dim=-1))
    top = torch.cat(norms).topk(min(FIRST, sum(map(len, norms))))
    return top.values, torch.cat(pairs)[top.indices]


def _find_farther(left: Tensor, right: Tensor, best: float, count: int) -> Iterator[Tensor]:
    """The pairs whose Frobenius norm allows a larger singular value, some at a time."""
    for start, far in _compute_distances(left, right):
        yield from ((far > math.sqrt(2) * best * (1 + CLOSE)).nonzero() + torch.tensor([start, 0], device="cpu")).split(
            count
        )


def _compute_largest(left: Tensor, right: Tensor, pairs: Tensor, above: float = 0.0) -> float:
    """The largest singular value of these pairs, if it exceeds `above`, else 0."""
    delta = left[pairs[:, 0]] - right[pairs[:, 1]]
    if above:
        # The trace of (ΔᵀΔ)⁸ has twice the sixteenth power of the largest singular value, and is cheaper.
        fourth = torch.linalg.matrix_power(delta.mT @ delta, 4)
        delta = delta[fourth.square().sum((-2, -1)) > 2 * (above * (1 + CLOSE)) ** 16]
    return torch.linalg.matrix_norm(delta, ord=2).max().item() if len(delta) else 0.0

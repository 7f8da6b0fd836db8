"""How much attention scores change when both tokens move.

A rotary encoding scores q at x and k at y by qᵀ R(x)ᵀ R(y) k. If both move by s, the score changes by qᵀ Δ k with

    Δ = R(x + s)ᵀ R(y + s) - R(x)ᵀ R(y).

Its largest singular value is the most that unit vectors can lose; for q and k of independent normal entries, the root of the
mean square of qᵀ Δ k is the Frobenius norm of Δ, and that of a score itself is √D. Both vanish exactly if the encoding is
relative; two rotations are never farther apart than 2.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.encoding import Encoding


class Change(NamedTuple):
    """What moving by each shift along each axis does to scores, ([L] h A S), and where, ([L] h A S N).

    worst     The largest singular value of Δ over all pairs of tokens.
    expected  The root mean square change of a score over that of a score, over all pairs.
    place     The same for each query, over all keys.
    """

    worst: Tensor
    expected: Tensor
    place: Tensor


def equivariance(encoding: Encoding, positions: Tensor, shifts: Sequence[float] = (1.0,)) -> Change:
    """The change of scores between all pairs of positions (N, axes) when both move along one axis, for each shift."""
    still = _relations(encoding, positions)
    steps = torch.eye(encoding.axes, dtype=positions.dtype, device=positions.device)
    moved = [[_relations(encoding, positions + shift * step) for shift in shifts] for step in steps]
    delta = torch.stack([torch.stack(axis, dim=2) for axis in moved], dim=2) - still[:, :, None, None]
    worst = torch.linalg.matrix_norm(delta, ord=2).amax((-2, -1))
    square = delta.square().sum((-2, -1)) / encoding.head_dim
    found = worst, square.mean((-2, -1)).sqrt(), square.mean(-1).sqrt()
    return Change(*(each if encoding.layers is not None else each[0] for each in found))


def rope_equation(encoding: Encoding, *, pairs: int = 16, reach: float = 3.0) -> float:
    """How far R(x)ᵀ R(y) is from depending on y - x alone: the largest singular value of Δ over random x, y and shifts."""
    generator = torch.Generator().manual_seed(0)
    x, y, shift = (reach * torch.randn(pairs, encoding.axes, dtype=torch.float64, generator=generator) for _ in range(3))
    both = torch.cat([x, y]).to(next(encoding.buffers(), x).device)
    first, second = (_matrices(encoding, points) for points in (both, both + torch.cat([shift, shift]).to(both)))
    relations = [each[:, :, :pairs].mT @ each[:, :, pairs:] for each in (first, second)]
    return torch.linalg.matrix_norm(relations[1] - relations[0], ord=2).max().item()


def _relations(encoding: Encoding, positions: Tensor) -> Tensor:
    """R(x)ᵀ R(y) of all pairs, (L h N N D D)."""
    turns = _matrices(encoding, positions)
    return turns.unsqueeze(-3).mT @ turns.unsqueeze(-4)


def _matrices(encoding: Encoding, positions: Tensor) -> Tensor:
    """R at each position, (L h N D D), L = 1 where there are no layers."""
    code = encoding(positions)
    if not code.rotary:
        raise TypeError(f"{encoding.name} turns nothing: equivariance is measured on rotations")
    turns: Tensor = code.matrices().detach()
    return turns if encoding.layers is not None else turns.unsqueeze(0)

"""How much attention scores change when both tokens move.

A rotary encoding scores q at x and k at y by qᵀ R(x)ᵀ R(y) k. If both move by s, the score changes by qᵀ Δ k with

    Δ = R(x + s)ᵀ R(y + s) - R(x)ᵀ R(y).

Its largest singular value is the most that unit vectors can lose; for q and k of independent normal entries, the root of the
mean square of qᵀ Δ k is the Frobenius norm of Δ, and that of a score itself is √D. Both vanish exactly if the encoding is
relative; two rotations are never farther apart than 2. R is block-diagonal, hence so is Δ: its norms are those of blocks.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.code import Basis, Chain
from ropewalk.encoding import Encoding
from ropewalk.positions import as_coordinates
from ropewalk.theory.commuting import exact

ELEMENTS = 2**22  # of Δ at a time


class Change(NamedTuple):
    """What moving by each shift along each axis does to scores, ([L] h A S), and where, ([L] h A S N).

    worst     The largest singular value of Δ over all pairs of tokens.
    expected  The root mean square change of a score over that of a score, over all pairs.
    place     The same for each query, over all keys.
    """

    worst: Tensor
    expected: Tensor
    place: Tensor


def equivariance(encoding: Encoding, positions: Tensor, shifts: Sequence[float]) -> Change:
    """The change of scores between all pairs of positions (N, axes) when both move along one axis, for each shift.

    Shifts are in the encoding's coordinates, as positions are. Of a chain, it is the change by what turns; computed in
    float64 on the CPU.
    """
    p = as_coordinates("positions", positions, encoding.axes).detach().cpu().double()
    if p.ndim != 2 or not len(p) or not shifts:
        came = f"{tuple(positions.shape)} and {len(shifts)} shifts"
        raise ValueError(f"positions must be (N, {encoding.axes}) with N of 1 or more, and shifts one or more, got {came}")
    made = exact(encoding)
    still, steps = _sides(made, p), torch.eye(encoding.axes, dtype=p.dtype, device="cpu")
    moves = (p + shift * step for step in steps for shift in shifts)
    each = [_norms(still, _sides(made, moved), made.traits.isometric) for moved in moves]
    worst, square = (torch.stack(every, dim=2).unflatten(2, (-1, len(shifts))) for every in zip(*each, strict=True))
    square = square / encoding.head_dim
    found = worst.amax(-1), square.mean(-1).sqrt(), square.sqrt()
    return Change(*(one if encoding.layers is not None else one[0] for one in found))


def rope_equation(encoding: Encoding, *, pairs: int = 16, reach: float = 3.0) -> float:
    """How far R(x)ᵀ R(y) is from depending on y - x alone: the largest singular value of Δ over random x, y and shifts.

    They are Gaussian of the deviation `reach`, in the encoding's coordinates. Of a chain, it is of what turns.
    """
    draw = torch.randn(
        3, pairs, encoding.axes, dtype=torch.float64, generator=torch.Generator().manual_seed(0), device="cpu"
    )
    (x, y, shift), made = (reach * draw).unbind(), exact(encoding)
    before, after = (_relations(made, first, second) for first, second in ((x, y), (x + shift, y + shift)))
    return torch.linalg.matrix_norm(after - before, ord=2).max().item()


def _relations(encoding: Encoding, x: Tensor, y: Tensor) -> Tensor:
    """R(x)ᵀ R(y), position by position."""
    queries, keys = _sides(encoding, torch.cat([x, y]))
    return queries[..., : len(x), :, :].mT @ keys[..., len(x) :, :, :]


def _sides(encoding: Encoding, positions: Tensor) -> tuple[Tensor, Tensor]:
    """R of queries and of keys at each position, (L h N D D), L = 1 where there are no layers.

    A basis that q and k are written in first is left out: orthonormal, it changes no norm.
    """
    with torch.device("cpu"):
        code = encoding(positions)
        if isinstance(code, Chain) and isinstance(code.codes[0], Basis):
            code = Chain(layers=code.layers, codes=code.codes[1:])
        sides = code.matrices().detach(), code.key_matrices().detach()
    return sides if encoding.layers is not None else (sides[0].unsqueeze(0), sides[1].unsqueeze(0))


def _norms(still: tuple[Tensor, Tensor], moved: tuple[Tensor, Tensor], isometric: bool) -> tuple[Tensor, Tensor]:
    """For each query (L h N), the largest singular value of Δ over keys, and the mean over keys of the sum of squares."""
    sides = (*still, *moved)
    each = [_norms_of(isometric, *(_cut(side, channels) for side in sides)) for channels in _blocks(*sides)]
    worst, square = (torch.stack(every) for every in zip(*each, strict=True))
    return worst.amax(0), square.sum(0)


def _norms_of(isometric: bool, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """The same for blocks of one size, (L h N G b b): of queries and keys as they stand, and moved."""
    worst, square = [], []
    for some in _chunks(a):
        delta = c[:, :, some, None].mT @ d[:, :, None] - a[:, :, some, None].mT @ b[:, :, None]
        squares = delta.square().sum((-2, -1))
        worst.append(_largest(delta, squares, isometric).amax((-2, -1)))
        square.append(squares.sum(-1).mean(-1))
    return torch.cat(worst, dim=-1), torch.cat(square, dim=-1)


def _largest(delta: Tensor, squares: Tensor, isometric: bool) -> Tensor:
    """The largest singular value. For rotations of a plane or of space, P - Q = P (I - PᵀQ) has two equal ones, no more."""
    if isometric and delta.shape[-1] <= 3:
        return (squares / 2).sqrt()
    return torch.linalg.matrix_norm(delta, ord=2)


def _chunks(side: Tensor) -> Iterator[slice]:
    """So many queries at a time that Δ stays small."""
    step = max(1, ELEMENTS // side.numel())
    return (slice(start, start + step) for start in range(0, side.shape[2], step))


def _cut(side: Tensor, channels: Tensor) -> Tensor:
    """The blocks (… G b b) of channels (G b)."""
    return side[..., channels[:, :, None], channels[:, None, :]]


def _blocks(*sides: Tensor) -> list[Tensor]:
    """Channels (G b) that these matrices mix with each other, for each size b of such a set."""
    touch = sum((side != 0).flatten(0, -3).any(0).double() for side in sides) + torch.eye(sides[0].shape[-1], device="cpu")
    for _ in range(sides[0].shape[-1].bit_length()):
        touch = (touch @ touch.mT > 0).double()
    sets = {tuple(row.nonzero().flatten().tolist()) for row in touch}
    sizes = sorted({len(each) for each in sets})
    return [torch.tensor(sorted(each for each in sets if len(each) == size), device="cpu") for size in sizes]

"""How much attention scores change when both tokens move.

A rotary encoding scores q at x and k at y by qᵀ R(x)ᵀ R(y) k. If both move by s, the score changes by qᵀ Δ k with

    Δ = R(x + s)ᵀ R(y + s) - R(x)ᵀ R(y).

Its largest singular value is the most that unit vectors can lose; for q and k of independent normal entries, the root of the
mean square of qᵀ Δ k is the Frobenius norm of Δ, and that of a score itself is √D. Both vanish exactly if the encoding is
relative; two rotations are never farther apart than 2. R is block-diagonal, hence so is Δ: its norms are those of blocks.

Where R is orthogonal, Δ has the singular values of R(x) Δ R(y + s)ᵀ = M(x) - M(y) with M(x) = R(x) R(x + s)ᵀ. So the mean
square over all pairs is a variance of M, which takes no pairs at all, and the largest singular value is the distance of the
farthest two.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.arguments import instance_of, number, numbers, positive, positive_number
from ropewalk.code import Basis, Chain
from ropewalk.encoding import Encoding
from ropewalk.positions import as_coordinates
from ropewalk.theory.commuting import exact
from ropewalk.theory.farthest_pair import find_farthest

ELEMENTS = 2**22  # of matrices at a time
WORK = 2**38  # multiplications for the largest singular value along one shift, beyond which positions are sampled
PAIRS = 2**20  # pairs of positions that are compared one by one, where R is not orthogonal


class Change(NamedTuple):
    """What moving by each shift along each axis does to scores, ([L] h A S), and where, ([L] h A S N).

    worst     The largest singular value of Δ over all pairs of tokens, to six digits.
    expected  The root mean square change of a score over that of a score, over all pairs.
    place     The same for each query, over all keys.
    """

    worst: Tensor
    expected: Tensor
    place: Tensor


class Measured(NamedTuple):
    """Of one shift: the largest singular value of Δ (L h), and for each query (L h N) the mean square of Δ over keys."""

    worst: Tensor
    square: Tensor
    note: str  # what a user has to know of how it was computed
    mixed: bool  # whether R mixes channels of different blocks


def equivariance(
    encoding: Encoding,
    positions: Tensor,
    shifts: Sequence[float],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Change:
    """The change of scores between all pairs of positions (N, axes) when both move along one axis, for each shift.

    Shifts are in the encoding's coordinates, as positions are. Of a chain, it is the change by what turns; computed in
    float64 on the CPU. After each shift `progress` is called with the number of shifts that are done, and of all.

    A rotation's `expected` and `place` are exact for any number of positions, in a time that grows as that number. Where
    comparing all pairs would take too long, `worst` is computed on a sample of positions, with a warning; so are all
    three, beyond 2²⁰ pairs, of an encoding that changes norms, such as xPos.
    """
    instance_of("encoding", encoding, Encoding)
    p = as_coordinates("positions", positions, encoding.axes)
    if p.is_meta:
        raise ValueError("positions must have values, got a tensor on the meta device")
    p = p.detach().cpu().double()
    shifts = numbers("shifts", shifts)
    if p.ndim != 2 or not len(p) or not shifts:
        came = f"{tuple(positions.shape)} and {len(shifts)} shifts"
        raise ValueError(f"positions must be (N, {encoding.axes}) with N of 1 or more, and shifts one or more, got {came}")
    made = exact(encoding)
    measure = _measure_rotations if made.traits.isometric else _measure_products
    moves = [shift * step for step in torch.eye(encoding.axes, dtype=p.dtype, device="cpu") for shift in shifts]
    # R at general positions mixes all channels that it mixes anywhere, unless it is no smooth function of them.
    general = torch.rand(4, encoding.axes, dtype=p.dtype, generator=torch.Generator().manual_seed(0), device="cpu")
    blocks, each = _find_blocks(made, general), []
    for done, move in enumerate(moves, 1):
        each.append(measure(made, p, move, blocks))
        if progress is not None:
            progress(done, len(moves))
    if any(one.mixed for one in each):
        blocks = [torch.arange(encoding.head_dim, device="cpu")[None]]
        each = [measure(made, p, move, blocks) for move in moves]
    for note in dict.fromkeys(one.note for one in each if one.note):
        warnings.warn(f"equivariance: {note}", stacklevel=2)
    worst = torch.stack([one.worst for one in each], dim=2).unflatten(2, (-1, len(shifts)))
    square = torch.stack([one.square for one in each], dim=2).unflatten(2, (-1, len(shifts)))
    square = square / encoding.head_dim
    found = worst, square.mean(-1).sqrt(), square.sqrt()
    return Change(*(one if encoding.layers is not None else one[0] for one in found))


def rope_equation(encoding: Encoding, *, pairs: int = 16, reach: float = 3.0) -> float:
    """How far R(x)ᵀ R(y) is from depending on y - x alone: the largest singular value of Δ over random x, y and shifts.

    They are Gaussian of the deviation `reach`, in the encoding's coordinates. Of a chain, it is of what turns.
    """
    instance_of("encoding", encoding, Encoding)
    pairs, reach = positive("pairs", pairs), number("reach", positive_number("reach", reach), most=1e9)
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
    with torch.device("cpu"), torch.no_grad():
        code = encoding(positions)
        if isinstance(code, Chain) and isinstance(code.codes[0], Basis):
            code = Chain(layers=code.layers, codes=code.codes[1:])
        sides = code.matrices(), code.key_matrices()
    return sides if encoding.layers is not None else (sides[0].unsqueeze(0), sides[1].unsqueeze(0))


def _measure_rotations(encoding: Encoding, p: Tensor, move: Tensor, blocks: Sequence[Tensor]) -> Measured:
    parts, mixed = [], False
    for some in _pieces(encoding, p):
        products = [
            first @ second.mT for first, second in zip(_sides(encoding, some), _sides(encoding, some + move), strict=True)
        ]
        parts.append([[_cut(product, channels) for channels in blocks] for product in products])
        mixed = mixed or any(_mixes_blocks(product, blocks) for product in products)
    worst, notes = [], []
    total = p.new_zeros(())
    for size in range(len(blocks)):
        queries, keys = (torch.cat([part[side][size] for part in parts], dim=2) for side in (0, 1))  # (L h N G b b)
        middle = keys.mean(2, keepdim=True)
        variance = (keys - middle).square().sum((-3, -2, -1)).mean(-1, keepdim=True)
        total = total + (queries - middle).square().sum((-3, -2, -1)) + variance
        largest, note = _find_worst(queries, keys)
        worst.append(largest)
        notes.append(note)
    return Measured(torch.stack(worst).amax(0), total, max(notes), mixed)


def _find_worst(queries: Tensor, keys: Tensor) -> tuple[Tensor, str]:
    """The largest singular value of M(x) - M(y) for each layer and head, and a note if it is a lower bound."""
    count, note = queries.shape[2], ""
    most = max(2, math.isqrt(WORK // (queries.numel() // count * queries.shape[-1])))
    if count > most:
        chosen = _choose_positions(count, most)
        queries, keys = queries[:, :, chosen], keys[:, :, chosen]
        note = f"`worst` is a lower bound: it is that of {most:,} positions drawn from {count:,}"
    lead = queries.shape[:2]
    keys = keys.expand(*lead, *keys.shape[2:])
    found = [find_farthest(*pair) for pair in zip(queries.flatten(0, 1), keys.flatten(0, 1), strict=True)]
    if not note and any(one.bound > one.found for one in found):
        note = "`worst` is a lower bound: singular values were computed for the pairs with the largest Frobenius norms only"
    return torch.tensor([one.found for one in found], dtype=queries.dtype, device="cpu").unflatten(0, lead), note


def _measure_products(encoding: Encoding, p: Tensor, move: Tensor, blocks: Sequence[Tensor]) -> Measured:
    """The same where R changes norms: pair by pair."""
    chosen, note = torch.arange(len(p), device="cpu"), ""
    if len(p) ** 2 > PAIRS:
        chosen = _choose_positions(len(p), max(1, PAIRS // len(p)))
        note = f"{encoding.name} changes norms: scores are with {len(chosen):,} keys drawn from {len(p):,} positions"
    keys = [_sides(encoding, some)[1] for some in (p[chosen], p[chosen] + move)]
    worst, square, mixed = [], [], False
    for some in _pieces(encoding, p, len(chosen)):
        still, moved = (_sides(encoding, each)[0] for each in (some, some + move))
        mixed = mixed or any(_mixes_blocks(side, blocks) for side in (still, moved, *keys))
        highest, total = p.new_zeros(()), p.new_zeros(())
        for channels in blocks:
            a, b, c, d = (_cut(side, channels) for side in (still, keys[0], moved, keys[1]))
            delta = c[:, :, :, None].mT @ d[:, :, None] - a[:, :, :, None].mT @ b[:, :, None]
            highest = highest.maximum(torch.linalg.matrix_norm(delta, ord=2).amax((2, 3, 4)))
            total = total + delta.square().sum((-3, -2, -1)).mean(-1)
        worst.append(highest)
        square.append(total)
    return Measured(torch.stack(worst).amax(0), torch.cat(square, dim=-1), note, mixed)


def _mixes_blocks(matrices: Tensor, blocks: Sequence[Tensor]) -> bool:
    """Whether matrices (… D D) have entries outside of these blocks."""
    outside = torch.ones(matrices.shape[-2:], dtype=torch.bool, device="cpu")
    for channels in blocks:
        outside[channels[:, :, None], channels[:, None, :]] = False
    return bool(matrices[..., outside].any())


def _choose_positions(count: int, most: int) -> Tensor:
    """So many of the positions, drawn the same each time."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0), device="cpu")[:most].sort().values


def _pieces(encoding: Encoding, positions: Tensor, keys: int = 1) -> Iterator[Tensor]:
    """So many positions at a time that their matrices, with each of so many keys, stay small."""
    step = max(1, ELEMENTS // ((encoding.layers or 1) * encoding.heads * encoding.head_dim**2 * keys))
    return iter(positions.split(step))


def _cut(side: Tensor, channels: Tensor) -> Tensor:
    """The blocks (… G b b) of channels (G b)."""
    return side[..., channels[:, :, None], channels[:, None, :]]


def _find_blocks(encoding: Encoding, positions: Tensor) -> list[Tensor]:
    """Channels (G b) that R mixes with each other at these positions, for each size b of such a set."""
    sides = _sides(encoding, positions)
    touch = sum((side != 0).flatten(0, -3).any(0).double() for side in sides) + torch.eye(encoding.head_dim, device="cpu")
    for _ in range(encoding.head_dim.bit_length()):
        touch = (touch @ touch.mT > 0).double()
    sets = {tuple(row.nonzero().flatten().tolist()) for row in touch}
    sizes = sorted({len(each) for each in sets})
    return [torch.tensor(sorted(each for each in sets if len(each) == size), device="cpu") for size in sizes]

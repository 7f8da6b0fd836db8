"""Whether generators commute, and the planes that commuting ones turn.

Let R(p) = exp(p_1 A_1 + p_2 A_2 + …) with A_i real and skew-symmetric. Scores depend on differences of positions alone
exactly if all A_i commute: R(x)ᵀ R(y) = R(y - x). Then iA_1, iA_2, … are commuting Hermitian matrices, hence have one basis
of eigenvectors: each v has a wave vector w, iA_a v = w_a v, and its conjugate has -w. With v = (x + iy) / √2,

    A_a x = w_a y,    A_a y = -w_a x :

x and y span a plane that turns by w · p. So every commuting encoding is RoPE-Mixed, with those waves, in the basis of those
planes; where all waves vanish nothing turns.
"""

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.arguments import instance_of
from ropewalk.encoding import Encoding

MIXTURES = 8
GOOD = 1e-12  # a residual of rounding
SLOW = 1e-12  # a wave below this share of the largest is none


class Planes(NamedTuple):
    """An orthonormal basis ([L] h D D), as columns, pair after pair, and the wave vectors ([L] h P A) of its planes.

    `residual` is the largest singular value of what the basis leaves of a generator outside these planes, over its own.
    """

    basis: Tensor
    waves: Tensor
    residual: float


def turning(encoding: Encoding) -> Encoding:
    """The encoding itself, or that member of a chain, which turns q and k by generators."""
    instance_of("encoding", encoding, Encoding)
    found = [part for part in encoding.modules() if isinstance(part, Encoding) and hasattr(part, "generators")]
    if not found:
        raise TypeError(f"{encoding.name} has no generators: it is not made of rotations exp(p_1 A_1 + p_2 A_2 + …)")
    return found[0]


def turns(encoding: Encoding) -> bool:
    """Whether it, or a member of a chain, turns q and k by generators."""
    return any(isinstance(part, Encoding) and hasattr(part, "generators") for part in encoding.modules())


def exact(encoding: Encoding) -> Encoding:
    """A copy of what turns, on the CPU, in float64. Nobody else's random numbers are drawn."""
    part = turning(encoding)
    if any(tensor.is_meta for tensor in (*part.parameters(), *part.buffers())):
        raise ValueError(f"{encoding.name} is on the meta device and has no numbers to compute with")
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        return copy.deepcopy(part).cpu().double()


def generators(encoding: Encoding) -> Tensor:
    """Its generators ([L] h A D D), in float64 on the CPU, of the numbers that it has learned so far."""
    with torch.device("cpu"):
        found: Tensor = exact(encoding).generators().detach()  # type: ignore[operator]
    if not found.isfinite().all():
        raise ValueError(f"{encoding.name} has generators that are not finite, {(~found.isfinite()).sum()} entries")
    return found


def commutators(encoding: Encoding) -> Tensor:
    """Norms of A_i A_j - A_j A_i over the product of those of A_i and A_j, ([L] h A A): 0 where two commute.

    Norms are Frobenius's. Skew-symmetric matrices do not exceed 1 (0.71 in blocks of 3); those that vanish have 0.
    """
    return commutators_of(generators(encoding))


def commutators_of(a: Tensor) -> Tensor:
    """The same of generators ([L] h A D D)."""
    first, second = a.unsqueeze(-3), a.unsqueeze(-4)
    norms = a.flatten(-2).norm(dim=-1)
    product = norms.unsqueeze(-1) * norms.unsqueeze(-2)
    found = (first @ second - second @ first).flatten(-2).norm(dim=-1)
    return torch.where(product > 0, found / product.clamp(min=torch.finfo(a.dtype).tiny), 0.0)


def planes(a: Tensor) -> Planes:
    """The planes that commuting generators ([L] h A D D) turn.

    Planes are in the order of the lengths of their waves, longest first; the first component of a wave that is not zero is
    positive, since a wave and its opposite turn the same plane.
    """
    lead, (axes, depth) = a.shape[:-3], a.shape[-3:-1]
    every = [_planes_of(one) for one in a.detach().cpu().double().reshape(-1, axes, depth, depth)]
    basis = torch.stack([found.basis for found in every]).reshape(*lead, depth, depth)
    waves = torch.stack([found.waves for found in every]).reshape(*lead, depth // 2, axes)
    return Planes(basis, waves, max(found.residual for found in every))


def _planes_of(a: Tensor) -> Planes:
    """Of one head. A random mixture of commuting matrices has no eigenvectors but theirs, unless it makes two waves alike:
    then another one is tried."""
    draw = torch.randn(MIXTURES, len(a), generator=torch.Generator().manual_seed(0), dtype=a.dtype, device="cpu")
    size = a.flatten(1).norm(dim=1)
    even = torch.where(size > 0, 1 / size.clamp(min=torch.finfo(a.dtype).tiny), 0.0)
    best: Planes | None = None
    for weight in draw:
        found = _in_basis_of(torch.einsum("a,aij->ij", even * weight, a), a)
        best = found if best is None or found.residual < best.residual else best
        if best.residual < GOOD:
            break
    assert best is not None
    return best


def _in_basis_of(mixture: Tensor, a: Tensor) -> Planes:
    values, vectors = torch.linalg.eigh(1j * mixture)
    v = vectors[:, values > SLOW]
    # A slow v is hardly told from its conjugate, so that x and y are not quite orthonormal: the nearest that are take over.
    left, _, right = torch.linalg.svd(torch.cat([v.real, v.imag], dim=1), full_matrices=False)
    x, y = (left @ right).tensor_split(2, dim=1)
    waves = (torch.einsum("ip,aij,jp->pa", y, a, x) - torch.einsum("ip,aij,jp->pa", x, a, y)) / 2
    sign = _sign(waves)
    waves, y = waves * sign, y * sign.mT
    order = waves.norm(dim=1).argsort(descending=True)
    pairs = torch.stack([x[:, order], y[:, order]], dim=-1).flatten(1)
    basis = torch.cat([pairs, _complement(pairs)], dim=1)
    waves = torch.cat([waves[order], waves.new_zeros(a.shape[1] // 2 - len(order), len(a))])
    outside = basis.mT @ a @ basis - _turning(waves, a.shape[1])
    fastest = torch.linalg.matrix_norm(a, ord=2)
    residual = torch.linalg.matrix_norm(outside, ord=2) / fastest.clamp(min=torch.finfo(a.dtype).tiny)
    return Planes(basis, waves, residual.max().item())


def _sign(waves: Tensor) -> Tensor:
    """Of the first component of each wave that is not zero, (P 1)."""
    seen = waves.abs() > 1e-9 * waves.abs().amax(-1, keepdim=True)
    return torch.where(waves.gather(1, seen.long().argmax(-1, keepdim=True)) < 0, -1.0, 1.0).to(waves)


def _turning(waves: Tensor, depth: int) -> Tensor:
    """Generators (A D D) that turn pair after pair by waves (P A)."""
    total = waves.new_zeros(waves.shape[1], depth, depth)
    first = 2 * torch.arange(len(waves), device="cpu")
    total[:, first + 1, first], total[:, first, first + 1] = waves.mT, -waves.mT
    return total


def _complement(columns: Tensor) -> Tensor:
    """An orthonormal basis of what is orthogonal to orthonormal columns."""
    depth, count = columns.shape
    projection = torch.eye(depth, dtype=columns.dtype, device="cpu") - columns @ columns.mT
    return torch.linalg.eigh(projection).eigenvectors[:, count:]

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

from ropewalk.encoding import Encoding

MIXTURES = 8


class Planes(NamedTuple):
    """An orthonormal basis ([L] h D D), as columns, pair after pair, and the wave vectors ([L] h P A) of its planes.

    `residual` is the largest entry of what the basis leaves of the generators outside these planes, over their size.
    """

    basis: Tensor
    waves: Tensor
    residual: float


def turning(encoding: Encoding) -> Encoding:
    """The encoding itself, or that member of a chain, which turns q and k by generators."""
    found = [part for part in encoding.modules() if isinstance(part, Encoding) and hasattr(part, "generators")]
    if not found:
        raise TypeError(f"{encoding.name} has no generators: it is not made of rotations exp(p_1 A_1 + p_2 A_2 + …)")
    return found[0]


def generators(encoding: Encoding) -> Tensor:
    """Its generators ([L] h A D D), in float64 on the CPU, of the numbers that it has learned so far."""
    exact = copy.deepcopy(turning(encoding)).cpu().double()
    found: Tensor = exact.generators().detach()  # type: ignore[operator]
    return found


def commutators(encoding: Encoding) -> Tensor:
    """Norms of A_i A_j - A_j A_i over the product of those of A_i and A_j, ([L] h A A): 0 where two commute.

    Norms are Frobenius's. Skew-symmetric matrices do not exceed 1 (0.71 in blocks of 3); those that vanish have 0.
    """
    a = generators(encoding)
    first, second = a.unsqueeze(-3), a.unsqueeze(-4)
    norms = a.flatten(-2).norm(dim=-1)
    product = norms.unsqueeze(-1) * norms.unsqueeze(-2)
    found = (first @ second - second @ first).flatten(-2).norm(dim=-1)
    return torch.where(product > 0, found / product.clamp(min=torch.finfo(a.dtype).tiny), 0.0)


def planes(generators: Tensor, *, tolerance: float = 1e-9) -> Planes:
    """The planes that commuting generators ([L] h A D D) turn. A wave below `tolerance` of the largest counts as none.

    Planes are in the order of the lengths of their waves, longest first; the first component of a wave that is not zero is
    positive, since a wave and its opposite turn the same plane.
    """
    lead, (axes, depth) = generators.shape[:-3], generators.shape[-3:-1]
    every = [_planes_of(one, tolerance) for one in generators.reshape(-1, axes, depth, depth).double()]
    basis = torch.stack([found.basis for found in every]).reshape(*lead, depth, depth)
    waves = torch.stack([found.waves for found in every]).reshape(*lead, depth // 2, axes)
    return Planes(basis, waves, max(found.residual for found in every))


def _planes_of(a: Tensor, tolerance: float) -> Planes:
    """Of one head. A random mixture of commuting matrices has no eigenvectors but theirs; one whose waves lie closest
    together tells them apart worst, so the best of several is taken."""
    draw = torch.randn(MIXTURES, len(a), generator=torch.Generator().manual_seed(0), dtype=a.dtype)
    size = a.flatten(1).norm(dim=1)
    even = torch.where(size > 0, 1 / size.clamp(min=torch.finfo(a.dtype).tiny), 0.0)
    tried = (_in_basis_of(torch.einsum("a,aij->ij", even * weight, a), a, tolerance) for weight in draw)
    return min(tried, key=lambda found: found.residual)


def _in_basis_of(mixture: Tensor, a: Tensor, tolerance: float) -> Planes:
    values, vectors = torch.linalg.eigh(1j * mixture)
    v = vectors[:, values > tolerance]
    x, y = 2**0.5 * v.real, 2**0.5 * v.imag
    waves = torch.einsum("ip,aij,jp->pa", y, a, x)
    size = a.flatten(1).norm(dim=1).max()
    first = (waves.abs() > tolerance * size).long().argmax(-1, keepdim=True)
    sign = torch.where(waves.gather(1, first) < 0, -1.0, 1.0)
    waves, y = waves * sign, y * sign.mT
    order = waves.norm(dim=1).argsort(descending=True)
    pairs = torch.stack([x[:, order], y[:, order]], dim=-1).flatten(1)
    basis = torch.cat([pairs, _complement(pairs)], dim=1)
    waves = torch.cat([waves[order], waves.new_zeros(a.shape[1] // 2 - len(order), len(a))])
    left = basis.mT @ a @ basis - _turning(waves, a.shape[1])
    return Planes(basis, waves, (left.abs().max() / size).item() if size > 0 else 0.0)


def _turning(waves: Tensor, depth: int) -> Tensor:
    """Generators (A D D) that turn pair after pair by waves (P A)."""
    total = waves.new_zeros(waves.shape[1], depth, depth)
    first = 2 * torch.arange(len(waves))
    total[:, first + 1, first], total[:, first, first + 1] = waves.mT, -waves.mT
    return total


def _complement(columns: Tensor) -> Tensor:
    """An orthonormal basis of what is orthogonal to orthonormal columns."""
    depth, count = columns.shape
    projection = torch.eye(depth, dtype=columns.dtype) - columns @ columns.mT
    return torch.linalg.eigh(projection).eigenvectors[:, count:]

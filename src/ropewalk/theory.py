"""What an encoding's generators tell: whether they commute, the waves they turn by, and the basis in which they do.

Let R(p) = exp(p_1 A_1 + p_2 A_2 + …) with A_i real and skew-symmetric. Scores depend on differences of positions alone
exactly if all A_i commute: R(x)ᵀ R(y) = R(y - x). Then iA_1, iA_2, … are commuting Hermitian matrices, hence have one basis
of eigenvectors: each v has a wave vector w, iA_a v = w_a v, and its conjugate has -w. With v = (x + iy) / √2,

    A_a x = w_a y,    A_a y = -w_a x :

x and y span a plane that turns by w · p. So every commuting encoding is RoPE-Mixed, with those waves, in the basis of those
planes; where all waves vanish nothing turns.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.encodings.mixed import Mixed


class Planes(NamedTuple):
    """An orthonormal basis ([L] h D D), as columns, pair after pair, and the wave vectors ([L] h P A) of its planes."""

    basis: Tensor
    waves: Tensor


def commutators(encoding: Encoding) -> Tensor:
    """Norms of A_i A_j - A_j A_i over twice the product of those of A_i and A_j, ([L] h A A): 0 where two commute.

    Norms are Frobenius's, so that 1 is never exceeded; of generators that vanish, 0.
    """
    a = _generators(encoding).double()
    first, second = a.unsqueeze(-3), a.unsqueeze(-4)
    norms = a.flatten(-2).norm(dim=-1)
    product = 2 * norms.unsqueeze(-1) * norms.unsqueeze(-2)
    found = (first @ second - second @ first).flatten(-2).norm(dim=-1)
    return torch.where(product > 0, found / product.clamp(min=torch.finfo(a.dtype).tiny), 0.0)


def planes(generators: Tensor, *, tolerance: float = 1e-9) -> Planes:
    """The planes that commuting generators ([L] h A D D) turn. A wave below `tolerance` of the largest counts as none.

    Planes are in the order of the lengths of their waves, longest first.
    """
    lead, (axes, depth) = generators.shape[:-3], generators.shape[-3:-1]
    every = [_planes_of(one, tolerance) for one in generators.reshape(-1, axes, depth, depth).double()]
    basis = torch.stack([found.basis for found in every]).reshape(*lead, depth, depth)
    waves = torch.stack([found.waves for found in every]).reshape(*lead, depth // 2, axes)
    return Planes(basis.to(generators.dtype), waves.to(generators.dtype))


def fold(encoding: Encoding, *, tolerance: float = 1e-6) -> tuple[Mixed, Tensor]:
    """RoPE-Mixed and a basis U ([L] h D D) of a commuting encoding: its scores of q and k are those of Uᵀ q and Uᵀ k there.

    Generators whose commutators, as `commutators` measures them, exceed the tolerance are refused.
    """
    worst = commutators(encoding).max().item() if encoding.axes > 1 else 0.0
    if worst > tolerance:
        raise ValueError(f"{encoding.name} cannot be folded: its generators do not commute, by {worst:.3g} of their size")
    generators = _generators(encoding)
    found = planes(generators.double())
    names = ("head_dim", "heads", "kv_heads", "axes", "layers", "size", "coordinates")
    shared = generators.shape[-4] == 1 < encoding.own_heads
    mixed = Mixed(**{name: getattr(encoding, name) for name in names}, shared=shared)
    mixed = mixed.to(generators.device, generators.dtype)
    with torch.no_grad():
        mixed.wave.copy_(found.waves)
    return mixed, found.basis.to(mixed.wave)


def _planes_of(a: Tensor, tolerance: float) -> Planes:
    """Of one head. A random sum of commuting matrices has no eigenvectors but theirs, but for a chance of zero."""
    axes, depth, _ = a.shape
    weight = torch.randn(axes, generator=torch.Generator().manual_seed(0), dtype=a.dtype)
    values, vectors = torch.linalg.eigh(1j * torch.einsum("a,aij->ij", weight, a))
    size = a.flatten(1).norm(dim=1).max()
    turning = values > tolerance * size
    v = vectors[:, turning]
    x, y = 2**0.5 * v.real, 2**0.5 * v.imag
    waves = torch.einsum("ip,aij,jp->pa", y, a, x)
    order = waves.norm(dim=1).argsort(descending=True)
    pairs = torch.stack([x[:, order], y[:, order]], dim=-1).flatten(1)
    still = _complement(pairs)
    missing = depth // 2 - len(order)
    return Planes(torch.cat([pairs, still], dim=1), torch.cat([waves[order], waves.new_zeros(missing, axes)]))


def _complement(columns: Tensor) -> Tensor:
    """An orthonormal basis of what is orthogonal to orthonormal columns."""
    depth, count = columns.shape
    projection = torch.eye(depth, dtype=columns.dtype) - columns @ columns.mT
    return torch.linalg.eigh(projection).eigenvectors[:, count:]


def _generators(encoding: Encoding) -> Tensor:
    if not hasattr(encoding, "generators"):
        raise TypeError(f"{encoding.name} has no generators: it is not made of rotations exp(p_1 A_1 + p_2 A_2 + …)")
    generators: Tensor = encoding.generators().detach()  # type: ignore[operator]
    return generators

"""Exponentials of small skew-symmetric matrices in registers: scaling and squaring, and a derivative that needs no room.

A program has a tile of 16, 32 or 64 channels, filled along its diagonal with as many matrices as fit. With X = A / 2^s
short enough for its series, exp(A) is exp(X) squared s times; s is the tile's own, so nothing waits for the host.

Derivative: with R = exp(A) and G = dL/dR, dL/dA is the integral of exp(-uA) K exp(uA) over u from 0 to 1, K = G Rᵀ, because
A is skew-symmetric. The integral up to t is a short series in the commutator with A; from t to 2t it is doubled by Φ(2t) =
Φ(t) + R(t)ᵀ Φ(t) R(t), while R(t) is squared: no intermediate is kept, and no eigenvalue is divided by.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def times(a, b):
    """A product in float32, on tensor cores as three products of halves of the mantissas."""
    return tl.dot(a, b, input_precision="tf32x3")


@triton.jit
def load_tile(matrix, count, size: tl.constexpr, packed: tl.constexpr, width: tl.constexpr):
    """A tile of matrices, zero between them, and where its entries lie."""
    i, j = tl.arange(0, width)[:, None], tl.arange(0, width)[None, :]
    index = tl.program_id(0).to(tl.int64) * packed + i // size
    inside = (i // size == j // size) & (i < size * packed) & (index < count)
    at = index * size * size + (i % size) * size + j % size
    return tl.load(matrix + at, mask=inside, other=0.0).to(tl.float32), at, inside


@triton.jit
def halvings(a, limit: tl.constexpr, size: tl.constexpr, width: tl.constexpr):
    """For each row, how often to halve its matrix until the spectral norm is below the limit, by the Frobenius norm."""
    i, j = tl.arange(0, width)[:, None], tl.arange(0, width)[None, :]
    squares = tl.sum(a * a, 0)[None, :]
    norm = tl.sqrt(tl.sum(tl.where(i // size == j // size, squares, 0.0), 1) * 0.5)
    return tl.minimum(tl.maximum(tl.ceil(tl.log2(tl.maximum(norm, 1e-30) / limit)), 0.0), 60.0).to(tl.int32)[:, None]


@triton.jit
def short(x, width: tl.constexpr):
    """exp(X) to degree 9, for X of norm below 0.5."""
    one = tl.where(tl.arange(0, width)[:, None] == tl.arange(0, width)[None, :], 1.0, 0.0)
    x2 = times(x, x)
    x3 = times(x2, x)
    outer = one * (1.0 / 720) + x * (1.0 / 5040) + x2 * (1.0 / 40320) + x3 * (1.0 / 362880)
    middle = one * (1.0 / 6) + x * (1.0 / 24) + x2 * (1.0 / 120) + times(x3, outer)
    return one + x + x2 * 0.5 + times(x3, middle)


@triton.jit
def forward_kernel(skew, out, count, size: tl.constexpr, packed: tl.constexpr, width: tl.constexpr):
    a, at, inside = load_tile(skew, count, size, packed, width)
    s = halvings(a, 0.5, size, width)
    r = short(a * tl.exp2(-s.to(tl.float32)), width)
    for step in range(tl.max(tl.max(s, 1), 0)):
        r = tl.where(step < s, times(r, r), r)
    tl.store(out + at, r.to(out.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(grad, skew, rotation, out, count, size: tl.constexpr, packed: tl.constexpr, width: tl.constexpr):
    a, at, inside = load_tile(skew, count, size, packed, width)
    g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(rotation + at, mask=inside, other=0.0).to(tl.float32)
    s = halvings(a, 0.125, size, width)
    t = tl.exp2(-s.to(tl.float32))
    x = a * t
    term = times(g, tl.trans(r)) * t
    phi = term
    for j in tl.static_range(2, 8):
        term = (times(term, x) - times(x, term)) * (1.0 / j)
        phi += term
    r = short(x, width)
    for step in range(tl.max(tl.max(s, 1), 0)):
        phi += tl.where(step < s, times(tl.trans(r), times(phi, r)), 0.0)
        r = tl.where(step < s, times(r, r), r)
    tl.store(out + at, phi.to(out.dtype.element_ty), mask=inside)


def expm_fused(skew: Tensor) -> Tensor:
    """As `ropewalk.ops.expm`."""
    return _run(forward_kernel, skew.contiguous())


def expm_back(grad: Tensor, skew: Tensor, rotation: Tensor) -> Tensor:
    """The gradient of skew."""
    return _run(backward_kernel, grad.contiguous(), skew.contiguous(), rotation.contiguous())


def _run(kernel, *given):
    out = torch.empty_like(given[0], memory_format=torch.contiguous_format)
    size = out.shape[-1]
    width = next(w for w in (16, 32, 64) if size <= w)
    packed, count = width // size, out.numel() // (size * size)
    if count:
        with torch.cuda.device_of(out):
            kernel[(triton.cdiv(count, packed),)](*given, out, count, size, packed, width, num_warps=width // 16)
    return out

"""Rotations of triplets from their angles, and gradients of the angles, as one Triton kernel each.

A program has a row of triplets. Let G = dL/dM and W = G Mᵀ. Moving an angle moves M by a quarter turn on its left, hence
angles get entries of N = W - Wᵀ: with the letters of the reference,

    dL/dt2 = N[b, a],    dL/dt1 = c2 N[c, b] - s2 N[c, a],    dL/dt0 = c1 c2 N[c, a] + c1 s2 N[c, b] - s1 N[b, a].
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ropewalk.ops.launch import within_a_turn

ROW = 128
"""Triplets of a program."""


@triton.jit
def circle(angle, at, mask, axis: tl.constexpr, axes: tl.constexpr):
    """Cosine and sine of an axis's angle: 1 and 0 if there is no such axis."""
    t = within_a_turn(tl.load(angle + at * axes + axis, mask=mask & (axis < axes), other=0.0))
    return tl.cos(t), tl.sin(t)


@triton.jit
def rotation(angle, at, mask, axes: tl.constexpr):
    """The rows of M, and what gradients need of the circles."""
    c0, s0 = circle(angle, at, mask, 0, axes)
    c1, s1 = circle(angle, at, mask, 1, axes)
    c2, s2 = circle(angle, at, mask, 2, axes)
    a = (c0 * c2 + s0 * s1 * s2, -c1 * s2, c0 * s1 * s2 - s0 * c2)
    b = (c0 * s2 - s0 * s1 * c2, c1 * c2, -s0 * s2 - c0 * s1 * c2)
    c = (s0 * c1, s1, c0 * c1)
    return a, b, c, c1, s1, c2, s2


@triton.jit
def forward_kernel(angle, out, count, axes: tl.constexpr, row: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * row + tl.arange(0, row)
    mask = at < count
    a, b, c, _, _, _, _ = rotation(angle, at, mask, axes)
    for j in tl.static_range(3):
        tl.store(out + at * 9 + j, a[j], mask=mask)
        tl.store(out + at * 9 + 3 + j, b[j], mask=mask)
        tl.store(out + at * 9 + 6 + j, c[j], mask=mask)


@triton.jit
def across(grad, at, mask, i: tl.constexpr, j: tl.constexpr, mine, other):
    """N[i, j], from the rows i (mine) and j (other) of M."""
    total = tl.zeros(at.shape, tl.float32)
    for k in tl.static_range(3):
        total += tl.load(grad + at * 9 + 3 * i + k, mask=mask, other=0.0) * other[k]
        total -= tl.load(grad + at * 9 + 3 * j + k, mask=mask, other=0.0) * mine[k]
    return total


@triton.jit
def backward_kernel(grad, angle, out, count, axes: tl.constexpr, row: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * row + tl.arange(0, row)
    mask = at < count
    a, b, c, c1, s1, c2, s2 = rotation(angle, at, mask, axes)
    ba, ca, cb = across(grad, at, mask, 1, 0, b, a), across(grad, at, mask, 2, 0, c, a), across(grad, at, mask, 2, 1, c, b)
    tl.store(out + at * axes, c1 * c2 * ca + c1 * s2 * cb - s1 * ba, mask=mask)
    if axes > 1:
        tl.store(out + at * axes + 1, c2 * cb - s2 * ca, mask=mask)
    if axes > 2:
        tl.store(out + at * axes + 2, ba, mask=mask)


def sphere_fused(angle: Tensor) -> Tensor:
    """As `ropewalk.ops.sphere`, of float32."""
    out = angle.new_empty(*angle.shape[:-1], 3, 3)
    return _run(forward_kernel, angle.contiguous(), out, axes=angle.shape[-1])


def sphere_back(grad: Tensor, angle: Tensor) -> Tensor:
    """The gradient of the angles."""
    return _run(backward_kernel, grad.contiguous(), angle.contiguous(), angle.new_empty(angle.shape), axes=angle.shape[-1])


def _run(kernel, *tensors, axes):
    count = tensors[-1].numel() // (9 if kernel is forward_kernel else axes)
    if count:
        with torch.cuda.device_of(tensors[0]):
            kernel[(triton.cdiv(count, ROW),)](*tensors, count, axes, ROW)
    return tensors[-1]

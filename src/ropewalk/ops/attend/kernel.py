"""Attention among few tokens as one Triton kernel each way.

A program owns one head of one sample, whole: q, k, v and all scores fit into the registers of a multiprocessor, so that
every tensor is read once and written once. Inputs alone are saved for the backward pass, which
computes P = softmax(scale · q kᵀ) again:

    dv = Pᵀ dy,    dP = dy vᵀ,    dS = P (dP - Σ_j P dP),    dq = scale · dS k,    dk = scale · dSᵀ q.

Rows and columns of P that only fill a tile are zero: an infinite key would leave NaN in the scores of queries that are not
there, and from there in dk and dv. Sums are in float32; inputs of 16 bits meet P and dS rounded to 16 bits. P is
normalized before it is rounded, where flash attention rounds exponentials and normalizes after the product with v.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ropewalk.ops.fused import room
from ropewalk.ops.launch import dense, power, steps


@triton.jit
def place(x, heads, strides, tokens, depth: tl.constexpr, rows: tl.constexpr, width: tl.constexpr):
    """Where the channels of this program's head lie, and which of them there are."""
    pid = tl.program_id(0).to(tl.int64)
    token, channel = tl.arange(0, rows), tl.arange(0, width)
    at = x + (pid // heads) * strides[0] + (pid % heads) * strides[1]
    inside = (token < tokens)[:, None] & (channel < depth)[None, :]
    return at + token[:, None].to(tl.int64) * strides[2] + channel[None, :], inside


@triton.jit
def read(x, heads, strides, tokens, depth: tl.constexpr, rows: tl.constexpr, width: tl.constexpr):
    at, inside = place(x, heads, strides, tokens, depth, rows, width)
    return tl.load(at, mask=inside, other=0.0)


@triton.jit
def write(x, given, heads, strides, tokens, depth: tl.constexpr, rows: tl.constexpr, width: tl.constexpr):
    at, inside = place(x, heads, strides, tokens, depth, rows, width)
    tl.store(at, given.to(x.dtype.element_ty), mask=inside)


@triton.jit
def weights(q, k, scale, n, m, rows: tl.constexpr, columns: tl.constexpr):
    """Softmax of the scores of each query, in float32."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * 1.4426950408889634)
    scores = tl.where((tl.arange(0, columns) < m)[None, :], scores, float("-inf"))
    powers = tl.exp2(scores - tl.max(scores, 1)[:, None])
    return tl.where((tl.arange(0, rows) < n)[:, None], powers / tl.sum(powers, 1)[:, None], 0.0)


@triton.jit
def forward_kernel(
    q, k, v, y, q_steps, k_steps, v_steps, y_steps, heads, n, m, scale, depth: tl.constexpr, rows: tl.constexpr,
    columns: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    query = read(q, heads, q_steps, n, depth, rows, width)
    key = read(k, heads, k_steps, m, depth, columns, width)
    value = read(v, heads, v_steps, m, depth, columns, width)
    seen = weights(query, key, scale, n, m, rows, columns).to(value.dtype)
    write(y, tl.dot(seen, value, input_precision="ieee"), heads, y_steps, n, depth, rows, width)


@triton.jit
def backward_kernel(
    dy, q, k, v, dq, dk, dv, dy_steps, q_steps, k_steps, v_steps, dq_steps, dk_steps, dv_steps, heads, n, m, scale,
    depth: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    query = read(q, heads, q_steps, n, depth, rows, width)
    key = read(k, heads, k_steps, m, depth, columns, width)
    seen = weights(query, key, scale, n, m, rows, columns)
    grad = read(dy, heads, dy_steps, n, depth, rows, width)
    value = read(v, heads, v_steps, m, depth, columns, width)
    given = tl.dot(tl.trans(seen.to(grad.dtype)), grad, input_precision="ieee")
    write(dv, given, heads, dv_steps, m, depth, columns, width)
    moved = tl.dot(grad, tl.trans(value), input_precision="ieee")
    moved = (seen * (moved - tl.sum(seen * moved, 1)[:, None])).to(key.dtype)
    write(dq, tl.dot(moved, key, input_precision="ieee") * scale, heads, dq_steps, n, depth, rows, width)
    write(dk, tl.dot(tl.trans(moved), query, input_precision="ieee") * scale, heads, dk_steps, m, depth, columns, width)


def attend_fused(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """As `ropewalk.ops.attend`."""
    y = room(q)
    _run(forward_kernel, q, k, [q, k, v, y], scale)
    return y


def attend_back(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float) -> list[Tensor]:
    """The gradients of q, k and v."""
    found = [room(q), room(k), room(v)]
    _run(backward_kernel, q, k, [dy, q, k, v, *found], scale)
    return found


def _run(kernel, q, k, tensors, scale):
    tensors = [dense(x) for x in tensors]
    (batch, heads, n, depth), m = q.shape, k.shape[2]
    rows, columns, width = (max(16, power(size)) for size in (n, m, depth))
    given = (*tensors, *map(steps, tensors), heads, n, m, scale, depth, rows, columns, width)
    with torch.cuda.device_of(q):
        kernel[(batch * heads,)](*given, num_warps=4 if rows * columns <= 4096 else 8)

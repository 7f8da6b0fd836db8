"""Turns of triplets as one Triton kernel each way, for q and k together, on tensor cores.

Three channels do not fit the powers of two that loads and stores come in. So a program builds, from the angles of one token
and one head of a table, the matrix M of the whole head (3 x 3 blocks on the diagonal, ones where nothing is turned) and
multiplies by it its share of the samples and of the heads that the table's head serves, as the kernel for blocks does.

Backward needs outputs, not inputs. With y = M x, dL/dx = Mᵀ dL/dy, and angles get sums of W - Wᵀ with W = Σ dL/dy yᵀ over
the batch: for turns by t0 in (a, c), then t1 in (b, c), then t2 in (a, b), and N = W - Wᵀ,

    dL/dt2 = N[b, a],    dL/dt1 = c2 N[c, b] - s2 N[c, a],    dL/dt0 = c1 c2 N[c, a] + c1 s2 N[c, b] - s1 N[b, a].
"""

import triton
import triton.language as tl
from torch import Tensor

from ropewalk.ops.fused import room
from ropewalk.ops.launch import launch, owner, power, summed
from ropewalk.ops.turn.kernel import ROWS, item_rows, product


@triton.jit
def circle(angle, place, axis: tl.constexpr, axes: tl.constexpr, triplets: tl.constexpr, width: tl.constexpr):
    """For every channel, cosine and sine of its triplet's angle: 1 and 0 if it is not turned, or there is no such axis."""
    channel = tl.arange(0, width)
    inside = (channel < 3 * triplets) & (channel * 0 + place >= 0) & (axis < axes)
    t = tl.load(angle + channel // 3 * axes + axis, mask=inside, other=0.0).to(tl.float32)
    return tl.cos(t)[:, None], tl.sin(t)[:, None]


@triton.jit
def chosen(member, first, second, third):
    return tl.where(member == 0, first, tl.where(member == 1, second, third))


@triton.jit
def head_matrix(c0, s0, c1, s1, c2, s2, width: tl.constexpr, transposed: tl.constexpr):
    """The matrix of the whole head, or its transpose, from the cosines and sines of each row's triplet."""
    i, j = tl.arange(0, width)[:, None], tl.arange(0, width)[None, :]
    row, column = (j % 3, i % 3) if transposed else (i % 3, j % 3)
    a = chosen(column, c0, 0.0, -s0)
    b = chosen(column, -s0 * s1, c1, -c0 * s1)
    c = chosen(column, s0 * c1, s1, c0 * c1)
    whole = chosen(row, c2 * a - s2 * b, s2 * a + c2 * b, c)
    return tl.where(i // 3 == j // 3, whole, 0.0)


@triton.jit
def antisymmetric(ba, ca, cb, width: tl.constexpr):
    """A matrix with these entries in each block, and their opposites across the diagonal."""
    i, j = tl.arange(0, width)[:, None], tl.arange(0, width)[None, :]
    row, column = i % 3, j % 3
    a = chosen(column, 0.0, -ba, -ca)
    b = chosen(column, ba, 0.0, -cb)
    c = chosen(column, ca, cb, 0.0)
    return tl.where(i // 3 == j // 3, chosen(row, a, b, c), 0.0)


@triton.jit
def turn_side(
    pid, side, depth: tl.constexpr, triplets: tl.constexpr, axes: tl.constexpr, width: tl.constexpr, rows: tl.constexpr,
    back: tl.constexpr, wanted: tl.constexpr,
):  # fmt: skip
    """Turn x by its angles, or back; on the way back, sum what angles get, if it is wanted, into `sums`, row by row of M."""
    x, out, y, angle, _, sums, sizes, x_steps, out_steps, y_steps, angle_steps, _ = side
    items, group, heads, tokens, prefix, blocks, splits = sizes
    token, head, sample, row, first, last = owner(pid, blocks, heads, splits, items)
    token = token.to(tl.int64)
    place = token - prefix
    angle += sample * angle_steps[0] + head * angle_steps[1] + place * angle_steps[2]
    c0, s0 = circle(angle, place, 0, axes, triplets, width)
    c1, s1 = circle(angle, place, 1, axes, triplets, width)
    c2, s2 = circle(angle, place, 2, axes, triplets, width)
    factor = head_matrix(c0, s0, c1, s1, c2, s2, width, not back)
    total = tl.zeros((width, width), tl.float32)
    for start in range(first, last, rows):
        at, mask = item_rows(start, last, sample, head, token, group, x_steps, depth, width, rows)
        given = tl.load(x + at, mask=mask, other=0.0)
        if wanted:
            at, mask = item_rows(start, last, sample, head, token, group, y_steps, depth, width, rows)
            total = tl.dot(tl.trans(given), tl.load(y + at, mask=mask, other=0.0), total, input_precision="ieee")
        at, mask = item_rows(start, last, sample, head, token, group, out_steps, depth, width, rows)
        tl.store(out + at, product(given, factor).to(out.dtype.element_ty), mask=mask)
    if wanted:
        channel = tl.arange(0, width)
        at = (((row * heads + head) * (tokens - prefix) + place) * triplets + channel // 3) * axes * 3 + channel % 3
        inside = (channel < 3 * triplets) & (channel * 0 + place >= 0)
        tl.store(sums + at, tl.sum(total * antisymmetric(-s1, c1 * c2, c1 * s2, width), 1), mask=inside)
        if axes > 1:
            tl.store(sums + at + 3, tl.sum(total * antisymmetric(0.0 * s2, -s2, c2, width), 1), mask=inside)
        if axes > 2:
            tl.store(sums + at + 6, tl.sum(total * antisymmetric(0.0 * s2 + 1.0, 0.0 * s2, 0.0 * s2, width), 1), mask=inside)


@triton.jit
def turn_kernel(
    q, k, first, depth: tl.constexpr, triplets: tl.constexpr, axes: tl.constexpr, width: tl.constexpr, rows: tl.constexpr,
    back: tl.constexpr, wanted: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if pid < first:
        turn_side(pid, q, depth, triplets, axes, width, rows, back, wanted)
    else:
        turn_side(pid - first, k, depth, triplets, axes, width, rows, back, wanted)


def sphere_fused(xs: list[Tensor], angles: list[Tensor], prefixes: list[int]) -> list[Tensor]:
    """As `ropewalk.ops.sphere`."""
    outs = [room(x) for x in xs]
    _launch(xs, outs, [], angles, prefixes, back=False)
    return outs


def sphere_back(dys: list[Tensor], ys: list[Tensor], angles: list[Tensor], prefixes: list[int]) -> list[Tensor]:
    """Gradients of xs, and, if outputs ys are given, of angles."""
    dxs = [room(dy) for dy in dys]
    sums = _launch(dys, dxs, ys, angles, prefixes, back=True)
    return dxs + [summed(each, angle, -1) for each, angle in zip(sums, angles, strict=False)]


def _launch(xs, outs, ys, angles, prefixes, *, back):
    depth, (triplets, axes) = xs[0].shape[-1], angles[0].shape[-2:]
    constants = (depth, triplets, axes, max(16, power(depth)), ROWS, back, bool(ys))
    return launch(
        turn_kernel, xs, outs, ys, angles, prefixes, trailing=2, rows=1, programs=1024, constants=constants, tail=(3,)
    )  # fmt: skip

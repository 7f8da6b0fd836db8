"""Turns of triplets as one Triton kernel each way, for q and k together; work is laid out as for pairs.

Neighbouring lanes read neighbouring channels: each channel's lane holds the whole triplet and writes its own member. Lanes of a
triplet do the same work, which costs less than reading or writing every third channel would.

Backward needs outputs, not inputs: turns are undone one by one, last axis first. At each, with y what the turn made and dy its
gradient, the angle gets dy · J y, J the quarter turn in the axis's plane; then y and dy are both turned back.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ropewalk.ops.launch import Side, after, copy_rest, dense, owner, partial, power, steps, summed

ELEMENTS = 1024
"""Elements of x that a program turns at a time."""


@triton.jit
def load_triplets(x, rows, mask, triplets: tl.constexpr, width: tl.constexpr):
    """For every channel, the three members of its triplet in float32, from rows of x."""
    channels = tl.arange(0, width)
    at, inside = rows[:, None] + (channels // 3 * 3)[None, :], mask[:, None] & (channels < 3 * triplets)[None, :]
    a = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + at + 1, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(x + at + 2, mask=inside, other=0.0).to(tl.float32)
    return a, b, c


@triton.jit
def store_triplets(x, rows, mask, a, b, c, triplets: tl.constexpr, width: tl.constexpr):
    """Every channel keeps its own member."""
    channels = tl.arange(0, width)
    member = (channels % 3)[None, :]
    own = tl.where(member == 0, a, tl.where(member == 1, b, c))
    inside = mask[:, None] & (channels < 3 * triplets)[None, :]
    tl.store(x + rows[:, None] + channels[None, :], own.to(x.dtype.element_ty), mask=inside)


@triton.jit
def plane(a, b, c, cos, sin, axis: tl.constexpr):
    """Turn the plane of an axis: (a, c), (b, c) or (a, b)."""
    if axis == 0:
        return a * cos - c * sin, b, a * sin + c * cos
    elif axis == 1:
        return a, b * cos - c * sin, b * sin + c * cos
    else:
        return a * cos - b * sin, a * sin + b * cos, c


@triton.jit
def lever(da, db, dc, a, b, c, axis: tl.constexpr):
    """dy · J y: what the angle of an axis gets."""
    if axis == 0:
        return dc * a - da * c
    elif axis == 1:
        return dc * b - db * c
    else:
        return db * a - da * b


@triton.jit
def circle(angle, place, turned, step, axis: tl.constexpr, axes: tl.constexpr, triplets: tl.constexpr, width: tl.constexpr):
    """Cosine and sine of the angles of one axis: 1 and 0 where nothing is turned, or there is no such axis."""
    columns = tl.arange(0, width)
    inside = turned[:, None] & (columns < 3 * triplets)[None, :] & (axis < axes)
    t = tl.load(angle + place[:, None] * step + (columns // 3)[None, :] * axes + axis, mask=inside, other=0.0).to(tl.float32)
    return tl.cos(t), tl.sin(t)


@triton.jit
def turn_side(
    pid, side, depth: tl.constexpr, triplets: tl.constexpr, width: tl.constexpr, rest: tl.constexpr, rows: tl.constexpr,
    axes: tl.constexpr, back: tl.constexpr, wanted: tl.constexpr,
):  # fmt: skip
    """Turn x by its angles, or back; on the way back, sum what angles get, if it is wanted, into a row of `sums`."""
    x, out, y, angle, sums, sizes, x_steps, out_steps, y_steps, angle_steps = side
    items, group, heads, tokens, prefix, blocks, splits = sizes
    block, head, sample, row, first, last = owner(pid, blocks, heads, splits, items)
    token = (block * rows + tl.arange(0, rows)).to(tl.int64)
    mask = token < tokens
    place, turned = token - prefix, mask & (token >= prefix)
    angle += sample * angle_steps[0] + head * angle_steps[1]
    cos0, sin0 = circle(angle, place, turned, angle_steps[2], 0, axes, triplets, width)
    cos1, sin1 = circle(angle, place, turned, angle_steps[2], 1, axes, triplets, width)
    cos2, sin2 = circle(angle, place, turned, angle_steps[2], 2, axes, triplets, width)
    total0 = tl.zeros((rows, width), tl.float32)
    total1 = tl.zeros((rows, width), tl.float32)
    total2 = tl.zeros((rows, width), tl.float32)
    n, g = sample + first // group, first % group
    for _ in range(first, last):
        h = head * group + g
        source = x + n * x_steps[0] + h * x_steps[1]
        target = out + n * out_steps[0] + h * out_steps[1]
        a, b, c = load_triplets(source, token * x_steps[2], mask, triplets, width)
        if back:
            if wanted:
                u, v, w = load_triplets(y + n * y_steps[0] + h * y_steps[1], token * y_steps[2], mask, triplets, width)
            if axes > 2:
                if wanted:
                    total2 += lever(a, b, c, u, v, w, 2)
                    u, v, w = plane(u, v, w, cos2, -sin2, 2)
                a, b, c = plane(a, b, c, cos2, -sin2, 2)
            if axes > 1:
                if wanted:
                    total1 += lever(a, b, c, u, v, w, 1)
                    u, v, w = plane(u, v, w, cos1, -sin1, 1)
                a, b, c = plane(a, b, c, cos1, -sin1, 1)
            if wanted:
                total0 += lever(a, b, c, u, v, w, 0)
            a, b, c = plane(a, b, c, cos0, -sin0, 0)
        else:
            a, b, c = plane(a, b, c, cos0, sin0, 0)
            if axes > 1:
                a, b, c = plane(a, b, c, cos1, sin1, 1)
            if axes > 2:
                a, b, c = plane(a, b, c, cos2, sin2, 2)
        store_triplets(target, token * out_steps[2], mask, a, b, c, triplets, width)
        if rest > 0:
            copy_rest(source, target, token * x_steps[2], token * out_steps[2], mask, 3 * triplets, depth, rest)
        n, g = after(n, g, group)
    if wanted:
        columns = tl.arange(0, width)
        at = ((row * heads + head) * (tokens - prefix) + place[:, None]) * triplets + (columns // 3)[None, :]
        inside = turned[:, None] & (columns < 3 * triplets)[None, :] & (columns % 3 == 0)[None, :]
        tl.store(sums + at * axes, total0, mask=inside)
        if axes > 1:
            tl.store(sums + at * axes + 1, total1, mask=inside)
        if axes > 2:
            tl.store(sums + at * axes + 2, total2, mask=inside)


@triton.jit
def turn_kernel(
    q, k, first, depth: tl.constexpr, triplets: tl.constexpr, width: tl.constexpr, rest: tl.constexpr, rows: tl.constexpr,
    axes: tl.constexpr, back: tl.constexpr, wanted: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if pid < first:
        turn_side(pid, q, depth, triplets, width, rest, rows, axes, back, wanted)
    else:
        turn_side(pid - first, k, depth, triplets, width, rest, rows, axes, back, wanted)


def sphere_fused(xs: list[Tensor], angles: list[Tensor], prefixes: list[int]) -> list[Tensor]:
    """As `ropewalk.ops.sphere`."""
    outs = [torch.empty_like(x) for x in xs]
    launch(xs, outs, [None] * len(xs), angles, prefixes, back=False)
    return outs


def sphere_back(dys: list[Tensor], ys: list[Tensor], angles: list[Tensor], prefixes: list[int]) -> list[Tensor]:
    """Gradients of xs, and, if outputs ys are given, of angles."""
    dxs = [torch.empty_like(dy) for dy in dys]
    return dxs + launch(dys, dxs, ys or [None] * len(dys), angles, prefixes, back=True)


def launch(xs, outs, ys, angles, prefixes, *, back):  # type: ignore[no-untyped-def]
    """Run the kernel over all sides; the sums that angles get, if ys are given."""
    depth, (triplets, axes) = xs[0].shape[-1], angles[0].shape[-2:]
    width = power(3 * triplets)
    rows = max(1, min(ELEMENTS // width, power(max(x.shape[2] for x in xs))))
    wanted, packed, totals, programs = ys[0] is not None, [], [], []
    for x, out, y, angle, prefix in zip(xs, outs, ys, angles, prefixes, strict=True):
        side, x, angle = Side(x, angle, 2, prefix, rows), dense(x), dense(angle, 2)
        y = x if y is None else dense(y)
        sums = partial(side, angle, 2) if wanted else angle
        totals += [sums] if wanted else []
        moves = (steps(x), steps(out), steps(y), steps(angle, 2))
        packed.append((x, out, y, angle, sums, side.sizes(), *moves))
        programs.append(side.programs)
    if sum(programs):
        turn_kernel[(sum(programs),)](
            packed[0], packed[-1], programs[0], depth, triplets, width, power(depth - 3 * triplets), rows, axes, back,
            wanted, num_warps=4,
        )  # fmt: skip
    return [summed(sums).reshape(angle.shape).to(angle.dtype) for sums, angle in zip(totals, angles, strict=False)]

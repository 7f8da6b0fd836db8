"""Turns of blocks as one Triton kernel each way, for q and k together, on tensor cores.

A program owns the matrices of one token and one head of a table, laid out as one matrix M of the whole head (its blocks on
the diagonal, ones where no block is), and multiplies by it its share of the samples and of the heads that the table's head
serves: one matrix product of many rows. Inputs of 16 bits meet M as two numbers of 16 bits, hi + lo, which leaves an error
far below the rounding of the output; inputs of 32 bits are multiplied in full. What is not finite spreads over its head.

Backward: dL/dx = Mᵀ dL/dy, and dL/dM is the sum of dL/dy xᵀ over the batch, for any M. It needs inputs, not outputs: M x is
kept for attention, and x too, because it lies in one projection with v. From outputs, dL/dM = (Σ dL/dy yᵀ) M would cost
another product, hold for orthogonal M alone, and lose the bits that y was rounded by.
"""

import triton
import triton.language as tl

from ropewalk.ops.launch import Settings, every_way, launch, owner, power

TILES = {
    (64, 2, False): (64, 4, 3),
    (64, 2, True): (64, 4, 3),
    (64, 4, False): (32, 4, 2),
    (64, 4, True): (32, 4, 2),
    (128, 2, False): (64, 8, 2),
    (128, 2, True): (32, 8, 2),
    (128, 4, False): (16, 8, 1),
    (128, 4, True): (16, 8, 1),
}
"""Rows of x that meet a matrix at a time, warps, and stages of loading ahead, by width, bytes and whether matrices learn.

Up to a width of 64 they need 48 KiB of the memory of a multiprocessor, 96 KiB on Hopper; up to 128, 96 KiB.
"""


@triton.jit
def load_matrix(matrix, size: tl.constexpr, channels: tl.constexpr, width: tl.constexpr, transposed: tl.constexpr):
    """The matrix of the whole head, or its transpose."""
    i, j = tl.arange(0, width)[:, None], tl.arange(0, width)[None, :]
    row, column = (j, i) if transposed else (i, j)
    inside = (i // size == j // size) & (i < channels) & (j < channels)
    blocks = tl.load(matrix + (row // size) * size * size + (row % size) * size + column % size, mask=inside, other=0.0)
    return tl.where((i == j) & (i >= channels), 1.0, blocks.to(tl.float32))


@triton.jit
def product(x, matrix):
    """x (16 or 32 bits) times a matrix in float32, to float32."""
    if x.dtype == tl.float32:
        return tl.dot(x, matrix, input_precision="ieee")
    high = matrix.to(x.dtype)
    low = (matrix - high.to(tl.float32)).to(x.dtype)
    return tl.dot(x, low, tl.dot(x, high))


@triton.jit
def item_rows(
    start, last, sample, head, token, group, strides, depth: tl.constexpr, width: tl.constexpr, rows: tl.constexpr
):  # fmt: skip
    """Where the channels of a token lie in samples and heads from item `start` on, and which of them there are."""
    item, channel = start + tl.arange(0, rows), tl.arange(0, width)
    at = (sample + item // group) * strides[0] + (head * group + item % group) * strides[1] + token * strides[2]
    return at[:, None] + channel[None, :], (item < last)[:, None] & (channel < depth)[None, :]


@triton.jit
def turn_side(
    pid, side, depth: tl.constexpr, size: tl.constexpr, groups: tl.constexpr, width: tl.constexpr, rows: tl.constexpr,
    back: tl.constexpr, wanted: tl.constexpr,
):  # fmt: skip
    """Multiply x by its matrices, or their transposes; in backward, sum gradients of matrices, if wanted, into `sums`."""
    x, out, y, matrix, _, sums, sizes, x_steps, out_steps, y_steps, m_steps, _ = side
    items, group, heads, tokens, prefix, blocks, splits = sizes
    token, head, sample, row, first, last = owner(pid, blocks, heads, splits, items)
    token = token.to(tl.int64)
    place = token - prefix
    if place < 0:
        for start in range(first, last, rows):
            at, mask = item_rows(start, last, sample, head, token, group, x_steps, depth, width, rows)
            given = tl.load(x + at, mask=mask, other=0.0)
            at, mask = item_rows(start, last, sample, head, token, group, out_steps, depth, width, rows)
            tl.store(out + at, given, mask=mask)
    else:
        matrix += sample * m_steps[0] + head * m_steps[1] + place * m_steps[2]
        factor = load_matrix(matrix, size, size * groups, width, not back)
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
            i, j = tl.arange(0, width)[:, None], tl.arange(0, width)[None, :]
            inside = (i // size == j // size) & (i < size * groups) & (j < size * groups)
            at = ((row * heads + head) * (tokens - prefix) + place) * groups + i // size
            tl.store(sums + at * size * size + (i % size) * size + j % size, total, mask=inside)


@triton.jit
def turn_kernel(
    q, k, v, q_end, k_end, depth: tl.constexpr, size: tl.constexpr, groups: tl.constexpr, width: tl.constexpr,
    rows: tl.constexpr, back: tl.constexpr, wanted: tl.constexpr, copied: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if pid < q_end:
        turn_side(pid, q, depth, size, groups, width, rows, back, wanted)
    elif pid < k_end:
        turn_side(pid - q_end, k, depth, size, groups, width, rows, back, wanted)
    elif copied:
        turn_side(pid - k_end, v, depth, size, groups, width, rows, back, False)


def settings(xs, matrices, wanted, gained, copied, back):
    depth, (groups, size) = xs[0].shape[-1], matrices[0].shape[-3:-1]
    width = max(16, power(depth))
    rows, warps, stages = TILES[max(width, 64), xs[0].element_size(), wanted]
    return Settings((depth, size, groups, width, rows, back, wanted, copied), 1, 1024, warps, stages)


def run(xs, outs, ys, matrices, prefixes, *, back):
    return launch(turn_kernel, settings, xs, outs, ys, matrices, prefixes, back, trailing=3)


turn_fused, turn_into, turn_back, turn_join = every_way(run)

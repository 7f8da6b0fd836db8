"""Rotation of pairs as one Triton kernel each way, for q and k together.

A program owns the angles of one head of a table and a block of tokens, takes their sines and cosines once, and walks over
its share of the samples and of the heads that the table's head serves. So x is read and written once and a table not much
more often, whatever the batch, and gradients of angles are summed over the batch in registers. What several programs have
summed goes to rows of its own, which are added up in a fixed order: the result is the same every time.

Backward needs outputs, not inputs. Let y = g R(t) x for a pair, with a gain g that is not learned. Then dL/dx = g R(t)ᵀ
dL/dy and dL/dt = dL/dy · J y, with J the quarter turn. Attention keeps y anyway.
"""

import itertools

import triton
import triton.language as tl

from ropewalk.ops.launch import Settings, after, copy_rest, every_way, launch, owner, power, within_a_turn

ELEMENTS = 1024
"""Elements of x that a program turns at a time."""


@triton.jit
def members(pair, sections: tl.constexpr):
    """The channels of pairs of a half-split layout in sections, which are given as first pair and number of pairs each."""
    first, second = pair, pair + sections[1]
    for i in tl.static_range(2, len(sections), 2):
        later = pair >= sections[i]
        first = tl.where(later, pair + sections[i], first)
        second = tl.where(later, pair + (sections[i] + sections[i + 1]), second)
    return first, second


@triton.jit
def load_pairs(x, rows, mask, pairs: tl.constexpr, width: tl.constexpr, interleaved: tl.constexpr, sections: tl.constexpr):
    """Both members of each pair in float32, from rows of x."""
    if interleaved:
        channels = tl.arange(0, 2 * width)
        tile = tl.load(
            x + rows[:, None] + channels[None, :], mask=mask[:, None] & (channels < 2 * pairs)[None, :], other=0.0
        )
        a, b = tl.split(tl.reshape(tile, (rows.shape[0], width, 2)))
    elif len(sections) > 0:
        channels = tl.arange(0, width)
        first, second = members(channels, sections)
        inside = mask[:, None] & (channels < pairs)[None, :]
        a = tl.load(x + rows[:, None] + first[None, :], mask=inside, other=0.0)
        b = tl.load(x + rows[:, None] + second[None, :], mask=inside, other=0.0)
    else:
        channels = tl.arange(0, width)
        inside = mask[:, None] & (channels < pairs)[None, :]
        a = tl.load(x + rows[:, None] + channels[None, :], mask=inside, other=0.0)
        b = tl.load(x + rows[:, None] + (channels + pairs)[None, :], mask=inside, other=0.0)
    return a.to(tl.float32), b.to(tl.float32)


@triton.jit
def store_pairs(
    x, rows, mask, a, b, pairs: tl.constexpr, width: tl.constexpr, interleaved: tl.constexpr, sections: tl.constexpr
):
    """The opposite of `load_pairs`, in the dtype of x."""
    if interleaved:
        channels = tl.arange(0, 2 * width)
        tile = tl.reshape(tl.join(a, b), (rows.shape[0], 2 * width)).to(x.dtype.element_ty)
        tl.store(x + rows[:, None] + channels[None, :], tile, mask=mask[:, None] & (channels < 2 * pairs)[None, :])
    elif len(sections) > 0:
        channels = tl.arange(0, width)
        first, second = members(channels, sections)
        inside = mask[:, None] & (channels < pairs)[None, :]
        tl.store(x + rows[:, None] + first[None, :], a.to(x.dtype.element_ty), mask=inside)
        tl.store(x + rows[:, None] + second[None, :], b.to(x.dtype.element_ty), mask=inside)
    else:
        channels = tl.arange(0, width)
        inside = mask[:, None] & (channels < pairs)[None, :]
        tl.store(x + rows[:, None] + channels[None, :], a.to(x.dtype.element_ty), mask=inside)
        tl.store(x + rows[:, None] + (channels + pairs)[None, :], b.to(x.dtype.element_ty), mask=inside)


@triton.jit
def circle(angle, gain, place, turned, a, g, pairs: tl.constexpr, width: tl.constexpr, gained: tl.constexpr):
    """Cosine and sine times gain of a block of tokens: 1 and 0 where nothing is turned."""
    columns = tl.arange(0, width)
    inside = turned[:, None] & (columns < pairs)[None, :]
    t = within_a_turn(tl.load(angle + place[:, None] * a + columns[None, :], mask=inside, other=0.0))
    cos, sin = tl.cos(t), tl.sin(t)
    if gained:
        stretch = tl.load(gain + place[:, None] * g + columns[None, :], mask=inside, other=1.0).to(tl.float32)
        cos, sin = cos * stretch, sin * stretch
    return cos, sin


@triton.jit
def turn_side(
    pid, side, depth: tl.constexpr, pairs: tl.constexpr, width: tl.constexpr, rest: tl.constexpr, rows: tl.constexpr,
    interleaved: tl.constexpr, sections: tl.constexpr, gained: tl.constexpr, back: tl.constexpr, wanted: tl.constexpr,
):  # fmt: skip
    """Rotate x by its angles, or back; in backward, sum gradients of angles, if wanted, into a row of `sums`."""
    x, out, y, angle, gain, sums, sizes, x_steps, out_steps, y_steps, angle_steps, gain_steps = side
    items, group, heads, tokens, prefix, blocks, splits = sizes
    block, head, sample, row, first, last = owner(pid, blocks, heads, splits, items)
    token = (block * rows + tl.arange(0, rows)).to(tl.int64)
    mask = token < tokens
    place, turned = token - prefix, mask & (token >= prefix)
    angle += sample * angle_steps[0] + head * angle_steps[1]
    gain += sample * gain_steps[0] + head * gain_steps[1]
    cos, sin = circle(angle, gain, place, turned, angle_steps[2], gain_steps[2], pairs, width, gained)
    if back:
        sin = -sin
    total = tl.zeros((rows, width), tl.float32)
    b, g = sample + first // group, first % group
    for _ in range(first, last):
        h = head * group + g
        source = x + b * x_steps[0] + h * x_steps[1]
        target = out + b * out_steps[0] + h * out_steps[1]
        p, q = load_pairs(source, token * x_steps[2], mask, pairs, width, interleaved, sections)
        if wanted:
            seen = y + b * y_steps[0] + h * y_steps[1]
            u, v = load_pairs(seen, token * y_steps[2], mask, pairs, width, interleaved, sections)
            total += q * u - p * v
        rows_out = token * out_steps[2]
        store_pairs(target, rows_out, mask, p * cos - q * sin, p * sin + q * cos, pairs, width, interleaved, sections)
        if rest > 0:
            copy_rest(source, target, token * x_steps[2], rows_out, mask, 2 * pairs, depth, rest)
        b, g = after(b, g, group)
    if wanted:
        columns = tl.arange(0, width)
        at = ((row * heads + head) * (tokens - prefix) + place[:, None]) * pairs + columns[None, :]
        tl.store(sums + at, total, mask=turned[:, None] & (columns < pairs)[None, :])


@triton.jit
def turn_kernel(
    q, k, v, q_end, k_end, depth: tl.constexpr, pairs: tl.constexpr, width: tl.constexpr, rest: tl.constexpr,
    rows: tl.constexpr, interleaved: tl.constexpr, sections: tl.constexpr, gained: tl.constexpr, back: tl.constexpr,
    wanted: tl.constexpr, copied: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if pid < q_end:
        turn_side(pid, q, depth, pairs, width, rest, rows, interleaved, sections, gained, back, wanted)
    elif pid < k_end:
        turn_side(pid - q_end, k, depth, pairs, width, rest, rows, interleaved, sections, gained, back, wanted)
    elif copied:
        turn_side(pid - k_end, v, depth, pairs, width, rest, rows, interleaved, sections, gained, back, False)


def settings(xs, angles, wanted, gained, copied, interleaved, sections, back):
    depth, pairs = xs[0].shape[-1], angles[0].shape[-1]
    width = power(max(pairs, 1))
    rows = max(1, min(ELEMENTS // (2 * width), power(max(x.shape[2] for x in xs))))
    rest, starts = power(depth - 2 * pairs), itertools.accumulate(sections, initial=0)
    parts = tuple(each for part in zip(starts, sections, strict=False) for each in part)
    constants = (depth, pairs, width, rest, rows, interleaved, parts, gained, back, wanted, copied)
    return Settings(constants, rows, programs=2048 if wanted else 4096)


def run(xs, outs, ys, angles, gains, interleaved, sections, prefixes, *, back):
    layout = interleaved, tuple(sections)
    stretches = [gain for gain in gains if gain is not None]
    return launch(turn_kernel, settings, xs, outs, ys, angles, prefixes, *layout, back, gains=stretches)


rotate_fused, rotate_into, rotate_back, rotate_join = every_way(run)

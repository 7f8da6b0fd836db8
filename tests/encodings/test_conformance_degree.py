"""The bridge from axial to spherical RoPE, by matrix exponentials of generators written from the formula.

A_1 turns e1 towards e2; A_0 turns cos ε e3 + sin ε e2 towards e4. Frequencies are base^(-j/F) for F blocks.
"""

import math

import pytest
import torch
from torch import Tensor

import ropewalk as rw
from tests.support.float64_reference import assert_close, assert_same, gradients, leaf, normal, turned

BATCH, HEADS, KV_HEADS = 2, 4, 2
ANGLES = (0.0, 30.0, 90.0)
DTYPES = (torch.float64, torch.float32)


def made(dtype: torch.dtype = torch.float64, **options: object) -> rw.Encoding:
    return rw.create("axial-spherical", **({"heads": HEADS, "head_dim": 14} | options)).to(dtype)


def wedge(one: Tensor, other: Tensor) -> Tensor:
    """What turns `one` towards `other`, vectors at right angles."""
    return torch.outer(other, one) - torch.outer(one, other)


def written_generators(head_dim: int, angle: float, base: float = 100.0) -> Tensor:
    """(1 A D D), axis 0 first."""
    tilt, count = math.pi * angle / 180, head_dim // 4
    e1, e2, e3, e4 = torch.eye(4, dtype=torch.float64)
    across, down = wedge(e1, e2), wedge(math.cos(tilt) * e3 + math.sin(tilt) * e2, e4)
    laws, rest = [base ** (-j / count) for j in range(count)], torch.zeros(head_dim % 4, head_dim % 4, dtype=torch.float64)
    return torch.stack([torch.block_diag(*(law * axis for law in laws), rest) for axis in (down, across)])[None]


def in_order(x: Tensor, generators: Tensor, positions: Tensor) -> Tensor:
    for axis in range(2):
        x = turned(x, generators[:, axis : axis + 1], positions[..., axis : axis + 1])
    return x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("angle", ANGLES)
def test_blocks(angle, ordered, dtype):
    """Two layers, grouped queries, a base and a scale, positions of each sample's own: gradients of all that is real."""
    encoding = made(dtype, angle=angle, ordered=ordered, base=3.0, scale=0.7, kv_heads=KV_HEADS, layers=2)
    assert encoding.name == "axial-spherical"
    q = leaf(BATCH, HEADS, 7, 14, seed=0, dtype=dtype)
    k = leaf(BATCH, KV_HEADS, 9, 14, seed=1, dtype=dtype)
    places = [leaf(BATCH, n, 2, seed=seed, dtype=dtype) for n, seed in ((7, 2), (9, 3))]
    generators, apply = 0.7 * written_generators(14, angle, 3.0), in_order if ordered else turned
    ours = [x for layer in range(2) for x in encoding(*places)[layer].qk(q, k)]
    theirs = [apply(x, generators, p) for x, p in zip((q, k), places, strict=True)] * 2
    assert_same(ours, theirs, [q, k, *places], reach=4.0)


@pytest.mark.parametrize("angle", ANGLES)
def test_generators(angle):
    found = made(head_dim=14, angle=angle).generators()
    assert_close(found, written_generators(14, angle).expand_as(found))


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("angle", ANGLES)
@pytest.mark.parametrize("place", [(0.0, 0.0), (1e-9, 0.0), (0.0, 2.0), (2.0, 0.0), (1.5, 1.5), (1.5, -1.5), (0.99, 0.02)])
def test_gradients_where_quaternions_have_no_direction(place, angle, ordered):
    encoding = made(head_dim=4, heads=1, angle=angle, ordered=ordered)
    p = torch.tensor([place], dtype=torch.float64, requires_grad=True)
    x = normal(1, 1, 1, 4, seed=0)
    apply = in_order if ordered else turned
    ours, theirs = encoding(p).q(x), apply(x, written_generators(4, angle), p)
    assert_close(ours, theirs)
    assert_close(*(gradients(side, [p])[0] for side in (ours, theirs)))
    assert torch.autograd.gradcheck(lambda p: encoding(p).q(x), p)
    assert torch.autograd.gradgradcheck(lambda p: encoding(p).q(x), p)


def test_fewer_frequencies_have_the_same_range_and_mean():
    every, one, two, three = (made(head_dim=48, frequencies=n, base=10.0).frequency[0] for n in (12, 1, 2, 3))
    assert torch.equal(every, made(head_dim=48, base=10.0).frequency[0])
    for some in (one, two, three):
        assert_close(some.log().mean(), every.log().mean())
    assert_close(one, every.log().mean().exp().expand(12))
    assert_close(two, torch.cat([every[:1].expand(6), every[-1:].expand(6)]))
    assert_close(three[[0, 3, 4, 7, 8, 11]], torch.cat([every[:1], every[:1], one[:2], every[-1:], every[-1:]]))


def test_channels_beyond_rotary_dim_stay():
    encoding, other = made(head_dim=48, rotary_dim=36, heads=1), made(head_dim=36, heads=1)
    q, p = normal(BATCH, 1, 9, 48, seed=0), normal(9, 2, seed=1)
    ours = encoding(p).q(q)
    assert torch.equal(ours[..., 36:], q[..., 36:])
    assert_close(ours[..., :36], other(p).q(q[..., :36].contiguous()))
    for wrong in (0, 2, 38, 52):
        with pytest.raises(ValueError, match="rotary_dim"):
            made(head_dim=48, rotary_dim=wrong)


@pytest.mark.parametrize("head_dim", [14, 48])
def test_without_an_angle_it_is_axial_in_another_order_of_channels(head_dim):
    count = head_dim // 4
    columns, rows = 4 * torch.arange(count), 4 * torch.arange(count) + 2
    pairs = torch.cat([columns, rows])
    order = torch.stack([pairs, pairs + 1], -1).flatten()
    order = torch.cat([order, torch.arange(4 * count, head_dim)])
    axial, encoding = rw.create("axial", head_dim=head_dim).double(), made(head_dim=head_dim, heads=1, angle=0.0)
    assert torch.equal(axial.frequency, encoding.frequency.expand(1, 2, count)), "the same frequencies"
    q, p = normal(BATCH, 1, 9, head_dim, seed=0), 8 * normal(9, 2, seed=1)
    assert_close(encoding(p).q(q)[..., order], axial(p).q(q[..., order]), reach=20.0)


@pytest.mark.parametrize("name", ["spherical-symmetric", "spherical"])
def test_at_right_angles_it_is_spherical_on_three_of_four_channels(name):
    """Its e4, e1 and e2 are the channels -a, b and c of triplets; e3 is idle."""
    encoding = made(head_dim=12, heads=1, angle=90.0, ordered=name == "spherical")
    triplets = rw.create(name, head_dim=9).double()
    triplets.frequency = encoding.frequency[:, :, None].repeat(1, 1, 2)
    q, p = normal(BATCH, 1, 9, 12, seed=0), 3 * normal(9, 2, seed=1)
    blocks = q.unflatten(-1, (3, 4))
    signs = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    theirs = triplets(p).q((signs * blocks[..., [3, 0, 1]]).flatten(-2)).unflatten(-1, (3, 3)) * signs
    ours = encoding(p).q(q).unflatten(-1, (3, 4))
    assert_close(ours[..., [3, 0, 1]], theirs, reach=10.0)
    assert_close(ours[..., 2], blocks[..., 2])


@pytest.mark.parametrize("angle", [30.0, 60.0, 90.0])
def test_along_each_axis_the_frequencies_are_those_of_axial(angle):
    axial, tilted = made(head_dim=48, angle=0.0), made(head_dim=48, angle=angle)
    assert_close(rw.theory.span(tilted, 8, 8), rw.theory.span(axial, 8, 8), reach=8.0)


def quaternion(angle: float, p: Tensor, frequency: float, side: float) -> Tensor:
    """cos and sin of half of what the left (side 1) or the right (-1) quaternion turns, as 2 x 2 matrices of numbers."""
    tilt, (b, a) = math.pi * angle / 180, frequency * p
    i, j = (a + side * b * math.cos(tilt)) / 2, -side * b * math.sin(tilt) / 2
    pauli = [[[1j, 0], [0, -1j]], [[0, 1], [-1, 0]]]
    return torch.linalg.matrix_exp(
        sum(x * torch.tensor(m, dtype=torch.complex128) for x, m in zip((i, j), pauli, strict=True))
    )


@pytest.mark.parametrize("angle", [20.0, 90.0])
def test_what_a_move_changes_in_closed_form(angle):
    """The mean square change of a pair's score over that of a score is 2 - 2 Re l' Re r'."""
    x, y, move = normal(3, 2, seed=5)
    encoding = made(head_dim=8, heads=1, angle=angle)
    turns = encoding(torch.stack([x, y, x + move, y + move])).matrices()[0]
    change = (turns[2].mT @ turns[3] - turns[0].mT @ turns[1]).square().sum().item() / 8
    each = []
    for frequency in encoding.frequency[0].tolist():
        left, right = ([quaternion(angle, p, frequency, side) for p in (x, y, x + move, y + move)] for side in (1.0, -1.0))
        l_part = left[3].mH @ left[2] @ left[0].mH @ left[1]
        r_part = right[1] @ right[0].mH @ right[2] @ right[3].mH
        each.append(2 - 2 * (l_part.trace() / 2).real.item() * (r_part.trace() / 2).real.item())
    assert change > 1e-3
    assert change == pytest.approx(sum(each) / 2, rel=1e-10)


@pytest.mark.parametrize("angle", [10.0, 90.0])
def test_what_a_small_turn_changes(angle):
    """ω² sin ε |m × (y - x)| / √8 of the score, to lowest order."""
    x, y, move = normal(3, 2, seed=5)
    encoding = made(head_dim=4, heads=1, angle=angle, scale=1e-3)
    turns = encoding(torch.stack([x, y, x + move, y + move])).matrices()[0]
    change = (turns[2].mT @ turns[3] - turns[0].mT @ turns[1]).norm().item() / 2
    cross = abs(move[0] * (y - x)[1] - move[1] * (y - x)[0]).item()
    assert change == pytest.approx(1e-6 * math.sin(math.radians(angle)) * cross / math.sqrt(8), rel=1e-2)


@pytest.mark.parametrize("angle", [-1.0, 90.5, math.nan])
def test_other_angles_are_refused(angle):
    with pytest.raises(ValueError, match="angle"):
        made(angle=angle)

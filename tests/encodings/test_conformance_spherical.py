"""Spherical RoPE by quaternions: a triplet (a, b, c) is the imaginary part of v = ai + bj + ck and turns to u v u*.

In the plane (a, c) the turn by t, a cos t - c sin t and a sin t + c cos t, is the one about -j; that in (b, c) is about i,
that in (a, b) about k. The quaternion of an axis multiplies those of the axes before it from the left.
"""

import math

import pytest
import torch
from torch import Tensor

import ropewalk as rw
from tests.support.float64_reference import assert_close, assert_same, in_layers, leaf, normal, twin

BATCH, HEADS, KV_HEADS = 2, 4, 2
DTYPES = (torch.float64, torch.float32)
ABOUT = torch.tensor([[0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
"""For each axis of the position, the unit quaternion (1, i, j, k) that its turn is about."""


def product(x: Tensor, y: Tensor) -> Tensor:
    """Hamilton's product of quaternions (..., 4)."""
    a, b, c, d = x.unbind(-1)
    e, f, g, h = y.unbind(-1)
    one = a * e - b * f - c * g - d * h
    i = a * f + b * e + c * h - d * g
    j = a * g - b * h + c * e + d * f
    k = a * h + b * g - c * f + d * e
    return torch.stack([one, i, j, k], dim=-1)


def turned(x: Tensor, frequency: Tensor, positions: Tensor) -> Tensor:
    """x (B H N D) with triplet t turned by frequency (h T A) times positions ([B] N A), axis after axis."""
    x, positions = x.double(), positions.double()
    frequency = frequency.repeat_interleave(x.shape[1] // frequency.shape[0], dim=0)
    places = positions if positions.ndim == 3 else positions.expand(len(x), *positions.shape)
    half = torch.einsum("hta,bna->bhnta", frequency, places).unsqueeze(-1) / 2
    whole = torch.tensor([1, 0, 0, 0], dtype=torch.float64)
    for axis in range(positions.shape[-1]):
        turn = half[..., axis, :].cos() * torch.eye(4, dtype=torch.float64)[0] + half[..., axis, :].sin() * ABOUT[axis]
        whole = product(turn, whole.expand_as(turn))
    triplets = frequency.shape[1]
    vector = torch.nn.functional.pad(x[..., : 3 * triplets].unflatten(-1, (triplets, 3)), (1, 0))
    conjugate = whole * torch.tensor([1, -1, -1, -1], dtype=torch.float64)
    moved = product(product(whole, vector), conjugate)
    return torch.cat([moved[..., 1:].flatten(-2), x[..., 3 * triplets :]], dim=-1)


def fixed_frequency(variant: str, d: int, axes: int, base: float = 100.0) -> Tensor:
    """base^(-2j/D): D is the head width in the published code and the number of triplets in the paper."""
    wide = {"van-de-geijn": d, "van-de-geijn-paper": d // 3}[variant]
    return torch.tensor([[[base ** (-2 * j / wide)] * axes for j in range(d // 3)]], dtype=torch.float64)


def pi_grid(sizes: tuple[int, ...], trained: tuple[int, ...]) -> Tensor:
    ends = [math.pi * n / n0 for n, n0 in zip(sizes, trained, strict=True)]
    lines = [torch.linspace(-end, end, n, dtype=torch.float64) for end, n in zip(ends, sizes, strict=True)]
    return torch.cartesian_prod(*lines).reshape(-1, len(sizes))


def made(dtype: torch.dtype = torch.float64, **options: object) -> rw.Encoding:
    torch.manual_seed(0)
    return rw.create("spherical", heads=HEADS, **options).to(dtype)


def test_all_variants_have_a_reference():
    assert list(rw.Spherical.variants) == ["van-de-geijn", "van-de-geijn-paper"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_dim", [7, 12])
@pytest.mark.parametrize(
    ("trained", "sizes"), [((5,), (5,)), ((3, 5), (3, 5)), ((3, 5), (4, 7)), ((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (3, 2, 4))]
)
@pytest.mark.parametrize("variant", ["van-de-geijn", "van-de-geijn-paper"])
def test_fixed(variant, trained, sizes, head_dim, dtype):
    encoding = made(dtype, head_dim=head_dim, axes=len(sizes), size=trained, variant=variant)
    frequency, positions = fixed_frequency(variant, head_dim, len(sizes)), pi_grid(sizes, trained)
    q, k = (leaf(BATCH, HEADS, len(positions), head_dim, seed=seed, dtype=dtype) for seed in (0, 1))
    ours = encoding(encoding.grid(*sizes, resolution="extrapolate", dtype=dtype)).qk(q, k)
    assert_same(ours, [turned(x, frequency, positions) for x in (q, k)], [q, k], positions.abs().max().item())


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_fixed_of_another_base(axes):
    encoding = made(head_dim=13, axes=axes, base=10.0, kv_heads=KV_HEADS)
    frequency = fixed_frequency("van-de-geijn", 13, axes, base=10.0)
    q, k = leaf(BATCH, HEADS, 7, 13, seed=0), leaf(BATCH, KV_HEADS, 9, 13, seed=1)
    places = [leaf(BATCH, n, axes, seed=seed) for n, seed in ((7, 2), (9, 3))]
    theirs = [turned(x, frequency, p) for x, p in zip((q, k), places, strict=True)]
    assert_same(encoding(*places).qk(q, k), theirs, [q, k, *places])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_learned(axes, dtype):
    """Two layers, grouped queries, fractional positions of each sample's own: gradients of parameters and positions too."""
    encoding = made(dtype, head_dim=13, axes=axes, learned=True, kv_heads=KV_HEADS, layers=2)
    parameter, other = encoding.frequency, twin(encoding.frequency)
    assert parameter.shape == (2, KV_HEADS, 4, axes)
    q = leaf(BATCH, HEADS, 7, 13, seed=0, dtype=dtype)
    k = leaf(BATCH, KV_HEADS, 9, 13, seed=1, dtype=dtype)
    places = [leaf(BATCH, n, axes, seed=seed, dtype=dtype) for n, seed in ((7, 2), (9, 3))]
    ours, theirs = in_layers(encoding(*places), (q, k), places, other, turned)
    assert_same(ours, theirs, [q, k, *places, (parameter, other)], reach=4.0)


def test_learned_and_shared():
    encoding = made(head_dim=12, learned=True, shared=True)
    parameter, other = encoding.frequency, twin(encoding.frequency)
    assert parameter.shape == (1, 4, 2)
    q, k = (leaf(BATCH, HEADS, 7, 12, seed=seed) for seed in (0, 1))
    places = leaf(7, 2, seed=2)
    theirs = [turned(x, other, places) for x in (q, k)]
    assert_same(encoding(places).qk(q, k), theirs, [q, k, places, (parameter, other)])


def test_learned_starts_uniform():
    torch.manual_seed(0)
    parameter = rw.create("spherical", head_dim=63, heads=6, layers=5, learned=True).frequency.detach()
    assert parameter.shape == (5, 6, 21, 2)
    counts = torch.histogram(parameter.flatten(), torch.linspace(0, 1, 9))[0]
    assert counts.sum() == parameter.numel(), "all start in [0, 1]"
    assert (counts / parameter.numel() - 1 / 8).abs().max() < 0.05, "and evenly so"


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize(("axes", "axis"), [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_scores_stay_put_along_the_last_axis_alone(axes, axis, learned):
    encoding = made(head_dim=12, axes=axes, learned=learned)
    q, k = (normal(BATCH, HEADS, 7, 12, seed=seed) for seed in (0, 1))
    places = normal(BATCH, 7, axes, seed=2)
    moved = places.clone()
    moved[..., axis] += 1.7
    (q0, k0), (q1, k1) = encoding(places).qk(q, k), encoding(moved).qk(q, k)
    before, after = (q0 @ k0.mT).detach(), (q1 @ k1.mT).detach()
    if axis == axes - 1:
        assert_close(after, before)
    else:
        assert (after - before).abs().max() > 0.1


def test_relative_operator_of_two_axes():
    """S(p)ᵀ S(q) = W(-ω p_0) X(ω (q_1 - p_1)) W(ω q_0), W the turn in (a, c) and X the one in (b, c)."""
    encoding = made(head_dim=3, base=100.0)
    (p, q) = normal(2, 2, seed=0)

    def plane(first: int, second: int, angle: Tensor) -> Tensor:
        turn = torch.eye(3, dtype=torch.float64)
        turn[first, first] = turn[second, second] = angle.cos()
        turn[first, second], turn[second, first] = -angle.sin(), angle.sin()
        return turn

    identity = torch.eye(3, dtype=torch.float64).reshape(3, 1, 1, 3).expand(3, HEADS, 2, 3)
    at_p, at_q = encoding(torch.stack([p, q])).q(identity)[:, 0].unbind(1)
    relative = at_p @ at_q.mT
    assert_close(relative, plane(0, 2, -p[0]) @ plane(1, 2, q[1] - p[1]) @ plane(0, 2, q[0]))

"""Symmetric spherical RoPE by quaternions: a triplet turns by |w| about w, the sum over axes of ω p times their directions.

In the plane (a, c) the turn by t, a cos t - c sin t and a sin t + c cos t, is the one about -b; that in (b, c) is about a,
that in (a, b) about c. A vector v turned by the unit quaternion (s, u) is v + 2 u × (u × v + s v).
"""

import pytest
import torch
from torch import Tensor

import ropewalk as rw
from tests.support.float64_reference import assert_close, assert_same, in_layers, leaf, normal, twin

BATCH, HEADS, KV_HEADS = 2, 4, 2
ABOUT = torch.tensor([[0, -1, 0], [1, 0, 0], [0, 0, 1]], dtype=torch.float64)


def turned(x: Tensor, frequency: Tensor, positions: Tensor) -> Tensor:
    """x (B H N D) with triplet t turned by frequency (h T A) times positions ([B] N A)."""
    x, positions = x.double(), positions.double()
    frequency = frequency.repeat_interleave(x.shape[1] // frequency.shape[0], dim=0)
    places = positions if positions.ndim == 3 else positions.expand(len(x), *positions.shape)
    w = torch.einsum("hta,bna,ax->bhntx", frequency, places, ABOUT[: frequency.shape[-1]])
    whole = w.norm(dim=-1, keepdim=True)
    s, u = (whole / 2).cos(), (whole / 2).sin() * w / whole
    triplets = frequency.shape[1]
    v = x[..., : 3 * triplets].unflatten(-1, (triplets, 3))
    u = u.expand(v.shape)
    moved = v + 2 * torch.linalg.cross(u, torch.linalg.cross(u, v) + s * v)
    return torch.cat([moved.flatten(-2), x[..., 3 * triplets :]], dim=-1)


def made(dtype: torch.dtype = torch.float64, **options: object) -> rw.Encoding:
    return rw.create("spherical-symmetric", heads=HEADS, **options).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("learned", [False, True])
def test_symmetric(learned, axes, dtype):
    """Two layers, grouped queries, fractional positions of each sample's own: gradients of all that is real."""
    encoding = made(dtype, head_dim=13, axes=axes, learned=learned, kv_heads=KV_HEADS, layers=2)
    frequency = encoding.frequency
    laws = torch.tensor([100.0 ** (-2 * j / 13) for j in range(4)], dtype=torch.float64)[None, :, None].expand(1, 4, axes)
    other = twin(frequency) if learned else laws.expand(2, 1, 4, axes)
    q = leaf(BATCH, HEADS, 7, 13, seed=0, dtype=dtype)
    k = leaf(BATCH, KV_HEADS, 9, 13, seed=1, dtype=dtype)
    places = [leaf(BATCH, n, axes, seed=seed, dtype=dtype) for n, seed in ((7, 2), (9, 3))]
    ours, theirs = in_layers(encoding(*places), (q, k), places, other, turned)
    assert_same(ours, theirs, [q, k, *places, *([(frequency, other)] if learned else [])], reach=4.0)


@pytest.mark.parametrize("variant", ["van-de-geijn", "van-de-geijn-paper"])
def test_frequencies_are_those_of_spherical(variant):
    options = {"head_dim": 12, "heads": 2, "variant": variant}
    assert torch.equal(rw.create("spherical-symmetric", **options).frequency, rw.create("spherical", **options).frequency)


def test_it_is_liere_with_fixed_orthogonal_blocks_of_three():
    symmetric = made(head_dim=12)
    liere = rw.create("liere", head_dim=12, heads=HEADS, block=3, shared=True).double()
    frequency = symmetric.frequency[0, :, 0]
    upper = torch.zeros_like(liere.upper)  # entries (a, b), (a, c), (b, c) of each block
    upper[0, 0, :, 1] = upper[0, 1, :, 2] = -frequency
    liere.upper.data = upper
    q, k = (normal(BATCH, HEADS, 7, 12, seed=seed) for seed in (0, 1))
    places = normal(7, 2, seed=2)
    for ours, theirs in zip(symmetric(places).qk(q, k), liere(places).qk(q, k), strict=True):
        assert_close(ours, theirs.detach())
    products = [(a * b).sum().item() for a, b in [symmetric.generators()[0]]]
    assert products == [0.0]


@pytest.mark.parametrize("axes", [2, 3])
def test_every_axis_breaks_alike(axes):
    encoding = made(head_dim=12, axes=axes, size=(3,) * axes)
    change = rw.theory.equivariance(encoding, encoding.grid(*(3,) * axes, dtype=torch.float64), (0.7, 2.0))
    for found in (change.worst, change.expected):
        assert found.min() > 0.01
        assert_close(found, found[:, :1].expand_as(found))
    ordered = rw.create("spherical", head_dim=12, axes=axes, size=(3,) * axes).double()
    change = rw.theory.equivariance(ordered, ordered.grid(*(3,) * axes, dtype=torch.float64), (0.7,))
    assert change.worst[..., -1, 0].max() < 1e-12 < change.worst[..., 0, 0].min()

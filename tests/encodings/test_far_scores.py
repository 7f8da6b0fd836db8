"""RoPE's scores do not know how far from the beginning they are, up to a million places, in float32."""

import math

import pytest
import torch

import ropewalk as rw
from ropewalk import rotary

LONG = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 32768}


def scores(encoding, places, apart, dtype):
    drawn = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, len(places), 128, generator=drawn, dtype=torch.float64).to(dtype) for _ in "qk")
    q, k = encoding(places, places - apart).qk(q, k)
    return (q.double() * k.double()).sum(-1) / math.sqrt(128)


@pytest.mark.parametrize("options", [{}, {"base": 5e5, "extension": LONG}, {"base": 5e5, "learned": True}], ids=str)
def test_far_scores_are_as_exact_as_near_ones(options):
    encoding = rw.create("rope", head_dim=128, **options)
    exact = rw.create("rope", head_dim=128, **options).double()
    apart = torch.randint(0, 1000, (512,), generator=torch.Generator().manual_seed(1))
    for start in (1000, 131_072, 1_000_000 - 512):
        places = torch.arange(start, start + 512)
        error = (scores(encoding, places, apart, torch.float32) - scores(exact, places, apart, torch.float64)).abs().max()
        assert error < 1e-4, f"from {start} on, scores are off by {error:.3g}"


def test_angles_are_off_by_the_rounding_of_frequencies_alone():
    encoding = rw.create("rope", head_dim=128)
    exact = rw.create("rope", head_dim=128).double()
    places = torch.arange(999_000, 1_000_001)
    code, truth = encoding(places), exact(places)
    off = code.q_angle.double() - truth.q_angle
    off = (off - 2 * math.pi * (off / (2 * math.pi)).round()).abs()
    assert code.q_angle.dtype is torch.float32
    assert code.q_angle.abs().max() <= 3.1416
    assert (off <= 2**-24 * (truth.q_angle.abs() + 4)).all()
    assert truth.q_angle.max() == 1_000_000


def test_devices_without_float64_do_without(monkeypatch):
    assert rotary.has_float64("cpu")
    assert not rotary.has_float64("mps") or torch.backends.mps.is_available()
    monkeypatch.setattr(rotary, "has_float64", lambda kind: False)
    assert rw.create("rope", head_dim=4)(torch.tensor([1000])).q_angle.max() == 1000


def test_gradients_pass_whole_turns():
    encoding = rw.create("rope", head_dim=4, learned=True)
    places = torch.tensor([[1000.0], [-77.0]], requires_grad=True)
    (encoding(places).q_angle * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    torch.testing.assert_close(encoding.frequency.grad, torch.tensor([[1000 - 3 * 77.0, 2 * 1000 - 4 * 77.0]]))
    torch.testing.assert_close(places.grad, torch.tensor([[1 + 2 * 0.01], [3 + 4 * 0.01]]))

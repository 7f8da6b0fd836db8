"""What generators tell, against attention scores that are computed without them."""

import pytest
import torch

import ropewalk as rw
from ropewalk import theory
from ropewalk.testing.case import points, ready

COMMUTING = {
    "mixed": {},
    "axial": {},
    "uniform": {},
    "golden": {},
    "string-cayley": {},
    "string-circulant": {},
    "comrope-ap": {"block": 3},
    "comrope-ld": {"block": 4},
}
SHAPES = {
    "plain": {"head_dim": 12, "heads": 2},
    "grouped-layers": {"head_dim": 13, "heads": 4, "kv_heads": 2, "layers": 2},
}


def made(name, shape, **options):
    return ready(rw.create(name, axes=2, **SHAPES[shape], **options), torch.float64)


def scores(encoding, q, k, p):
    code = encoding(p)
    code = code if code.layers is None else code[1]
    q, k = code.qk(q, k)
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT


def changed(x, basis):
    """Uᵀ x, the basis of a key head for all heads of its group."""
    return x @ basis.repeat_interleave(x.shape[1] // basis.shape[0], 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", COMMUTING)
def test_scores_in_the_basis_of_the_planes_are_those_of_mixed(name, shape):
    encoding = made(name, shape, **COMMUTING[name])
    mixed, basis = theory.fold(encoding)
    basis = basis if encoding.layers is None else basis[1]
    p = points(encoding, 7)
    heads = encoding.heads, encoding.kv_heads or encoding.heads
    q, k = (torch.randn(2, h, 7, encoding.head_dim, dtype=torch.float64) for h in heads)
    exact = scores(encoding, q, k, p)
    torch.testing.assert_close(scores(mixed, changed(q, basis), changed(k, basis), p), exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_does_not_commute_is_refused_with_its_number(shape):
    encoding = made("liere", shape, block=4)
    assert theory.commutators(encoding).max() > 0.01
    with pytest.raises(ValueError, match=r"do not commute, by 0\.\d+ of their size"):
        theory.fold(encoding)


def test_generators_that_vanish_have_no_planes():
    encoding = made("comrope-ld", "plain", std=0.0, block=4)
    torch.nn.init.zeros_(encoding.matrix)
    mixed, basis = theory.fold(encoding)
    assert not mixed.wave.any()
    torch.testing.assert_close(basis.mT @ basis, torch.eye(12, dtype=torch.float64).expand_as(basis))


def test_without_generators_there_is_nothing_to_fold():
    with pytest.raises(TypeError, match="alibi has no generators"):
        theory.fold(rw.create("alibi", head_dim=12, heads=2))

"""Exponentials of skew-symmetric matrices and their derivative, against float64."""

import math

import pytest
import torch

from tests.support.float64_reference import normal
from tests.support.kernel_reference import DEVICE, kernel

pytest.importorskip("triton", reason="kernels are written in Triton, which is not installed")
pytestmark = pytest.mark.usefixtures("unwritten_is_nan")

SIZES = (3, 4, 5, 7, 8, 12, 16, 17, 24, 32, 33, 48, 64)


def skew(count, size, norm, seed=0):
    """Random matrices of this spectral norm, in float32."""
    free = normal(count, size, size, seed=seed)
    free = free - free.mT
    return (free * norm / torch.linalg.matrix_norm(free, ord=2)[:, None, None]).float()


def exponential(a):
    return kernel("expm").expm_fused(a.to(DEVICE)).cpu()


def derivative(grad, a):
    rotation = kernel("expm").expm_fused(a.to(DEVICE))
    return kernel("expm").expm_back(grad.to(DEVICE), a.to(DEVICE), rotation).cpu()


def assert_both_ways(a, seed=5):
    """Errors stay below what rounding A by a few units in the last place would do, and rotations are orthogonal."""
    norm = max(1.0, torch.linalg.matrix_norm(a.double()).max().item() / math.sqrt(2))
    exact = a.double().requires_grad_()
    rotation = torch.linalg.matrix_exp(exact)
    grad = normal(*a.shape, seed=seed).float()
    (expected,) = torch.autograd.grad(rotation, exact, grad.double())
    found, back = exponential(a), derivative(grad, a)
    tolerance = 12 * 2**-23 * norm
    torch.testing.assert_close(found.double(), rotation.detach(), rtol=0, atol=tolerance)
    identity = torch.eye(a.shape[-1], dtype=torch.float64).expand_as(rotation)
    torch.testing.assert_close(found.double() @ found.double().mT, identity, rtol=0, atol=tolerance)
    largest = torch.linalg.matrix_norm(grad.double()).max().item()
    torch.testing.assert_close(back.double(), expected, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize("size", SIZES)
def test_sizes(size):
    assert_both_ways(skew(1 + 2 * (16 // size + 1), size, 2.0))


@pytest.mark.parametrize("norm", [1e-3, 0.1, 0.49, 0.51, 1.0, math.pi, 10.0, 130.0])
@pytest.mark.parametrize("size", [3, 8, 33])
def test_norms(size, norm):
    assert_both_ways(skew(3, size, norm))


def test_the_series_is_long_enough_where_nothing_is_squared():
    a = skew(5, 3, 0.49)
    torch.testing.assert_close(exponential(a).double(), torch.linalg.matrix_exp(a.double()), rtol=0, atol=2 * 2**-23)


@pytest.mark.parametrize("size", [3, 8, 17])
def test_zero(size):
    zero = torch.zeros(3, size, size)
    assert torch.equal(exponential(zero), torch.eye(size).expand_as(zero))
    grad = normal(3, size, size, seed=1).float()
    torch.testing.assert_close(derivative(grad, zero), grad, rtol=1e-6, atol=1e-6)


def test_repeated_eigenvalues():
    plane = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    assert_both_ways(torch.stack([torch.block_diag(*[angle * plane] * 4) for angle in (0.7, math.pi, 2 * math.pi)]))
    assert_both_ways(torch.block_diag(2.0 * plane, torch.zeros(6, 6))[None])


def test_a_long_matrix_beside_short_ones():
    """Matrices share a tile: the exponential of one must not lose what is left of another."""
    near, far = skew(2, 3, 0.5), skew(2, 3, 130.0)
    found = exponential(torch.cat([near, far]))[:2]
    torch.testing.assert_close(found.double(), torch.linalg.matrix_exp(near.double()), rtol=0, atol=6 * 2**-23)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits(dtype):
    a = skew(3, 5, 2.0).to(dtype)
    found = exponential(a)
    assert found.dtype == dtype
    unit = torch.finfo(dtype).eps * (1 if dtype is torch.bfloat16 and DEVICE == "cpu" else 0.5)  # interpreted, it truncates
    torch.testing.assert_close(found.double(), torch.linalg.matrix_exp(a.double()), rtol=unit, atol=1e-6)


def test_any_strides_and_batch():
    a = skew(6, 5, 2.0).unflatten(0, (2, 3))
    expected = exponential(a)
    assert expected.shape == a.shape
    for view in (a.transpose(0, 1).contiguous().transpose(0, 1), -a.mT, (-a.mT.contiguous()).mT.mT):
        assert torch.equal(exponential(view), expected)
    assert torch.equal(exponential(a[:1].expand(4, 3, 5, 5)), expected[:1].expand(4, 3, 5, 5))
    grad = normal(*a.shape, seed=3).float()
    assert torch.equal(derivative(grad.mT.contiguous().mT, a), derivative(grad, a))


def test_no_matrices():
    none = torch.zeros(2, 0, 5, 5)
    assert exponential(none).shape == derivative(none, none).shape == none.shape


def test_the_same_bits_in_every_run():
    a, grad = skew(5, 12, 3.0), normal(5, 12, 12, seed=1).float()
    assert torch.equal(exponential(a), exponential(a))
    assert torch.equal(derivative(grad, a), derivative(grad, a))

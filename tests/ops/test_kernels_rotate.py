"""Pairs: sines and cosines of large angles, to the last bits of float32."""

import pytest
import torch

from tests.support.float64_reference import normal
from tests.support.kernel_reference import DEVICE, Kind, Side, check

pytest.importorskip("triton", reason="kernels are written in Triton, which is not installed")
pytestmark = pytest.mark.usefixtures("unwritten_is_nan")


@pytest.mark.parametrize("largest", [1e-3, 30.0, 1e4, 1e6])
@pytest.mark.parametrize("interleaved", [True, False], ids=["interleaved", "half-split"])
def test_sines_and_cosines(interleaved, largest):
    angle = largest * (1 - 0.1 * normal(1, 1, 64, seed=0).abs()).to(DEVICE, torch.float32)
    x = torch.zeros(1, 1, 1, 128, device=DEVICE)
    first = slice(0, None, 2) if interleaved else slice(0, 64)
    second = slice(1, None, 2) if interleaved else slice(64, None)
    x[..., first] = 1
    (y,) = Kind("rotate", 2, interleaved=interleaved).forward([x], [angle], [None], [0])
    exact = angle.cpu().double()[0, 0]
    torch.testing.assert_close(y[0, 0, 0, first].cpu().double(), exact.cos(), rtol=2**-21, atol=2**-23)
    torch.testing.assert_close(y[0, 0, 0, second].cpu().double(), exact.sin(), rtol=2**-21, atol=2**-23)


@pytest.mark.parametrize("op", ["rotate", "sphere"])
def test_large_angles_both_ways(op):
    check(Kind(op, 2 if op == "rotate" else 3, axes=3), 2, [Side(2, 1, 2, 1)], scale=3e5)


def test_a_table_of_sixteen_bits_gets_gradients_of_sixteen_bits():
    kind, x = Kind("rotate", 2), normal(2, 2, 3, 4, seed=0, dtype=torch.float32).to(DEVICE)
    angle = normal(1, 3, 2, seed=1, dtype=torch.bfloat16).to(DEVICE)
    (y,), (wide,) = (kind.forward([x], [table], [None], [0]) for table in (angle, angle.float()))
    assert torch.equal(y, wide)
    assert [t.dtype for t in kind.back([x], [x], [y], [angle], [None], [0])] == [torch.float32, torch.bfloat16]


def test_wide_heads():
    check(Kind("rotate", 2, interleaved=False), 1, [Side(1, 1, 3, 1)], width=1100)

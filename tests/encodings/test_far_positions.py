"""A million neighbouring positions stay distinct in a bfloat16 model."""

import pytest
import torch

import ropewalk as rw

MILLION = 1_000_000


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["rope", "axial", "mixed", "uniform", "spherical"])
def test_a_million_neighbours_differ(name, axis):
    torch.manual_seed(0)
    encoding = rw.create(name, head_dim=12).bfloat16()
    axis = axis if encoding.axes > 1 else 0
    positions = torch.zeros(MILLION + 1, encoding.axes)
    positions[:, axis] = torch.arange(MILLION + 1)
    q = torch.randn(12).bfloat16().expand(1, 1, MILLION + 1, 12)
    with torch.no_grad():
        turned = encoding(positions).q(q)[0, 0]
    alike = (turned[1:] == turned[:-1]).all(-1).sum().item()
    assert turned.dtype is torch.bfloat16
    assert alike == 0, f"{alike} of {MILLION} neighbours look alike"

"""What was compiled is found again by all that it depends on, and by nothing that it does not."""

import importlib

import pytest
import torch

pytest.importorskip("triton", reason="kernels are written in Triton, which is not installed")


class Compiled:
    """What Triton gives back: it can be launched again."""

    def __init__(self, log):
        self.log = log

    def __getitem__(self, grid):
        return lambda *arguments: self.log.append(("again", grid, arguments))


class Kernel:
    """A kernel that is launched and says so."""

    def __init__(self):
        self.log = []

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.log.append(("first", grid, arguments)) or Compiled(self.log)


@pytest.fixture
def rotate(monkeypatch):
    module = importlib.import_module("ropewalk.ops.rotate.kernel")
    monkeypatch.setattr(module, "turn_kernel", Kernel())
    monkeypatch.setattr(importlib.import_module("ropewalk.ops.launch"), "PLANS", {})
    return module


def call(module, q, k, angle, *, gains=(None, None), interleaved=True, sections=(), prefixes=(0, 0)):
    module.rotate_fused([q, k], [angle, angle], list(gains), interleaved, list(sections), list(prefixes))
    return module.turn_kernel.log[-1]


def test_the_same_shapes_are_compiled_once(rotate):
    for i in range(3):
        q, k, angle = torch.randn(2, 4, 5, 12), torch.randn(2, 2, 5, 12), torch.randn(2, 5, 6)
        how, grid, arguments = call(rotate, q, k, angle)
        assert how == ("again" if i else "first")
        assert len(grid) == 3
        found = [arguments[0][0], arguments[1][0], arguments[0][3], arguments[1][3]]  # this call's, not the first one's
        assert [p.data_ptr() if isinstance(p, torch.Tensor) else p for p in found] == [
            t.data_ptr() for t in (q, k, angle, angle)
        ]


ONE = {"q": torch.zeros(2, 4, 5, 12), "k": torch.zeros(2, 2, 5, 12), "angle": torch.zeros(2, 5, 6)}
OTHERS = {
    "batch": {"q": torch.zeros(3, 4, 5, 12), "k": torch.zeros(3, 2, 5, 12)},
    "heads": {"q": torch.zeros(2, 6, 5, 12)},
    "tokens": {"q": torch.zeros(2, 4, 6, 12), "k": torch.zeros(2, 2, 6, 12), "angle": torch.zeros(2, 6, 6)},
    "pairs": {"angle": torch.zeros(2, 5, 5)},
    "dtype": {"q": ONE["q"].half(), "k": ONE["k"].half()},
    "strides": {"q": torch.zeros(2, 5, 4, 12).transpose(1, 2)},
    "strides of the table": {"angle": torch.zeros(5, 2, 6).transpose(0, 1)},
    "alignment": {"q": torch.zeros(2 * 4 * 5 * 12 + 1)[1:].view(2, 4, 5, 12)},
    "a table for each sample": {"angle": torch.zeros(2, 2, 5, 6)},
    "gains": {"gains": [torch.ones(2, 5, 6)] * 2},
    "layout": {"interleaved": False},
    "sections": {"interleaved": False, "sections": (2, 4)},
    "prefix": {"prefixes": (1, 1), "angle": torch.zeros(2, 4, 6)},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_what_makes_a_difference_is_compiled_anew(rotate, changes):
    assert call(rotate, **ONE)[0] == "first"
    assert call(rotate, **{**ONE, **changes})[0] == "first"
    assert call(rotate, **ONE)[0] == "again"
    assert call(rotate, **{**ONE, **changes})[0] == "again"


def test_plans_do_not_grow_without_end(rotate, monkeypatch):
    launch = importlib.import_module("ropewalk.ops.launch")
    monkeypatch.setattr(launch, "MOST_PLANS", 4)
    for n in range(1, 20):
        call(rotate, torch.zeros(1, 2, n, 12), torch.zeros(1, 2, n, 12), torch.zeros(2, n, 6))
        assert len(launch.PLANS) <= 4


def test_nothing_is_launched_for_nothing(rotate):
    rotate.rotate_fused([torch.zeros(0, 2, 5, 12)], [torch.zeros(2, 5, 6)], [None], True, [], [0])
    assert rotate.turn_kernel.log == []

"""LAMB against timm's, step by step, and against its formula."""

import copy
import math

import pytest
import torch
from timm.optim import Lamb as Theirs

from ropewalk.lab.lamb import Lamb


def weights(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 5), (7,), (2, 3, 4), ()]
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in shapes]


@pytest.mark.parametrize("decay", [0.0, 0.05])
def test_steps_are_timm_s(decay):
    ours, theirs = weights(), weights()
    mine = Lamb(ours, lr=0.01, weight_decay=decay)
    other = Theirs(theirs, lr=0.01, weight_decay=decay, max_grad_norm=None, eps=1e-6)
    for step in range(5):
        for each in (ours, theirs):
            for number, weight in enumerate(each):
                weight.grad = torch.full_like(weight, 0.1 * (number + 1)) * (step + 1) + weight.detach() ** 2
        mine.step()
        other.step()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_the_first_step_is_as_long_as_the_weights():
    (weight,) = [torch.nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64))]
    weight.grad = torch.tensor([1.0, -2.0], dtype=torch.float64)
    Lamb([weight], lr=0.1, weight_decay=0.5).step()
    update = torch.tensor([1 / (1 + 1e-6) + 1.5, -2 / (2 + 1e-6) + 2.0], dtype=torch.float64)
    wanted = torch.tensor([3.0, 4.0], dtype=torch.float64) - 0.1 * 5 / update.norm() * update
    torch.testing.assert_close(weight.detach(), wanted)


def test_weights_without_a_gradient_or_length_stay_or_move_as_adam_moves_them():
    still, zero = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.zeros(2))
    zero.grad = torch.tensor([1.0, -1.0])
    Lamb([still, zero], lr=0.1, weight_decay=0.1).step()
    assert torch.equal(still, torch.ones(2))
    torch.testing.assert_close(zero.detach(), torch.tensor([-0.1, 0.1]), rtol=0, atol=1e-6)


def test_states_come_back():
    ours = weights()
    mine = Lamb(ours, lr=0.01, weight_decay=0.1)
    for weight in ours:
        weight.grad = torch.ones_like(weight)
    mine.step()
    state, later = copy.deepcopy(mine.state_dict()), [weight.detach().clone() for weight in ours]
    mine.step()
    wanted = [weight.detach().clone() for weight in ours]
    for weight, value in zip(ours, later, strict=True):
        weight.data.copy_(value)
    fresh = Lamb(ours, lr=0.01, weight_decay=0.1)
    fresh.load_state_dict(state)
    fresh.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True))


def test_few_launches_however_many_tensors():
    def launches(count):
        ours = [torch.nn.Parameter(torch.ones(3)) for _ in range(count)]
        for weight in ours:
            weight.grad = torch.ones(3)
        mine = Lamb(ours, lr=0.01, weight_decay=0.1)
        mine.step()
        calls = []
        with Counting(calls):
            mine.step()
        return len(calls)

    assert launches(200) == launches(3)


class Counting(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts operations."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("wrong", [{"lr": -1.0}, {"eps": 0.0}, {"betas": (0.9, 1.0)}, {"weight_decay": -0.1}])
def test_ranges(wrong):
    with pytest.raises(ValueError, match="must be in their ranges"):
        Lamb(weights(), **wrong)


def test_a_closure_gives_its_loss():
    (weight,) = [torch.nn.Parameter(torch.tensor(2.0))]
    mine = Lamb([weight], lr=0.1)

    def closure():
        mine.zero_grad()
        loss = weight**2
        loss.backward()
        return loss

    assert math.isclose(mine.step(closure).item(), 4.0)
    assert weight < 2

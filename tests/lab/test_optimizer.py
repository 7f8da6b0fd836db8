"""Optimizers: LAMB is the paper's, and a state that is stored and restored gives the same steps."""

import json
from dataclasses import replace

import pytest
import timm.optim
import torch

from ropewalk.lab import optimizer as module
from ropewalk.lab.config import Config
from ropewalk.lab.errors import CommandError
from ropewalk.lab.optimizer import (
    build_optimizer,
    compute_learning_rate,
    describe_optimizer,
    restore_optimizer,
    set_learning_rate,
)

SHAPES = {"matrix": (6, 5), "cube": (2, 3, 4), "bias": (7,), "zero": (4,), "scalar": ()}
DECAYED = ("matrix", "cube", "zero")
LAMB = Config(optimiser="lamb", weight_decay=0.05)


class Weights(torch.nn.Module):
    """Parameters of several shapes, of which two are spared weight decay and one begins at zero."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name, shape in SHAPES.items():
            value = torch.randn(shape, generator=generator, dtype=torch.float64) * (name != "zero")
            self.register_parameter(name, torch.nn.Parameter(value.to(dtype)))

    def no_weight_decay(self):
        return SHAPES.keys() - set(DECAYED)


def draw_gradients(step):
    generator = torch.Generator().manual_seed(1 + step)
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in SHAPES.items()}


def take_steps(model, optimizer, steps):
    for step in steps:
        for group in optimizer.param_groups:
            group["lr"] = 0.02 / (1 + step)
        for name, gradient in draw_gradients(step).items():
            model.get_parameter(name).grad = gradient.to(model.get_parameter(name).dtype)
        optimizer.step()


def follow_the_paper(steps, decay=0.05):
    """Algorithm 2 of arXiv 1904.00962, tensor by tensor, in float64; tensors without weight decay take Adam's step."""
    found = {}
    for name, weight in ((name, value.detach().clone()) for name, value in Weights().named_parameters()):
        mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
        for step in steps:
            gradient = draw_gradients(step)[name]
            mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient * gradient
            ratio = (mean / (1 - 0.9 ** (step + 1))) / ((square / (1 - 0.999 ** (step + 1))).sqrt() + 1e-6)
            if name in DECAYED:
                ratio = ratio + decay * weight
                if weight.norm() > 0:
                    ratio = ratio * weight.norm() / ratio.norm()
            weight = weight - 0.02 / (1 + step) * ratio
        found[name] = weight
    return found


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("foreach", [None, True])
def test_lamb_is_the_papers(dtype, close, foreach):
    model = Weights(dtype)
    optimizer = build_optimizer(LAMB, model)
    for group in optimizer.param_groups:
        group["foreach"] = foreach  # as on a GPU
    take_steps(model, optimizer, range(50))
    for name, wanted in follow_the_paper(range(50)).items():
        torch.testing.assert_close(model.get_parameter(name).double(), wanted, rtol=close, atol=close)


def test_lamb_does_not_clip_gradients():
    """Gradients of norm 100, which timm clips to 1 by default: moments differ by as much."""
    model = Weights()
    optimizer = build_optimizer(LAMB, model)
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, 100.0)
    optimizer.step()
    assert optimizer.state[model.matrix]["exp_avg"].flatten()[0].item() == pytest.approx(10.0)


@pytest.mark.parametrize("optimiser", ["adamw", "lamb"])
def test_a_restored_optimizer_takes_the_same_steps(optimiser):
    config = replace(LAMB, optimiser=optimiser)
    model, other = Weights(), Weights()
    optimizer = build_optimizer(config, model)
    take_steps(model, optimizer, range(3))
    other.load_state_dict(model.state_dict())
    again = build_optimizer(config, other)
    tensors, groups = describe_optimizer(optimizer)
    restore_optimizer(again, {name: value.clone() for name, value in tensors.items()}, json.loads(json.dumps(groups)))
    take_steps(model, optimizer, range(3, 6))
    take_steps(other, again, range(3, 6))
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("optimiser", ["adamw", "lamb"])
def test_hyperparameters_are_those_that_the_run_began_with(optimiser):
    """Not those of the code that resumes it, whose defaults may be others."""
    model = Weights()
    optimizer = build_optimizer(replace(LAMB, optimiser=optimiser), model)
    optimizer.param_groups[0] |= {"betas": (0.8, 0.99), "eps": 1e-3, "weight_decay": 0.2}
    tensors, groups = describe_optimizer(optimizer)
    assert groups[0]["betas"] == [0.8, 0.99]
    assert [group["weight_decay"] for group in groups] == [0.2, 0.0]
    assert not {"params", "foreach", "fused", "capturable"} & groups[0].keys()
    again = build_optimizer(replace(LAMB, optimiser=optimiser), model)
    restore_optimizer(again, tensors, groups)
    first = again.param_groups[0]
    assert (first["betas"], first["eps"], first["weight_decay"]) == ((0.8, 0.99), 1e-3, 0.2)
    assert again.param_groups[1]["betas"] == (0.9, 0.999)


class Encoded(Weights):
    """Weights of which a matrix and a bias are those of an encoding."""

    encoding: torch.nn.Module

    def __init__(self):
        super().__init__()
        self.encoding = torch.nn.Module()
        self.encoding.matrix, self.encoding.bias = self.matrix, self.bias


@pytest.mark.parametrize("optimiser", ["adamw", "lamb"])
def test_parameters_of_the_encoding_have_a_rate_of_their_own(optimiser):
    """They move as in a run with the higher rate, and all others as in one without it, also after a resumption."""
    config = replace(LAMB, optimiser=optimiser)

    def train(rate, encoding_rate=None, stop=None):
        model = Encoded()
        with_rate = replace(config, encoding_rate=encoding_rate)
        optimizer = build_optimizer(with_rate, model)
        for step in range(4):
            if step == stop:
                tensors, groups = describe_optimizer(optimizer)
                optimizer = build_optimizer(with_rate, model)
                restore_optimizer(optimizer, tensors, json.loads(json.dumps(groups)))
            set_learning_rate(optimizer, rate)
            generator = torch.Generator().manual_seed(step)
            for weight in model.parameters():
                # Gradients do not depend on weights, so that parameters cannot influence one another.
                weight.grad = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            optimizer.step()
        return dict(model.named_parameters())

    slow, fast = train(0.01), train(0.08)
    for found in (train(0.01, 8.0), train(0.01, 8.0, stop=2)):
        for name in SHAPES:
            torch.testing.assert_close(found[name], (fast if name in ("matrix", "bias") else slow)[name])
    assert (slow["matrix"] - fast["matrix"]).abs().max() > 0.05
    assert replace(config, encoding_rate=1.0).name == config.name


def test_lamb_without_timm_says_what_to_install(monkeypatch):
    def fail(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(module.importlib, "import_module", fail)
    with pytest.raises(CommandError, match=r"lamb.*pip install 'ropewalk\[lab\]'"):
        build_optimizer(LAMB, Weights())
    assert isinstance(build_optimizer(replace(LAMB, optimiser="adamw"), Weights()), torch.optim.AdamW)


def test_lamb_is_timms():
    assert isinstance(build_optimizer(LAMB, Weights()), timm.optim.Lamb)


def test_the_rate_rises_and_falls():
    rates = [compute_learning_rate(step, highest=2.0, warmup=4, steps=12) for step in range(13)]
    assert rates[:5] == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])
    assert rates[8] == pytest.approx(1.0)
    assert rates[12] == pytest.approx(0.0)
    assert rates[4:] == sorted(rates[4:], reverse=True)

"""Inductor, once for each kind of code: what the contract checks with a cheap backend, compiled for real."""

import pytest
import torch

import ropewalk as rw
from ropewalk.testing.case import Logits, points

KINDS = {
    rw.Code: ("none", {"axes": 2}),
    rw.Offset: ("learned-ape", {"size": (3, 5)}),
    rw.Rotation: ("mixed", {"layers": 2}),
    rw.Sphere: ("spherical", {"learned": True}),
    rw.Turn: ("liere", {"block": 4}),
    rw.Bias: ("t5-bias", {}),
    rw.Chain: ("string-cayley", {}),
    rw.ContentBias: ("transformer-xl", {}),
}


def test_every_kind_is_here():
    made = {type(kind(points(kind, 2))) for name in rw.names() for kind in rw.encodings.REGISTRY[name].examples()}
    assert made == set(KINDS)


# The contract compiles all kinds with cheaper backends.
@pytest.mark.exhaustive("programs", kept=lambda kind: kind is rw.Rotation)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_inductor(kind):
    torch.manual_seed(0)
    torch.compiler.reset()
    name, options = KINDS[kind]
    logits = Logits(rw.create(name, head_dim=12, heads=2, **options), torch.float32)
    compiled = torch.compile(logits, fullgraph=True)
    for n in (6, 9):
        p = points(logits.encoding, n).float()
        x, y = logits.tokens(n).requires_grad_(), logits.tokens(n, seed=4)
        eager, fast = logits(x, y, p), compiled(x, y, p)
        torch.testing.assert_close(fast, eager, rtol=1e-5, atol=1e-5)
        inputs = [x, *logits.parameters()]
        expected = torch.autograd.grad(eager.square().sum(), inputs)
        torch.testing.assert_close(torch.autograd.grad(fast.square().sum(), inputs), expected, rtol=1e-4, atol=1e-4)

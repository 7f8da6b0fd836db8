"""The short way for few tokens on a CPU: the same rotation, taken only where nothing else is asked for."""

import pytest
import torch

import ropewalk as rw
from ropewalk import ops
from ropewalk.ops.rotate import reference
from tests.support.float64_reference import normal

OPTIONS = {"interleaved": False, "prefixes": [0, 0]}


def turned(x, angle):
    """By the definition, in float64."""
    a, b = x.double().chunk(2, -1)
    cos, sin = angle.double().cos(), angle.double().sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


@pytest.fixture
def taken(monkeypatch):
    """Counts how often the short way was taken."""
    calls, short = [], reference.few_halves
    monkeypatch.setattr(reference, "few_halves", lambda *given: calls.append(1) or short(*given))
    return calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("batch", "tokens"), [(1, 1), (3, 1), (2, 5), (0, 1), (1, 63)])
def test_it_turns_as_the_definition_says(batch, tokens, dtype, taken):
    q, k = (normal(batch, tokens, heads, 16, seed=heads).to(dtype).transpose(1, 2) for heads in (4, 2))
    angle = normal(1, tokens, 8, seed=0).float() * 9
    q_turned, k_turned = ops.rotate([q, k], [angle, angle], [None, None], **OPTIONS)
    assert taken == [1]
    for got, x in ((q_turned, q), (k_turned, k)):
        assert (got.dtype, got.shape) == (dtype, x.shape)
        near = {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float64: 1e-6}[dtype]
        torch.testing.assert_close(got.double(), turned(x, angle), rtol=near, atol=near)


def test_each_sample_may_have_angles_of_its_own(taken):
    q, k, angle = normal(3, 4, 2, 16, seed=0), normal(3, 2, 2, 16, seed=1), normal(3, 1, 2, 8, seed=2)
    got = ops.rotate([q, k], [angle, angle], [None, None], **OPTIONS)
    assert taken == [1]
    for one, x in zip(got, (q, k), strict=True):
        torch.testing.assert_close(one, turned(x, angle), rtol=0, atol=1e-12)


def test_alone_and_together_are_the_same(taken):
    q, k, angle = normal(2, 4, 3, 16, seed=0), normal(2, 2, 3, 16, seed=1), normal(1, 3, 8, seed=2)
    both = ops.rotate([q, k], [angle, angle], [None, None], **OPTIONS)
    for x, together in zip((q, k), both, strict=True):
        (alone,) = ops.rotate([x], [angle], [None], interleaved=False, prefixes=[0])
        assert torch.equal(alone, together)
    assert taken == [1, 1, 1]


def test_angles_that_change_are_seen(taken):
    q, k, angle = normal(1, 2, 1, 8, seed=0), normal(1, 2, 1, 8, seed=1), normal(1, 1, 4, seed=2)
    ops.rotate([q, k], [angle, angle], [None, None], **OPTIONS)
    angle.add_(1.0)
    torch.testing.assert_close(ops.rotate([q, k], [angle, angle], [None, None], **OPTIONS)[0], turned(q, angle))
    assert taken == [1, 1]


def others():
    """Calls for which the short way is not made, by what is different."""
    q, k, angle = normal(1, 4, 3, 16, seed=0), normal(1, 2, 3, 16, seed=1), normal(1, 3, 8, seed=2)
    plain = {"xs": [q, k], "angles": [angle, angle], "gains": [None, None], **OPTIONS}
    large = [x.repeat(1, 1, 1, 1).expand(600, -1, -1, -1) for x in (q, k)]
    return {
        "pairs side by side": plain | {"interleaved": True},
        "a gain": plain | {"gains": [torch.ones(1, 3, 8)] * 2},
        "a gain for one": plain | {"gains": [None, torch.ones(1, 3, 8)]},
        "a prefix": plain | {"angles": [angle[:, 1:]] * 2, "prefixes": [1, 1]},
        "channels that stay": plain | {"angles": [angle[..., :5]] * 2},
        "angles of each head": plain | {"angles": [angle.repeat(2, 1, 1)] * 2},
        "angles of k alone": plain | {"angles": [angle, angle + 1]},
        "what learns": plain | {"xs": [q.clone().requires_grad_(), k]},
        "angles that learn": plain | {"angles": [angle.clone().requires_grad_()] * 2},
        "many": plain | {"xs": large},
        "other samples": plain | {"xs": [q.expand(2, -1, -1, -1), k]},
        "another precision": plain | {"xs": [q, k.float()]},
    }


@pytest.mark.parametrize("what", others())
def test_else_it_is_not_taken(what, taken):
    given = others()[what]
    ops.rotate(given.pop("xs"), given.pop("angles"), given.pop("gains"), **given)
    assert taken == []


@pytest.mark.parametrize("short", ["angles", "gains", "prefixes"])
def test_lists_must_have_the_same_length(short):
    x, angle = normal(1, 2, 3, 16, seed=0), normal(1, 3, 8, seed=1)
    given = {"angles": [angle, angle], "gains": [None, None], "prefixes": [0, 0]}
    given[short] = given[short][:1]
    with pytest.raises(ValueError, match="zip"):
        ops.rotate([x, x], given["angles"], given["gains"], interleaved=False, prefixes=given["prefixes"])


def test_a_decoder_takes_it(taken):
    rope, q, k = (
        rw.create("rope", head_dim=16, heads=4, kv_heads=2),
        normal(2, 4, 1, 16, seed=0),
        normal(2, 2, 1, 16, seed=1),
    )
    with torch.no_grad():
        rope(torch.tensor([7])).qk(q, k)
    assert taken == [1]

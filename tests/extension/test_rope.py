"""RoPE with a rule of context extension: what it keeps, what it stretches, and for which length."""

import copy

import pytest
import torch

import ropewalk as rw
from ropewalk.extension.by_parts import ByParts, YaRN
from ropewalk.extension.longrope import LongRoPE
from ropewalk.extension.scaling import Linear, NTKAware
from ropewalk.testing import check_compile, check_export, checks_for
from tests.support.random_tensors import DOUBLE, normal

pytestmark = pytest.mark.usefixtures("drawn_anew")

BY = {"factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", **BY}
DYNAMIC = {"rope_type": "dynamic", **BY}
LONG = LongRoPE(short_factor=(1.0, 1.0, 1.5), long_factor=(1.0, 3.0, 9.0), **BY)
NEEDY = [DYNAMIC, LONG, YaRN(original_max_position_embeddings=64), {"rope_type": "linear", **BY, "factor": None}]


def rope(extension=None, head_dim=12, **options):
    return rw.create("rope", head_dim=head_dim, heads=2, extension=extension, **options)


def turned(x, places, frequency, factor):
    """q or k (B H N D), half-split pairs turned and stretched, in the open."""
    count = len(frequency)
    a, b, rest = x.split([count, count, x.shape[-1] - 2 * count], -1)
    angle = places[:, None] * frequency
    cos, sin = factor * angle.cos(), factor * angle.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


def logits(encoding, q, k, places):
    q, k = encoding(places).qk(q, k)
    return q @ k.mT


@pytest.mark.parametrize("rule", [Linear(factor=2.0), YaRN(**BY), LONG], ids=lambda rule: rule.rope_type)
def test_pairs_are_slowed_and_stretched(rule):
    made = rope(rule, rotary_dim=6, head_dim=11).double().at(200)
    law = torch.tensor([1e4 ** (-i / 3) for i in range(3)], dtype=torch.float64)
    frequency, factor = rule(law, base=1e4, rotary_dim=6, length=200)
    q, k, places = normal(1, 2, 7, 11), normal(1, 2, 5, 11), torch.arange(7).double()
    for ours, x, count in zip(made(torch.arange(7), torch.arange(5)).qk(q, k), (q, k), (7, 5), strict=True):
        torch.testing.assert_close(ours, turned(x, places[:count], frequency, factor), **DOUBLE)


def test_logits_get_the_square_of_the_factor():
    q, k, places = normal(1, 2, 5, 12), normal(1, 2, 5, 12), torch.arange(5)
    without = rope({**YARN, "attention_factor": 1.0}).double()
    ours = logits(rope({**YARN, "attention_factor": 1.5}).double(), q, k, places)
    torch.testing.assert_close(ours, 2.25 * logits(without, q, k, places), **DOUBLE)


def test_a_token_without_a_position_is_stretched_as_one_at_zero():
    made = rope(YARN, rotary_dim=10).double()
    q, k = normal(2, 2, 6, 12), normal(2, 2, 5, 12)
    places = torch.tensor([[0.0], [0.0], [3.0], [4.0], [9.0], [2.0]], dtype=torch.float64)
    with_prefix = made(places[2:], places[1:5]).prefixed(q=2, k=1)
    expected = made(places, torch.cat([torch.zeros(1, 1), places[1:5]]).double()).qk(q, k)
    for ours, theirs in zip(with_prefix.qk(q, k), expected, strict=True):
        torch.testing.assert_close(ours, theirs, **DOUBLE)
    in_place = [q.clone(), k.clone()]
    with_prefix.qk_(*in_place)
    both = torch.cat([q[:, :, :5], k, k], 1).transpose(1, 2)
    projected = made(places[2:5], places[1:4]).prefixed(q=2, k=2).qkv(both, 2)
    torch.testing.assert_close(in_place[1], expected[1], **DOUBLE)
    torch.testing.assert_close(projected[0], expected[0][:, :, :5], **DOUBLE)


def test_gains_are_stretched_too():
    fading = rw.create("xpos", head_dim=12, heads=2).double()(torch.arange(5), torch.arange(4))
    q, k = normal(1, 2, 5, 12), normal(1, 2, 4, 12)
    for ours, theirs in zip(fading.stretched(1.5).qk(q, k), fading.qk(q, k), strict=True):
        torch.testing.assert_close(ours, 1.5 * theirs, **DOUBLE)
    assert fading.stretched(1.0) is fading
    assert fading.stretched(1.5).stretched(2.0).prefix_gain == 3.0


def test_a_proportional_rope_has_the_law_of_its_whole_width():
    made = rope(NTKAware(factor=4.0), rotary_dim=6, proportional=True).double()
    law = [(1e4 * 4 ** (12 / 10)) ** (-2 * i / 12) if i < 3 else 0.0 for i in range(6)]
    torch.testing.assert_close(made.waves()[0, :, 0], torch.tensor(law, dtype=torch.float64), rtol=1e-13, atol=0)


def test_frequencies_are_rounded_once():
    made = rope(YARN, head_dim=128)
    exact = rope(YARN, head_dim=128).double().frequency
    assert torch.equal(made.frequency, exact.float())
    assert torch.equal(copy.deepcopy(made).double().frequency, exact)
    made.frequency.zero_()
    made.reset_parameters()
    assert torch.equal(made.frequency, exact.float())


def test_learned_frequencies_stay_those_of_training():
    made = rope(ByParts(**BY, beta_fast=8.0), learned=True)
    plain = rope(learned=True)
    assert torch.equal(made.frequency, plain.frequency)
    plain.load_state_dict(made.state_dict())
    ours, theirs = made.waves(), plain.waves()
    assert torch.equal(ours[:, 0], theirs[:, 0])
    torch.testing.assert_close(ours[:, -1], theirs[:, -1] / 4)
    ours.sum().backward()
    torch.testing.assert_close(made.frequency.grad[:, -1], torch.full((2,), 0.25))


@pytest.mark.parametrize("rule", NEEDY, ids=str)
@pytest.mark.parametrize("learned", [False, True])
def test_a_rule_that_needs_a_length_waits_for_it(rule, learned):
    waiting = rope(rule, head_dim=6, learned=learned)
    assert waiting.length is None
    assert "3 pairs" in repr(waiting)
    for call in (lambda: waiting(torch.arange(4)), waiting.waves):
        with pytest.raises(ValueError, match=r"length.*encoding.at\(length\)"):
            call()
    made = waiting.at(200)
    assert (made.length, waiting.length) == (200, None)
    assert torch.equal(made.waves(), rope(rule, head_dim=6, learned=learned, length=200).waves())
    assert not torch.equal(made.waves(), made.at(64).waves())
    assert torch.equal(made.at(64).at(200).waves(), made.waves())


@pytest.mark.parametrize("rule", NEEDY, ids=str)
def test_short_texts_are_as_in_training(rule):
    expected = rope(None, head_dim=6).waves().squeeze()
    if rule is LONG:
        expected = expected / torch.tensor(LONG.short_factor)
    for length in (1, 64):
        torch.testing.assert_close(rope(rule, head_dim=6).at(length).waves().squeeze(), expected, rtol=1e-7, atol=0)


def test_at_keeps_parameters_dtype_and_mode():
    made = rope(DYNAMIC, learned=True, layers=3, kv_heads=1).double().eval()
    with torch.no_grad():
        made.frequency.mul_(1.1)
    other = made.at(100)
    assert other.frequency is made.frequency
    assert (other.waves().dtype, other.training) == (torch.float64, False)
    assert other.config() == made.config() | {"length": 100}
    fixed = rope(DYNAMIC).double().at(100)
    assert fixed.frequency.dtype is torch.float64
    assert rope(DYNAMIC, length=50).to("meta").at(100).frequency.is_meta


def test_other_encodings_are_themselves_at_any_length():
    for made in (rope(), rope(YARN), rw.create("alibi", head_dim=12, heads=2)):
        assert made.at(100) is made
        with pytest.raises(ValueError, match=r"length.*got 0"):
            made.at(0)
    with pytest.raises(ValueError, match=r"length.*integer"):
        rope(DYNAMIC).at(2.5)


def test_a_chain_settles_the_length_of_its_parts():
    alibi = rw.create("alibi", head_dim=12, heads=2)
    made = rw.chain(rope(DYNAMIC, length=100), alibi).eval()
    other = made.at(300)
    assert (other.members[0].length, made.members[0].length) == (300, 100)
    assert other.members[1] is alibi
    assert not other.training
    plain = rw.chain(rope(), alibi)
    assert plain.at(300) is plain


def test_options_that_cannot_be_meant_are_refused():
    for extension in (None, YARN):
        with pytest.raises(ValueError, match=r"length.*got length=100"):
            rope(extension, length=100)
    with pytest.raises(ValueError, match=r"'yarn'.*original_max_position_embeddings"):
        rope("yarn")
    with pytest.raises(ValueError, match="3 pairs, got 6"):
        rope(LONG, length=100)


def test_the_repr_says_what_is_stretched():
    made = rope(YARN)
    assert ", extension={'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 64})  #" in repr(made)
    assert repr(made).endswith("# 1 axis, 6 pairs, half-split, q and k times 1.139")
    assert "times" not in repr(rope(Linear(factor=2.0)))
    made.extension["factor"] = 9.0
    assert made.extension["factor"] == 4.0


def test_what_is_stretched_is_not_folded():
    with pytest.raises(ValueError, match=r"rope.*RoPE-Mixed"):
        rw.fold(rope(YARN))
    mixed, _ = rw.fold(rope({**YARN, "attention_factor": 1.0}))
    torch.testing.assert_close(mixed.wave[0, :, 0], rope(YARN).frequency[0])


@pytest.mark.parametrize(
    "options",
    [
        {"extension": LONG, "head_dim": 6, "length": 50},
        {"extension": {"rope_type": "proportional", "partial_rotary_factor": 0.5}, "interleaved": True},
        {"extension": "llama3", "rotary_dim": 4, "proportional": True, "layers": 2},
    ],
    ids=str,
)
def test_the_contract(options):
    """But for compilers, which the examples of the class are shown to."""
    made = rope(**options)
    for check in checks_for(made):
        if check not in (check_compile, check_export):
            check(made)


def test_a_ramp_by_index_wants_the_frequencies_that_it_takes_for_granted():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    with pytest.raises(ValueError, match=r"ramp='turns', got scale=0\.5"):
        rw.create("rope", head_dim=12, scale=0.5, extension=yarn)
    found = rw.create("rope", head_dim=12, scale=0.5, extension={**yarn, "ramp": "turns"})
    assert found.frequency[0, 0] < 0.5


def test_q_and_k_share_what_stretches_them():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    code = rw.create("rope", head_dim=12, extension=yarn)(torch.arange(5))
    assert code.k_gain is code.q_gain
    both = rw.create("rope", head_dim=12, extension=yarn)(torch.arange(5), torch.arange(3))
    assert both.k_gain.shape == both.k_angle.shape

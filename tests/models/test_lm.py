"""The plain decoder: a cache gives the logits of the whole text, with every encoding of sequences, and longer texts."""

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend

import ropewalk as rw
from ropewalk.encodings import REGISTRY
from ropewalk.models import LM

LENGTH = 13
CLOSE = {"rtol": 0, "atol": 1e-12}
CHAIN = ("chain", {"parts": [{"name": "rope"}, {"name": "alibi"}]})
NAMES = [name for name, kind in REGISTRY.items() if kind.allowed_axes is None or 1 in kind.allowed_axes]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": LENGTH}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": LENGTH}

every_encoding = pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in NAMES), CHAIN], ids=str)


def small(encoding="rope", options=None, **more):
    """Two layers, heads of 12 in two groups, weights large enough that positions tell, and learned numbers moved."""
    torch.manual_seed(0)
    shape = {"width": 48, "depth": 2, "heads": 4, "kv_heads": 2, "hidden": 32, "length": LENGTH}
    lm = LM(11, encoding=encoding, options=options, **{**shape, **more}).double()
    with torch.no_grad():
        for name, weight in lm.named_parameters():
            if not name.endswith(("norm1.weight", "norm2.weight", "norm.weight")):
                weight.add_(0.2 * torch.randn_like(weight))
    return lm.eval()


def text(batch=2, length=LENGTH):
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(7))


@every_encoding
@torch.no_grad()
def test_a_cache_gives_the_logits_of_the_whole_text(name, options):
    lm, tokens = small(name, options), text()
    whole, cache = lm(tokens), lm.cache()
    pieces = [lm(piece, cache=cache) for piece in tokens.split([6, 1, 1, 4, 1], 1)]
    torch.testing.assert_close(torch.cat(pieces, 1), whole, **CLOSE)
    assert len(cache) == LENGTH
    torch.testing.assert_close(lm(tokens, last=3), whole[:, -3:], **CLOSE)


@every_encoding
@torch.no_grad()
def test_nobody_sees_what_comes_later_and_all_see_what_came(name, options):
    lm, tokens = small(name, options), text()
    other = tokens.clone()
    other[:, 5] = (other[:, 5] + 1) % 11
    change = (lm(tokens) - lm(other)).abs().amax((0, 2))
    assert change[:5].max() == 0
    assert change[5:].min() > 1e-6


@every_encoding
@torch.no_grad()
def test_positions_tell_unless_there_are_none(name, options):
    """The last token sees the first two in whatever order they come: without positions and in one layer, it cannot tell."""
    lm, tokens = small(name, options, depth=1), text()
    swapped = tokens[:, [1, 0, *range(2, LENGTH)]]
    assert not torch.equal(tokens, swapped)
    change = (lm(tokens, last=1) - lm(swapped, last=1)).abs().max()
    assert change < 1e-12 if name == "none" else change > 1e-6


@torch.no_grad()
def test_padding_is_not_seen():
    """Two texts of 9 and 13 tokens in one batch, the shorter one padded on the left."""
    lm, tokens = small(), text()
    short, long = tokens[:1, :9], tokens[1:]
    both = torch.cat([F.pad(short, (4, 0), value=10), long])
    seen = torch.arange(LENGTH) >= torch.tensor([[4], [0]])
    positions = torch.stack([(torch.arange(LENGTH) - 4).clamp(min=0), torch.arange(LENGTH)])
    found = lm(both, positions, mask=seen[:, None, None])
    torch.testing.assert_close(found[:1, 4:], lm(short), **CLOSE)
    torch.testing.assert_close(found[1:], lm(long), **CLOSE)
    cache = lm.cache()
    lm(both[:, :10], positions[:, :10], cache=cache, mask=seen[:, None, None, :10])
    rest = lm(both[:, 10:], positions[:, 10:], cache=cache, mask=seen[:, None, None])
    torch.testing.assert_close(rest, found[:, 10:], **CLOSE)


@every_encoding
def test_every_weight_gets_its_gradient(name, options):
    lm, tokens = small(name, options).train(), text()
    F.cross_entropy(lm(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    none = [name for name, weight in lm.named_parameters() if weight.grad is None or not weight.grad.isfinite().all()]
    assert none == []
    assert lm.blocks[0].qkv.weight.grad.abs().sum() > 0
    assert all(weight.grad.abs().sum() > 0 for weight in lm.encoding.parameters())


@pytest.mark.exhaustive("programs", kept=lambda name, **_: name == "rope")
@pytest.mark.parametrize(("name", "options"), [("rope", {"learned": True}), ("t5-bias", {}), CHAIN])
def test_it_compiles_as_one_graph_for_changing_lengths(name, options):
    lm, count = small(name, options), CompileCounterWithBackend("aot_eager")
    fast = torch.compile(lm, fullgraph=True, backend=count)
    for length in (13, 12, 11, 9):
        torch.testing.assert_close(fast(text(length=length)), lm(text(length=length)), **CLOSE)
    assert count.frame_count <= 2


@torch.no_grad()
def test_weights_start_from_their_seed_and_come_back():
    lm = LM(11, width=24, depth=2, heads=2, hidden=16)
    torch.manual_seed(3)
    lm.reset_parameters()
    before = {name: weight.clone() for name, weight in lm.named_parameters()}
    torch.manual_seed(3)
    lm.reset_parameters()
    assert all(torch.equal(before[name], weight) for name, weight in lm.named_parameters())
    assert lm.blocks[1].down.weight.std() == pytest.approx(0.01, rel=0.2)
    assert lm.embed.weight.std() == pytest.approx(0.02, rel=0.2)


def test_weight_decay_spares_encoding_embeddings_and_norms():
    lm = small("rope", {"learned": True})
    spared = lm.no_weight_decay()
    assert {"encoding.frequency", "embed.weight", "norm.weight", "blocks.0.norm1.weight"} <= spared
    assert not any(name.endswith(("qkv.weight", "down.weight", "head.weight")) for name in spared)


# Longer texts


@pytest.mark.parametrize("learned", [False, True])
@torch.no_grad()
def test_an_extended_model_is_one_made_with_the_rule(learned):
    lm = small("rope", {"learned": learned})
    longer = lm.extended(YARN)
    made = small("rope", {"learned": learned, "extension": YARN})
    made.load_state_dict(lm.state_dict())
    tokens = text(length=3 * LENGTH)
    assert torch.equal(longer(tokens), made(tokens))
    assert (longer(tokens) - lm(tokens)).abs().max() > 1e-4
    assert lm.encoding.rule is None


@pytest.mark.parametrize("learned", [False, True])
def test_an_extended_model_shares_its_weights(learned):
    lm = small("rope", {"learned": learned})
    longer = lm.extended(DYNAMIC, length=40)
    assert [id(weight) for weight in lm.parameters()] == [id(weight) for weight in longer.parameters()]
    F.cross_entropy(longer(text(length=40)).flatten(0, 1), text(length=40).flatten()).backward()
    assert all(weight.grad is not None for weight in lm.parameters())


@torch.no_grad()
def test_rules_that_go_by_the_length_go_by_that_of_the_text():
    lm = small("rope", {"extension": DYNAMIC})
    tokens = text()
    torch.testing.assert_close(lm(tokens), small()(tokens), **CLOSE)  # no longer than those of training
    far = text(length=40)
    assert torch.equal(lm.extended(length=40)(far), small().extended(DYNAMIC, length=40)(far))
    assert (lm.extended(length=40)(far) - small()(far)).abs().max() > 1e-4
    with pytest.raises(ValueError, match=r"13.*got.*position 39: lm\.extended"):
        lm(far)


def test_a_chain_has_the_rule_of_its_part():
    pair, plain = (
        small("chain", {"parts": [{"name": "rope", **own}, {"name": "alibi"}]}) for own in ({"extension": DYNAMIC}, {})
    )
    far = text(length=40)
    longer = pair.extended(length=40)
    assert torch.equal(longer(far), plain.extended(DYNAMIC, length=40)(far))
    assert (longer(far) - plain(far)).abs().max() > 1e-4
    waiting = rw.chain(rw.create("rope", head_dim=12, extension=DYNAMIC), rw.create("alibi", head_dim=12))
    assert torch.equal(
        waiting.at(40).members[0].frequency, rw.create("rope", head_dim=12, extension=DYNAMIC).at(40).frequency
    )


def test_a_rule_draws_nothing():
    lm = small("mixed")
    state = torch.random.get_rng_state()
    lm.extended("yarn", length=40)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_pass_that_fails_leaves_the_cache_as_it_was():
    lm, tokens = small("rope"), text()
    cache = lm.cache()
    lm(tokens[:, :6], cache=cache)
    for wrong in ({"mask": torch.ones(1, 1, 2, 3, dtype=torch.bool)}, {"positions": torch.arange(12).view(2, 6)}):
        with pytest.raises(ValueError, match=r"must"):
            lm(tokens[:, 6:12], cache=cache, **wrong)
        assert len(cache) == 6
    with pytest.raises(ValueError, match="tokens must be from 0"):
        lm(tokens[:, 6:] + 99, cache=cache)
    torch.testing.assert_close(lm(tokens[:, 6:], cache=cache), lm(tokens)[:, 6:], **CLOSE)


def test_rows_go_on_each_from_its_last_place():
    lm, tokens = small("rope"), text()
    places = torch.arange(6) + torch.tensor([[0], [3]])
    cache = lm.cache()
    lm(tokens[:2, :6], places, cache=cache)
    found = lm(tokens[:2, 6:8], cache=cache)
    wanted = lm(tokens[:2, :8], torch.arange(8) + torch.tensor([[0], [3]]))[:, 6:]
    torch.testing.assert_close(found, wanted, **CLOSE)
    assert torch.equal(cache.positions, torch.arange(8) + torch.tensor([[0], [3]]))


def test_no_logits_are_as_many_as_asked_for():
    lm, tokens = small("rope"), text()
    assert lm(tokens, last=0).shape[1] == 0
    assert torch.equal(lm(tokens, last=2), lm(tokens)[:, -2:])


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"alibi.*extension.*got 'yarn'"):
        small("alibi").extended("yarn")
    with pytest.raises(ValueError, match=r"heads.*width.*kv_heads.*heads, got 48, 4.*3"):
        small(kv_heads=3)
    with pytest.raises(ValueError, match=r"coordinates.*'index', got 'centre'"):
        small("mixed", {"coordinates": "centre"})
    assert rw.create("comrope-ld", head_dim=12).coordinates == "centre"
    assert small("comrope-ld", {"block": 4}).encoding.coordinates == "index"


@pytest.mark.exhaustive("programs", kept=lambda name: name == "alibi")
@pytest.mark.parametrize("name", ["rope", "alibi", "t5-bias"])
def test_one_graph_and_nothing_to_warn_of(name):
    lm, tokens = small(name).float(), text()
    torch.compiler.reset()
    compiled = torch.compile(lm, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens), lm(tokens))

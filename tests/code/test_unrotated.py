"""Tokens without a position anywhere: what they get is written out token by token, in float64."""

import pytest
import torch
from torch import Tensor

import ropewalk as rw
from tests.support.float64_reference import assert_close, assert_same, leaf, normal

BATCH, HEADS, KV_HEADS, DIM = 2, 4, 2, 6
MASK = torch.tensor([[True, False, False, True, False], [False, False, True, True, True]])


def rotated(x: Tensor, angle: Tensor, still: Tensor, gain: float = 1.0) -> Tensor:
    """x (B H N D) with interleaved pairs at angles (h N P), each h serving a group of heads; `still` (B N) are at zero."""
    samples = []
    for sample, mask in zip(x.double(), still.expand(len(x), -1), strict=True):
        heads = []
        for head, rows in enumerate(sample):
            own, tokens = angle[head * len(angle) // len(sample)].double(), []
            for token, row in enumerate(rows):
                t = own[token] * (0.0 if mask[token] else 1.0)
                a, b = row[0 : 2 * len(t) : 2], row[1 : 2 * len(t) : 2]
                pairs = torch.stack([a * t.cos() - b * t.sin(), a * t.sin() + b * t.cos()], -1).flatten()
                tokens.append(torch.cat([gain * pairs, row[2 * len(t) :]]))
            heads.append(torch.stack(tokens))
        samples.append(torch.stack(heads))
    return torch.stack(samples)


def rotation(angle: Tensor, k_angle: Tensor | None = None, **options) -> rw.Rotation:
    return rw.Rotation(head_dim=DIM, q_angle=angle, k_angle=k_angle, interleaved=True, **options)


@pytest.mark.parametrize("mask", [MASK, MASK[0], MASK[:1]], ids=["samples", "all", "one sample for all"])
@pytest.mark.parametrize("gain", [1.0, 1.25])
def test_masks(mask, gain):
    q, k = leaf(BATCH, HEADS, 5, DIM, seed=0), leaf(BATCH, KV_HEADS, 5, DIM, seed=1)
    angle = (3 * normal(KV_HEADS, 5, 2, seed=2)).requires_grad_()
    code = rotation(angle).stretched(gain).with_unrotated(q=mask, k=mask)
    assert code.k_angle is None, "queries and keys share a table as before"
    assert_same(code.qk(q, k), [rotated(x, angle, mask, gain) for x in (q, k)], [q, k, angle])
    by_matrix = code.matrices().repeat_interleave(2, -4) @ q.unsqueeze(-1)
    torch.testing.assert_close(by_matrix.squeeze(-1), code.q(q))


def test_one_side_alone():
    """As SAM 2 leaves its object pointers, the last keys: queries go on as they were."""
    angle, keys = 3 * normal(1, 5, 2, seed=2), 3 * normal(1, 3, 2, seed=3)
    q, k = normal(BATCH, HEADS, 5, DIM, seed=0), normal(BATCH, KV_HEADS, 7, DIM, seed=1)
    none, last = torch.zeros(1, 5, dtype=torch.bool), torch.tensor([[False] * 5 + [True] * 2])
    code = rotation(angle).with_unrotated(k=(0, 2))
    whole = torch.cat([angle, normal(1, 2, 2, seed=9)], 1)
    for mine, theirs in ((code.q(q), rotated(q, angle, none)), (code.k(k), rotated(k, whole, last))):
        assert_close(mine, theirs)
    own = rotation(angle, keys).with_unrotated(k=(1, 3))
    whole = torch.cat([normal(1, 1, 2, seed=8), keys, normal(1, 3, 2, seed=9)], 1)
    ends = torch.tensor([[True] + [False] * 3 + [True] * 3])
    assert torch.equal(own.q(q), rotation(angle, keys).q(q))
    assert_close(own.k(k), rotated(k, whole, ends))


def test_in_front_behind_and_between():
    """One after another: a mask is of all tokens, those without a position among them."""
    angle, q = 3 * normal(1, 3, 2, seed=2), normal(BATCH, HEADS, 6, DIM, seed=0)
    mask = torch.tensor([False, False, True, False, False, False])
    code = rotation(angle).with_unrotated(q=(1, 2)).with_unrotated(q=mask)
    whole = torch.cat([torch.zeros(1, 1, 2), angle, torch.zeros(1, 2, 2)], 1)
    still = torch.tensor([[True, False, True, False, True, True]])
    assert_close(code.q(q), rotated(q, whole, still))
    assert code.q_prefix == 1
    assert torch.equal(code.q(q)[:, :, still[0]], q[:, :, still[0]]), "bit by bit"


@pytest.mark.parametrize("layers", [None, 3])
@pytest.mark.parametrize("name", ["rope", "spherical", "liere", "string-cayley", "alibi", "transformer-xl", "sincos"])
def test_layers_and_samples(name, layers):
    """A mask for each sample leaves a sample without such tokens as it is, in every layer."""
    torch.manual_seed(0)
    block = {"block": 3} if name == "liere" else {}
    encoding = rw.create(name, head_dim=DIM, heads=HEADS, layers=layers, axes=1, **block).double()
    mask = torch.zeros(BATCH, 5, dtype=torch.bool)
    mask[1, 2] = True
    plain = encoding(torch.arange(5))
    code = plain.with_unrotated(q=mask, k=mask)
    q, k = normal(BATCH, HEADS, 5, DIM, seed=0), normal(BATCH, HEADS, 5, DIM, seed=1)
    x = normal(BATCH, 5, HEADS * DIM, seed=2)
    assert torch.equal(code.tokens(x)[0], plain.tokens(x)[0])
    for mine, other in zip(*([c] if layers is None else c.unbind() for c in (code, plain)), strict=True):
        scores = [None if (found := c.scores(q, k)) is None else found.expand(BATCH, HEADS, 5, 5) for c in (mine, other)]
        for a, b in [*zip(mine.qk(q, k), other.qk(q, k), strict=True), *([scores] if scores[0] is not None else [])]:
            torch.testing.assert_close(a[0], b[0], rtol=0, atol=1e-13)
            if name != "string-cayley" or a is scores[0]:
                assert (a[1] - b[1]).abs().max() > 1e-3 or name in ("alibi", "sincos", "transformer-xl")
        if scores[0] is not None:
            assert not scores[0][1, :, 2].any()
            assert not scores[0][1, :, :, 2].any()


def test_learned_biases_of_tokens_without_a_position():
    """Swin's three numbers a head: for such a query, such a key, and both."""
    encoding = rw.create("swin-bias", head_dim=DIM, heads=HEADS, size=(1, 5), class_token=True).double()
    with torch.no_grad():
        for i, parameter in enumerate(encoding.parameters()):
            parameter.copy_(normal(*parameter.shape, seed=i))
    plain, q = encoding(encoding.grid(1, 5)), normal(BATCH, HEADS, 5, DIM, seed=0)
    code = plain.with_unrotated(q=MASK, k=MASK[0])
    found, before = code.scores(q, q), plain.scores(q, q)
    for sample in range(BATCH):
        for i in range(5):
            for j in range(5):
                query, key = bool(MASK[sample, i]), bool(MASK[0, j])
                wanted = (
                    encoding.prefix[:, query + 2 * key - 1 if query != key else 2] if query or key else before[..., i, j]
                )
                torch.testing.assert_close(found[sample, :, i, j], wanted.reshape(-1), rtol=0, atol=0)
    assert code.batched
    assert not plain.batched


@pytest.mark.parametrize("name", ["rope", "spherical", "liere", "alibi", "transformer-xl"])
def test_nothing_but_tokens_without_a_position(name):
    encoding = rw.create(name, head_dim=DIM, heads=HEADS, axes=1, **({"block": 3} if name == "liere" else {}))
    code = encoding(torch.arange(0)).with_unrotated(q=(1, 2), k=(0, 2))
    for batch in (2, 0):
        q, k = normal(batch, HEADS, 3, DIM, seed=0).bfloat16(), normal(batch, HEADS, 2, DIM, seed=1).bfloat16()
        for x, y in zip(code.qk(q, k), (q, k), strict=True):
            assert x.dtype is torch.bfloat16
            assert torch.equal(x, y)
        scores = code.scores(q, k)
        assert scores is None or not scores.any()


@pytest.mark.parametrize("name", ["rope", "alibi"])
def test_compiled_and_attended(name):
    torch.compiler.reset()
    encoding = rw.create(name, head_dim=DIM, heads=HEADS, axes=1)

    def attention(q, mask, places):
        return rw.attend(q, q, q, encoding(places).with_unrotated(q=mask, k=mask).with_unrotated(q=(1, 1), k=(1, 1)))

    q, places = normal(BATCH, HEADS, 7, DIM, seed=0).float(), torch.arange(5)
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(q, MASK, places), attention(q, MASK, places))
    turned = attention(q.roll(3, 0), MASK.roll(1, 0), places)
    torch.testing.assert_close(turned.roll(1, 0), attention(q, MASK, places))


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (-1, "q must be an integer at least 0, got -1"),
        ((1, -1), "q must be an integer at least 0, got -1"),
        ((1, 2, 3), r"q must be numbers of tokens in front and behind, two, got \(1, 2, 3\)"),
        (1.0, "q must be an integer at least 0, got 1.0"),
        (MASK.float(), r"boolean mask of all tokens, \(5,\) or \(B, 5\), got a tensor, torch.float32 \(2, 5\)"),
        (MASK[:, :4], r"\(5,\) or \(B, 5\), got a tensor, torch.bool \(2, 4\)"),
        (MASK[None], r"\(5,\) or \(B, 5\), got a tensor, torch.bool \(1, 2, 5\)"),
    ],
)
def test_what_is_refused(tokens, reason):
    code = rotation(normal(1, 5, 2, seed=0))
    with pytest.raises(ValueError, match=reason):
        code.with_unrotated(q=tokens)
    with pytest.raises(ValueError, match=r"q must be"):
        rw.Chain(codes=(rw.Basis(head_dim=DIM, basis=torch.eye(DIM)[None]), code)).with_unrotated(q=tokens)


def test_masks_of_another_batch_are_refused():
    code = rotation(normal(3, 1, 5, 2, seed=0))
    with pytest.raises(ValueError, match=r"\(5,\) or \(3, 5\), got .*\(2, 5\)"):
        code.with_unrotated(q=MASK)
    masked = rotation(normal(1, 5, 2, seed=0)).with_unrotated(q=MASK)
    with pytest.raises(ValueError, match=r"q must be \(2, heads, 5, 6\), got \(3, 4, 5, 6\)"):
        masked.q(normal(3, HEADS, 5, DIM, seed=0))
    biased = rw.create("alibi", head_dim=DIM, heads=HEADS)(torch.arange(5)).with_unrotated(k=MASK)
    with pytest.raises(ValueError, match=r"k must be \(2, heads, 5, channels\), got \(3, 4, 5, 6\)"):
        biased.k(normal(3, HEADS, 5, DIM, seed=0))

"""Texts read piece by piece, padded, packed or through a window give the logits of the whole text, with every encoding."""

import math

import pytest
import torch
from torch import nn

import ropewalk as rw
from ropewalk.encodings import REGISTRY
from ropewalk.extension.by_parts import YaRN
from ropewalk.testing.case import ready

LENGTH, WORDS, HEADS, KV_HEADS, LAYERS = 13, 11, 4, 2, 2
CLOSE = {"rtol": 0, "atol": 1e-10}


def makers():
    """Each encoding of one axis, by name, and some chains and extensions."""
    for name, kind in REGISTRY.items():
        if kind.allowed_axes is None or 1 in kind.allowed_axes:
            yield pytest.param(lambda name=name, **shape: rw.create(name, **shape), id=name)
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 5}
    rules = {"yarn": YaRN(factor=4.0, original_max_position_embeddings=64), "dynamic": dynamic}
    for name, rule in rules.items():
        yield pytest.param(
            lambda rule=rule, **shape: rw.create("rope", extension=rule, **shape).at(LENGTH), id=f"rope-{name}"
        )
    for pair in (("rope", "alibi"), ("xpos", "sincos"), ("t5-bias", "learned-ape")):
        yield pytest.param(lambda pair=pair, **shape: rw.chain(*(rw.create(n, **shape) for n in pair)), id="+".join(pair))


every_encoding = pytest.mark.parametrize("make", list(makers()))


class Reader(nn.Module):
    """A small causal model in float64. A cache is places, owners, and keys and values of each layer, keys not yet turned."""

    def __init__(self, make):
        super().__init__()
        shape = {"head_dim": 12, "heads": HEADS, "kv_heads": KV_HEADS, "layers": LAYERS, "axes": 1, "size": (LENGTH,)}
        self.encoding = ready(make(**shape))
        width = HEADS * 12
        self.embed = nn.Embedding(WORDS, width, dtype=torch.float64)
        sizes = HEADS * 12, 2 * KV_HEADS * 12
        self.q, self.kv = (
            nn.ModuleList(nn.Linear(width, size, dtype=torch.float64) for _ in range(LAYERS)) for size in sizes
        )
        self.head = nn.Linear(width, WORDS, dtype=torch.float64)

    @torch.no_grad()
    def forward(self, words, places, mask=None, cache=None, keys_at=None):
        """Logits of these words; with a cache, they see what it holds, standing at `keys_at`, these words last."""
        code = self.encoding(places, keys_at)
        x = code.tokens(self.embed(words))
        for layer, (q, kv) in enumerate(zip(self.q, self.kv, strict=True)):
            q = q(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            k, v = kv(x).unflatten(-1, (2, KV_HEADS, -1)).permute(2, 0, 3, 1, 4)
            if cache is not None:
                cache[layer] = k, v = [torch.cat([old, new], 2) for old, new in zip(cache[layer], (k, v), strict=True)]
            seen = rw.attend(q, k, v, code[layer], mask=mask, causal=mask is None)
            x = x + seen.transpose(1, 2).flatten(2)
        return self.head(x)


def text(batch=2, length=LENGTH):
    return torch.randint(WORDS, (batch, length), generator=torch.Generator().manual_seed(7))


def empty(batch=2):
    return [[torch.zeros(batch, KV_HEADS, 0, 12, dtype=torch.float64)] * 2 for _ in range(LAYERS)]


def whole(reader, words, mask=None):
    return reader(words, torch.arange(words.shape[1]), mask)


@every_encoding
@pytest.mark.parametrize("chunks", [(1,) * LENGTH, (7, 1, 1, 1, 1, 1, 1), (5, 1, 4, 3)], ids=["tokens", "prompt", "chunks"])
def test_a_cache_gives_the_logits_of_the_whole_text(make, chunks):
    reader, words, cache, found, done = Reader(make), text(), empty(), [], 0
    for count in chunks:
        places = torch.arange(done, done + count)
        found.append(reader(words[:, done : done + count], places, cache=cache, keys_at=torch.arange(done + count)))
        done += count
    torch.testing.assert_close(torch.cat(found, 1), whole(reader, words), **CLOSE)


@every_encoding
def test_positions_tell(make):
    """Or nothing above is tested: the same words at other places have other logits, but for what has no positions."""
    reader, words = Reader(make), text()
    places = torch.arange(LENGTH)
    moved = reader(words, 5 * places % LENGTH) - reader(words, places)
    assert (moved.abs().max() > 1e-3) == (reader.encoding.name != "none")


@every_encoding
def test_padding_at_the_front_changes_nothing(make):
    reader, lengths = Reader(make), (LENGTH, 8, 5)
    words = text(3)
    real = torch.arange(LENGTH) >= LENGTH - torch.tensor(lengths)[:, None]
    places = rw.positions.padded(real)
    found = reader(words, places, rw.positions.visible(places, owner=real))
    for row, length in enumerate(lengths):
        alone = whole(reader, words[row : row + 1, -length:])
        torch.testing.assert_close(found[row : row + 1, -length:], alone, **CLOSE)


@every_encoding
def test_padded_texts_go_on_with_a_cache(make):
    reader, lengths, given = Reader(make), (8, 5), 9
    words = text(2)
    real = torch.arange(LENGTH) >= given - torch.tensor(lengths)[:, None]
    places, cache = rw.positions.padded(real), empty()
    now, later = slice(0, given), slice(given, None)
    mask = rw.positions.visible(places[:, now], owner=real[:, now])
    reader(words[:, now], places[:, now], mask, cache, places[:, now])
    mask = rw.positions.visible(places[:, later], places, owner=real[:, later], key_owner=real)
    found = reader(words[:, later], places[:, later], mask, cache, places)
    for row, length in enumerate(lengths):
        alone = whole(reader, words[row : row + 1, given - length :])[:, length:]
        torch.testing.assert_close(found[row : row + 1], alone, **CLOSE)


@every_encoding
def test_packed_texts_are_as_if_alone(make):
    reader, lengths, words = Reader(make), (4, 1, 8), text(1)
    places, owner = rw.positions.packed(lengths), rw.positions.segments(lengths)
    found = reader(words, places, rw.positions.visible(places, owner=owner)).split(lengths, 1)
    for part, own in zip(words.split(lengths, 1), found, strict=True):
        torch.testing.assert_close(own, whole(reader, part), **CLOSE)


def banded(window):
    i = torch.arange(LENGTH)
    return (i[None] <= i[:, None]) & (i[:, None] - i[None] < window)


@every_encoding
@pytest.mark.parametrize("window", [1, 4, LENGTH])
def test_a_window_needs_only_what_it_shows(make, window):
    """A ring of `window` keys, the oldest overwritten in its place, is all the cache that a window needs."""
    reader, words = Reader(make), text()
    expected = whole(reader, words, banded(window))
    ring, cache, found = torch.zeros(0, dtype=torch.long), empty(), []
    for place in range(LENGTH):
        if place >= window:  # the oldest gives way
            keep = ring != place - window
            ring, cache = ring[keep], [[x[:, :, keep] for x in layer] for layer in cache]
            turn = torch.arange(len(ring)).roll(1)  # the order in the cache is of no account
            ring, cache = ring[turn], [[x[:, :, turn] for x in layer] for layer in cache]
        ring, here = torch.cat([ring, torch.tensor([place])]), torch.tensor([place])
        mask = rw.positions.visible(here, ring, window=window)
        found.append(reader(words[:, place : place + 1], here, mask, cache, ring))
        assert len(ring) <= window
    torch.testing.assert_close(torch.cat(found, 1), expected, **CLOSE)


@every_encoding
def test_keys_may_be_turned_as_they_come(make):
    """Each key once, where it stands, instead of all of them for each query."""
    encoding = ready(make(head_dim=12, heads=HEADS, kv_heads=KV_HEADS, axes=1, size=(LENGTH,)))
    drawn = torch.Generator().manual_seed(3)
    sizes = (HEADS, KV_HEADS, KV_HEADS)
    q, k, v = (torch.randn(2, n, LENGTH, 12, generator=drawn, dtype=torch.float64) for n in sizes)
    expected = rw.attend(q, k, v, encoding(torch.arange(LENGTH)), causal=True)
    cached = k[:, :, :0]
    for place in range(LENGTH):
        here, until = torch.tensor([place]), torch.arange(place + 1)
        own = encoding(here)
        cached = torch.cat([cached, own.k(k[:, :, place : place + 1])], 2)
        code = encoding(here, until)
        found = rw.attend(own.q(q[:, :, place : place + 1]), cached, v[:, :, : place + 1], code, turned=True)
        torch.testing.assert_close(found, expected[:, :, place : place + 1], **CLOSE)


# The masks themselves


def test_places_of_padded_texts():
    real = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 1, 0, 1]])
    assert rw.positions.padded(real).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [0, 0, 1, 1, 2]]
    assert torch.equal(rw.positions.padded(real.bool()), rw.positions.padded(real))
    for wrong in (real[0], real.float()):
        with pytest.raises(ValueError, match=r"real.*\(B, N\), got torch"):
            rw.positions.padded(wrong)


def test_what_a_query_may_look_at():
    mask = rw.positions.visible(torch.tensor([5, 2]), torch.tensor([1, 2, 3, 5, 6]), window=4)
    assert mask.tolist() == [[False, True, True, True, False], [True, True, False, False, False]]
    for window in (1, 4, LENGTH):
        assert torch.equal(rw.positions.visible(torch.arange(LENGTH), window=window), banded(window))
    assert torch.equal(rw.positions.visible(torch.arange(LENGTH)), banded(LENGTH))
    batched = rw.positions.visible(torch.tensor([[0, 1], [1, 0]]))
    assert batched.shape == (2, 1, 2, 2)
    assert batched[1, 0].tolist() == [[True, True], [False, True]]
    owner = torch.tensor([0, 1])
    assert rw.positions.visible(torch.tensor([1, 1]), owner=owner).tolist() == [[True, False], [False, True]]


def test_masks_that_cannot_be_meant_are_refused():
    places = torch.arange(3)
    for wrong in ((places.float(),), (places, places.float()), (places[None, None],)):
        with pytest.raises(ValueError, match=r"places.*\(N,\).*\(B, N\), got a tensor, torch"):
            rw.positions.visible(*wrong)
    with pytest.raises(ValueError, match=r"keys.*queries"):
        rw.positions.visible(places, places, owner=places)
    with pytest.raises(ValueError, match=r"keys.*queries"):
        rw.positions.visible(places, key_owner=places)
    with pytest.raises(ValueError, match=r"window.*positive.*got 0"):
        rw.positions.visible(places, window=0)


def test_why_the_length_is_settled_once():
    """Keys turned for one length and queries for another, as where a rule follows the text, are not relative any more."""
    rule = {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 8}
    waiting = rw.create("rope", head_dim=12, extension=rule).double()
    q, k = torch.randn(2, 1, 1, 1, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    one, other = waiting.at(12), waiting.at(30)

    def score(keys, queries, start):
        at = torch.tensor([start])
        return (keys(at).k(k) * queries(at + 5).q(q)).sum().item()

    assert math.isclose(score(other, other, 0), score(other, other, 20), abs_tol=1e-12)
    assert abs(score(one, other, 0) - score(one, other, 20)) > 1e-2

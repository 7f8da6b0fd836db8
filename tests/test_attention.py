"""Attention against a softmax written as a loop, for every kind of code, with masks, causality, groups and prefixes."""

import cmath
import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.attention.flex_attention import flex_attention

import ropewalk as rw
from ropewalk import attention

DOUBLE = {"rtol": 0, "atol": 1e-12}
SINGLE = {"rtol": 0, "atol": 1e-5}
HALF = {"rtol": 0, "atol": 3e-2}
HEADS, KEY_HEADS, WIDTH = 4, 2, 12
SOURCE = torch.Generator()


@pytest.fixture(autouse=True)
def _seed():
    SOURCE.manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=SOURCE)


# What the encodings of these tests do, written out for one head and one or two tokens.


def turned_by_rope(x, p, head, encoding):
    out = x.copy()
    for i in range(WIDTH // 2):
        z = complex(x[i], x[i + WIDTH // 2]) * cmath.exp(1j * p[0] * 10_000 ** (-2 * i / WIDTH))
        out[i], out[i + WIDTH // 2] = z.real, z.imag
    return out


def turned_on_spheres(x, p, head, encoding):
    out = x.copy()
    for j in range(WIDTH // 3):
        (a, b, c), frequency = x[3 * j : 3 * j + 3], 100 ** (-2 * j / WIDTH)
        first, last = frequency * p[0], frequency * p[1]
        a, c = a * math.cos(first) - c * math.sin(first), a * math.sin(first) + c * math.cos(first)
        b, c = b * math.cos(last) - c * math.sin(last), b * math.sin(last) + c * math.cos(last)
        out[3 * j : 3 * j + 3] = a, b, c
    return out


def turned_by_exponentials(x, p, head, encoding):
    out, upper = x.copy(), encoding.upper.detach().numpy()[head // (HEADS // KEY_HEADS)]  # (axes, blocks, 6)
    for block in range(WIDTH // 4):
        generator = np.zeros((4, 4))
        generator[np.triu_indices(4, 1)] = sum(p[axis] * upper[axis, block] for axis in range(2))
        value, vector = np.linalg.eigh(1j * (generator - generator.T))
        rotation = (vector * np.exp(-1j * value) @ vector.conj().T).real
        out[4 * block : 4 * block + 4] = rotation @ x[4 * block : 4 * block + 4]
    return out


def unturned(x, p, head, encoding):
    return x


def no_bias(p, r, head, encoding):
    return 0.0


def lost_by_distance(p, r, head, encoding):
    return -(2.0 ** (-8 * (head + 1) / HEADS)) * math.dist(p, r)


def entry_of_bucket(p, r, head, encoding):
    """8 buckets to a distance of 20: half of them for keys ahead, the two nearest of each half exact."""
    distance, bucket = abs(r[0] - p[0]), 4 if r[0] - p[0] >= 1 else 0
    if distance < 2:
        bucket += int(distance)
    else:
        bucket += min(3, 2 + int(math.log(distance / 2) / math.log(20 / 2) * 2))
    return encoding.table[head // (HEADS // KEY_HEADS), bucket].item()


@dataclass(frozen=True)
class Method:
    name: str
    options: dict[str, Any]
    turned: Any = unturned
    bias: Any = no_bias

    def build(self):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return rw.create(self.name, head_dim=WIDTH, heads=HEADS, kv_heads=KEY_HEADS, **self.options).double()


METHODS = {
    "none": Method("none", {"axes": 2}),
    "learned-ape": Method("learned-ape", {"size": (15,), "axes": 1}),
    "rope": Method("rope", {}, turned=turned_by_rope),
    "spherical": Method("spherical", {"size": (3, 5)}, turned=turned_on_spheres),
    "liere": Method("liere", {"block": 4, "size": (3, 5)}, turned=turned_by_exponentials),
    "alibi": Method("alibi", {}, bias=lost_by_distance),
    "alibi-2d": Method("alibi", {"axes": 2}, bias=lost_by_distance),
    "t5-bias": Method("t5-bias", {"buckets": 8, "max_distance": 20}, bias=entry_of_bucket),
}


@dataclass(frozen=True)
class Situation:
    """Tokens, and what attention is told beside them. Queries stand at the last places of the keys."""

    queries: int = 15
    keys: int = 15
    prefix: tuple[int, int] = (0, 0)
    per_sample: bool = False
    causal: bool = False
    mask: str | None = None
    scale: float | None = None

    def positions(self, axes):
        line = torch.arange(self.keys, dtype=torch.float64)
        place = torch.stack([line / 3, line % 5], dim=-1) if axes == 2 else line[:, None]
        keys = torch.stack([place, place.flip(0) / 2]) if self.per_sample else place
        return keys[..., self.keys - self.queries :, :], keys

    def tokens(self):
        q = normal(2, HEADS, self.queries + self.prefix[0], WIDTH)
        k, v = (normal(2, KEY_HEADS, self.keys + self.prefix[1], width) for width in (WIDTH, 5))
        return q, k, v

    def given_mask(self):
        n, m = self.queries + self.prefix[0], self.keys + self.prefix[1]
        diagonal = torch.ones(n, m, dtype=torch.bool).triu(m - n).tril(m - n)  # every query may look at some key
        return {
            None: None,
            "boolean": (normal(2, 1, n, m) > 0) | diagonal,
            "boolean-of-keys": normal(2, 1, 1, m) > -1,
            "boolean-line": normal(m) > -1,
            "floating": normal(HEADS, n, m),
            "floating-of-keys": normal(m),
            "floating-of-samples": normal(2, 1, n, m).masked_fill((normal(2, 1, n, m) > 0) & ~diagonal, -math.inf),
        }[self.mask]

    def options(self):
        return {"mask": self.given_mask(), "causal": self.causal, "scale": self.scale}


SITUATIONS = {
    "plain": Situation(),
    "causal": Situation(causal=True),
    "decoding": Situation(queries=3, causal=True),
    "last-token": Situation(queries=1, causal=True),
    "few-queries": Situation(queries=3),
    "boolean": Situation(mask="boolean"),
    "boolean-of-keys-causal": Situation(mask="boolean-of-keys", causal=True, queries=6),
    "boolean-of-keys": Situation(mask="boolean-of-keys"),
    "boolean-line": Situation(mask="boolean-line"),
    "floating": Situation(mask="floating"),
    "floating-of-keys": Situation(mask="floating-of-keys"),
    "floating-of-keys-causal": Situation(mask="floating-of-keys", causal=True),
    "floating-of-samples": Situation(mask="floating-of-samples"),
    "scale": Situation(scale=1.3),
    "prefix": Situation(prefix=(1, 2)),
    "prefix-causal": Situation(prefix=(2, 2), causal=True),
    "per-sample": Situation(per_sample=True),
    "everything": Situation(queries=9, prefix=(1, 1), per_sample=True, causal=True, mask="floating-of-samples", scale=0.2),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def prepared(method, situation, tokens=None):
    """An encoding, its code, and q, k and v."""
    encoding = method.build()
    code = encoding(*situation.positions(encoding.axes)).prefixed(*situation.prefix)
    return encoding, code, *(situation.tokens() if tokens is None else tokens)


def softmax_by_hand(method, encoding, situation, q, k, v, mask=None):
    """Query by query, key by key, in float64."""
    q, k, v = (x.detach().double().numpy() for x in (q, k, v))
    q_positions, k_positions = (p.expand(2, -1, -1).tolist() for p in situation.positions(encoding.axes))
    (n, m), (skip_q, skip_k) = (q.shape[2], k.shape[2]), situation.prefix
    mask = None if mask is None else mask.expand(2, HEADS, n, m)
    scale = 1 / math.sqrt(WIDTH) if situation.scale is None else situation.scale
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h in itertools.product(range(2), range(HEADS)):
        shared = h // (HEADS // KEY_HEADS)
        p, r = [None] * skip_q + q_positions[b], [None] * skip_k + k_positions[b]
        queries = [x if at is None else method.turned(x, at, h, encoding) for x, at in zip(q[b, h], p, strict=True)]
        keys = [x if at is None else method.turned(x, at, h, encoding) for x, at in zip(k[b, shared], r, strict=True)]
        for i in range(n):
            weights = np.zeros(m)
            for j in range(m):
                logit = scale * np.dot(queries[i], keys[j])
                if p[i] is not None and r[j] is not None:
                    logit += method.bias(p[i], r[j], h, encoding)
                seen = not situation.causal or m - 1 - j >= n - 1 - i  # places counted from the end
                if mask is not None and mask.dtype is torch.bool:
                    seen = seen and mask[b, h, i, j].item()
                elif mask is not None:
                    logit += mask[b, h, i, j].item()
                weights[j] = math.exp(logit) if seen else 0.0
            if weights.sum() > 0:
                out[b, h, i] = weights @ v[b, shared] / weights.sum()
    return torch.from_numpy(out)


# Values


@every_method
@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
def test_attention_is_a_softmax(method, situation):
    encoding, code, q, k, v = prepared(method, situation)
    options = situation.options()
    kept = [x.clone() for x in (q, k, v)]
    mine = rw.attend(q, k, v, code, **options)
    assert mine.dtype is torch.float64
    torch.testing.assert_close(mine, softmax_by_hand(method, encoding, situation, q, k, v, options["mask"]), **DOUBLE)
    assert all(torch.equal(x, copy) for x, copy in zip((q, k, v), kept, strict=True))


@pytest.mark.parametrize("causal", [False, True])
def test_no_code_is_no_encoding(causal):
    situation = Situation(causal=causal)
    q, k, v = situation.tokens()
    want = softmax_by_hand(METHODS["none"], METHODS["none"].build(), situation, q, k, v)
    torch.testing.assert_close(rw.attend(q, k, v, causal=causal), want, **DOUBLE)
    torch.testing.assert_close(rw.attend(q, k, v, rw.Code(), causal=causal), want, **DOUBLE)


@every_method
def test_decoding_gives_the_last_rows_of_the_whole(method):
    whole, last = Situation(causal=True), Situation(queries=4, causal=True)
    _, code, q, k, v = prepared(method, whole)
    _, of_last, *_ = prepared(method, last)
    rows = rw.attend(q[:, :, -4:], k, v, of_last, causal=True)
    torch.testing.assert_close(rows, rw.attend(q, k, v, code, causal=True)[:, :, -4:], **DOUBLE)


@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision(method, dtype):
    situation = Situation(causal=True, mask="floating", prefix=(1, 1))
    tokens = [x.to(dtype) for x in situation.tokens()]
    encoding, code, q, k, v = prepared(method, situation, tokens)
    mask = situation.given_mask()
    mine = rw.attend(q, k, v, code, mask=mask.to(dtype), causal=True)
    assert mine.dtype is dtype
    want = softmax_by_hand(method, encoding, situation, q, k, v, mask)
    torch.testing.assert_close(mine.double(), want, **(SINGLE if dtype is torch.float32 else HALF))


@every_method
def test_empty_batches_and_no_queries(method):
    _, code, q, k, v = prepared(method, Situation())
    for causal in (False, True):
        assert rw.attend(q[:0], k[:0], v[:0], code, causal=causal).shape == (0, HEADS, 15, 5)
    encoding = method.build()
    keys = Situation().positions(encoding.axes)[1]
    none = encoding(keys[:0], keys)
    assert rw.attend(q[:, :, :0], k, v, none, causal=True).shape == (2, HEADS, 0, 5)


def test_every_head_its_own_keys_or_one_key_for_all():
    situation, rope = Situation(causal=True), METHODS["rope"]
    _, code, q, k, v = prepared(rope, situation)
    own = rw.attend(q, k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1), code, causal=True)
    torch.testing.assert_close(own, rw.attend(q, k, v, code, causal=True), **DOUBLE)
    one = rw.attend(q, k[:, :1], v[:, :1], code, causal=True)
    pair = rw.attend(q, k[:, :1].expand(-1, 2, -1, -1), v[:, :1].expand(-1, 2, -1, -1), code, causal=True)
    torch.testing.assert_close(one, pair, **DOUBLE)


# Queries that may look at nothing


@pytest.mark.parametrize("method", [METHODS["rope"], METHODS["alibi"]], ids=["rope", "alibi"])
@pytest.mark.parametrize("kind", ["boolean", "floating"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_sees_nothing_gets_zeros(method, kind, causal):
    situation = Situation(causal=causal)
    encoding, code, q, k, v = prepared(method, situation)
    seen = torch.ones(15, 15, dtype=torch.bool)
    seen[4] = False
    mask = seen if kind == "boolean" else torch.zeros(15, 15, dtype=torch.float64).masked_fill(~seen, -math.inf)
    given = [x.requires_grad_() for x in (q, k, v)]
    mine = rw.attend(*given, code, mask=mask, causal=causal)
    assert (mine[:, :, 4] == 0).all()
    torch.testing.assert_close(mine.detach(), softmax_by_hand(method, encoding, situation, q, k, v, seen), **DOUBLE)
    slopes = torch.autograd.grad(mine.sum(), given)
    assert all(slope.isfinite().all() for slope in slopes)
    assert (slopes[0][:, :, 4] == 0).all()


def test_queries_before_the_first_key_see_nothing():
    """With more queries than keys, counted from the end, the first ones stand before all keys."""
    q, k, v = normal(2, 4, 5, 12), normal(2, 2, 3, 12), normal(2, 2, 3, 12)
    mine = rw.attend(q, k, v, causal=True)
    assert (mine[:, :, :2] == 0).all()
    torch.testing.assert_close(mine[:, :, 2:], rw.attend(q[:, :, 2:], k, v, causal=True), **DOUBLE)


# Derivatives


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["alibi", "t5-bias"])
def test_derivatives(name, causal):
    encoding = METHODS[name].build()
    code = encoding(torch.arange(2.0, 5.0)[:, None].double(), torch.arange(5.0)[:, None].double()).prefixed(q=1, k=1)
    mask = normal(4, 6)

    def function(q, k, v, table):
        return rw.attend(q, k, v, replace(code, table=table), mask=mask, causal=causal)

    given = [normal(1, 4, 4, 12), normal(1, 2, 6, 12), normal(1, 2, 6, 3), code.table.detach().clone()]
    assert torch.autograd.gradcheck(function, [x.requires_grad_() for x in given], fast_mode=True)


def test_gradients_reach_the_parameters_of_an_encoding():
    encoding, code, q, k, v = prepared(METHODS["t5-bias"], Situation())
    rw.attend(q, k, v, code).square().sum().backward()
    reached = {int(bucket) for bucket in encoding.table.grad.abs().sum(0).nonzero()}
    assert reached == {0, 1, 2, 3, 5, 6, 7}  # all but "0 steps ahead"


# Dropout


@pytest.mark.parametrize("method", [METHODS["rope"], METHODS["alibi"]], ids=["rope", "alibi"])
def test_dropout_has_the_right_mean(method):
    _, code, q, k, v = prepared(method, Situation(queries=2, keys=6))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = torch.stack([rw.attend(q, k, v, code, dropout=0.5) for _ in range(400)])
    want = rw.attend(q, k, v, code)
    error = draws.std(dim=0) / math.sqrt(len(draws))
    assert (draws.std(dim=0) > 0.01).all()
    assert ((draws.mean(dim=0) - want).abs() < 5 * error).all()


# Flex attention


@pytest.fixture
def plain_flex(monkeypatch):
    """Flex attention traced as one graph and run op by op: its arithmetic without its kernels, in any precision."""
    torch.compiler.reset()
    compiled = torch.compile(flex_attention, fullgraph=True, dynamic=False, backend="aot_eager")
    monkeypatch.setattr(attention, "_compiled_flex", lambda device: compiled)


@torch.no_grad()
@pytest.mark.usefixtures("plain_flex")
@pytest.mark.parametrize(
    ("method", "situation"),
    [
        ("none", "plain"),
        ("rope", "decoding"),
        ("alibi", "causal"),
        ("alibi", "boolean-of-keys-causal"),
        ("alibi", "scale"),
        ("alibi", "boolean-line"),
        ("alibi-2d", "prefix"),
        ("alibi-2d", "per-sample"),
        ("alibi-2d", "floating-of-samples"),
        ("t5-bias", "decoding"),
        ("t5-bias", "floating-of-keys-causal"),
        ("t5-bias", "prefix-causal"),
        ("t5-bias", "everything"),
    ],
)
def test_flex_attention_is_a_softmax(method, situation):
    method, situation = METHODS[method], SITUATIONS[situation]
    encoding, code, q, k, v = prepared(method, situation)
    options = situation.options()
    mine = rw.attend(q, k, v, code, kernel="flex", **options)
    torch.testing.assert_close(mine, softmax_by_hand(method, encoding, situation, q, k, v, options["mask"]), **DOUBLE)


@pytest.mark.exhaustive("programs", kept=lambda method, situation: method == "t5-bias")
@torch.no_grad()
@pytest.mark.parametrize(
    ("method", "situation"),
    [("alibi-2d", "everything"), ("t5-bias", "decoding")],
)
def test_flex_attention_with_its_kernels(method, situation):
    torch.compiler.reset()
    method, situation = METHODS[method], SITUATIONS[situation]
    encoding, options = method.build(), situation.options()
    q, k, v = (x.float() for x in situation.tokens())
    positions = (p.float() for p in situation.positions(encoding.axes))
    code = method.build().float()(*positions).prefixed(*situation.prefix)
    options["mask"] = None if options["mask"] is None else options["mask"].float()
    mine = rw.attend(q, k, v, code, kernel="flex", **options)
    want = softmax_by_hand(method, encoding, situation, q, k, v, options["mask"])
    torch.testing.assert_close(mine.double(), want, **SINGLE)
    torch.testing.assert_close(mine, rw.attend(q, k, v, code, **options), **SINGLE)


@torch.no_grad()
@pytest.mark.usefixtures("plain_flex")
def test_flex_attention_gives_zeros_to_a_query_that_sees_nothing():
    _, code, q, k, v = prepared(METHODS["alibi"], Situation())
    mask = torch.ones(15, 15, dtype=torch.bool)
    mask[4] = False
    mine = rw.attend(q, k, v, code, mask=mask, kernel="flex")
    assert (mine[:, :, 4] == 0).all()
    torch.testing.assert_close(mine, rw.attend(q, k, v, code, mask=mask), **DOUBLE)


def test_cpus_take_flex_attention_only_when_told(monkeypatch):
    def refuse(device):
        raise AssertionError("flex attention was asked for")

    monkeypatch.setattr(attention, "_compiled_flex", refuse)
    _, code, q, k, v = prepared(METHODS["alibi"], Situation())
    auto = rw.attend(q, k, v, code)
    torch.testing.assert_close(auto, rw.attend(q, k, v, code, kernel="sdpa"), rtol=0, atol=0)
    with pytest.raises(AssertionError, match="asked for"):
        rw.attend(q, k, v, code, kernel="flex")


# Compiled models


@pytest.mark.parametrize("kernel", ["sdpa", "flex"])
@pytest.mark.parametrize("name", ["rope", "alibi"])
def test_inside_a_compiled_model(name, kernel):
    encoding = METHODS[name].build()

    def model(q, k, v, positions):
        return rw.attend(q, k, v, encoding(positions), causal=True, kernel=kernel)

    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for n in (15, 9, 12):
        q, k, v = Situation(queries=n, keys=n).tokens()
        positions = torch.arange(n, dtype=torch.float64)[:, None]
        want = rw.attend(q, k, v, encoding(positions), causal=True, kernel="sdpa")
        torch.testing.assert_close(compiled(q, k, v, positions), want, **DOUBLE)
    assert counter.frame_count <= 2


# Errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": "flash"}, r"kernel 'flash'.*auto, sdpa, flex"),
        ({"q": torch.zeros(4, 15, 12)}, r"q.*\(B, H, N, D\).*got \(4, 15, 12\), \(2, 2, 15, 12\)"),
        ({"q": torch.zeros(2, 3, 15, 12)}, r"H, got \(2, 3, 15, 12\), \(2, 2, 15, 12\)"),
        ({"v": torch.zeros(2, 2, 14, 12)}, r"\(B.*M, D\).*\(2, 2, 15, 12\), \(2, 2, 14, 12\)"),
        ({"mask": torch.ones(15, 15, dtype=torch.int64)}, r"mask.*got torch\.int64"),
        ({"mask": torch.ones(15, 14)}, r"\(B, H, N, M\) = \(2, 4, 15, 15\), got \(15, 14\)"),
        ({"mask": torch.ones(3, 1, 15, 15)}, r"= \(2, 4, 15, 15\), got \(3, 1, 15, 15\)"),
        ({"mask": torch.ones(1, 2, 4, 15, 15)}, r"= \(2, 4, 15, 15\), got \(1, 2, 4, 15, 15\)"),
        ({"kernel": "flex", "dropout": 0.1}, r"dropout.*kernel='sdpa'"),
        ({"kernel": "flex", "q": torch.zeros(2, 4, 15, 12).requires_grad_()}, r"CPUs.*kernel='sdpa'"),
    ],
)
def test_what_attention_refuses(change, message):
    given = {"q": torch.zeros(2, 4, 15, 12), "k": torch.zeros(2, 2, 15, 12), "v": torch.zeros(2, 2, 15, 12), **change}
    with pytest.raises(ValueError, match=message):
        rw.attend(**given)


def test_flex_attention_refuses_to_train_a_table_on_cpus():
    _, code, q, k, v = prepared(METHODS["t5-bias"], Situation())
    with pytest.raises(ValueError, match="no backward pass on CPUs"):
        rw.attend(q, k, v, code, kernel="flex")


@pytest.mark.parametrize("kernel", ["sdpa", "flex"])
def test_a_code_of_many_layers_must_be_indexed(kernel):
    code = rw.create("alibi", head_dim=12, heads=4, layers=3)(torch.arange(15))
    q = torch.zeros(2, 4, 15, 12)
    with pytest.raises(TypeError, match=r"use code\[i\] in block i"):
        rw.attend(q, q, q, code, kernel=kernel)


@pytest.mark.parametrize("name", ["mixed", "alibi", "none"])
@pytest.mark.parametrize("kv_heads", [2, 4])
def test_one_projection_is_attended_like_its_parts(name, kv_heads):
    encoding = rw.create(name, head_dim=12, heads=4, kv_heads=kv_heads)
    code = encoding(torch.randn(5, encoding.axes))
    x = torch.randn(2, 5, 4 + 2 * kv_heads, 12)
    q, k, v = (part.transpose(1, 2) for part in x.split([4, kv_heads, kv_heads], 2))
    for options in ({}, {"causal": True, "scale": 0.3}, {"mask": torch.rand(5, 5) > 0.3}):
        expected = rw.attend(q, k, v, code, **options)
        torch.testing.assert_close(rw.attend_qkv(x, 4, code, **options), expected)
        torch.testing.assert_close(rw.attend(*code.qk(q, k), v, code, turned=True, **options), expected)
    assert name == "none" or not torch.allclose(rw.attend_qkv(x, 4), rw.attend_qkv(x, 4, code), atol=1e-3)


def test_a_projection_of_another_shape_or_an_unknown_option_is_refused():
    with pytest.raises(ValueError, match=r"H \+ 2.*D\).*H = 4, got \(2, 5, 7, 12\)"):
        rw.attend_qkv(torch.zeros(2, 5, 7, 12), 4)
    with pytest.raises(TypeError, match="casual"):
        rw.attend_qkv(torch.zeros(2, 5, 6, 12), 2, casual=True)

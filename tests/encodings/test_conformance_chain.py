"""Chains of encodings against their parts, each written out by hand in float64."""

import json
import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ropewalk as rw
from tests.support.float64_reference import assert_close, assert_same, leaf, normal, twin

BATCH, HEADS, KV_HEADS, HEAD_DIM = 2, 4, 2, 6
DTYPES = (torch.float64, torch.float32)
SLOPES = [2.0 ** (-8 * h / HEADS) for h in range(1, HEADS + 1)]


def made(name: str, dtype: torch.dtype = torch.float64, **options: object) -> rw.Encoding:
    """An encoding whose parameters are all of the order of 1."""
    encoding = rw.create(name, head_dim=HEAD_DIM, heads=HEADS, **options).to(dtype)
    for seed, parameter in enumerate(encoding.parameters()):
        parameter.data = normal(*parameter.shape, seed=50 + seed, dtype=dtype)
    return encoding


def turned(x: Tensor, angle: Tensor, interleaved: bool, prefix: int) -> Tensor:
    """x (B H N D) as complex numbers, turned by angle (B H n P) after the prefix."""
    pairs = x[:, :, prefix:].double()
    pairs = pairs.unflatten(-1, (-1, 2)) if interleaved else pairs.unflatten(-1, (2, -1)).mT
    z = torch.view_as_complex(pairs.contiguous()) * torch.exp(1j * angle)
    moved = torch.view_as_real(z)
    moved = moved.flatten(-2) if interleaved else moved.mT.flatten(-2)
    return torch.cat([x[:, :, :prefix].double(), moved], dim=2)


def rope(x: Tensor, places: Tensor, prefix: int = 0) -> Tensor:
    frequency = torch.tensor([10000 ** (-2 * i / HEAD_DIM) for i in range(HEAD_DIM // 2)], dtype=torch.float64)
    return turned(x, places.double()[:, None] * frequency, False, prefix)


def mixed(x: Tensor, wave: Tensor, places: Tensor, prefix: int = 0) -> Tensor:
    """Wave vectors (h P A), each h serving a group of heads."""
    wave = wave.repeat_interleave(x.shape[1] // len(wave), dim=0)
    return turned(x, torch.einsum("hpa,bna->bhnp", wave, places.double().expand(len(x), -1, -1)), True, prefix)


def logits(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).mT / math.sqrt(HEAD_DIM)


def alibi(queries: Tensor, keys: Tensor, prefix: tuple[int, int]) -> Tensor:
    distance = (queries.double()[:, None, :, None, 0] - keys.double()[:, None, None, :, 0]).abs()
    return F.pad(-torch.tensor(SLOPES, dtype=torch.float64)[:, None, None] * distance, (prefix[1], 0, prefix[0], 0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("prefix", [(0, 0), (1, 2)], ids=str)
@pytest.mark.parametrize("layers", [None, 2])
@pytest.mark.parametrize(("queries", "keys"), [(1, 63), (5, 7)])
@pytest.mark.parametrize("order", [("rope", "alibi"), ("alibi", "rope")], ids=str)
def test_rope_and_alibi(order, queries, keys, layers, prefix, dtype):
    """Logits are the sum, whichever comes first: grouped queries, keys elsewhere, gradients of the positions."""
    shape = {"kv_heads": KV_HEADS, "layers": layers}
    encoding = rw.chain(*(made(name, dtype, **shape) for name in order))
    places = [(9 * normal(BATCH, n, 1, seed=n)).to(dtype).requires_grad_() for n in (queries, keys)]
    q = leaf(BATCH, HEADS, prefix[0] + queries, HEAD_DIM, seed=2, dtype=dtype)
    k = leaf(BATCH, KV_HEADS, prefix[1] + keys, HEAD_DIM, seed=3, dtype=dtype)
    code = encoding(*places).prefixed(q=prefix[0], k=prefix[1])
    code = code if layers is None else code[1]
    q1, k1 = code.qk(q, k)
    added = code.scores(q1, k1)
    turns = [rope(x, p, n) for x, p, n in zip((q, k), places, prefix, strict=True)]
    wanted = alibi(*places, prefix)
    ours, theirs = [logits(q1, k1) + added, added], [logits(*turns) + wanted, wanted]
    assert_same(ours, theirs, [q, k, *places], 40.0)


def test_attention_with_rope_and_alibi():
    """Softmax over the sum, by `attend`, causal: output and gradients."""
    encoding, places = rw.chain(made("rope"), made("alibi")), torch.arange(65)[None, :, None]
    q, k, v = (leaf(BATCH, HEADS, 65, HEAD_DIM, seed=seed) for seed in range(3))
    ours = rw.attend(q, k, v, encoding(torch.arange(65)), causal=True)
    mask = torch.full((65, 65), -math.inf, dtype=torch.float64).triu(1)
    total = logits(rope(q, places), rope(k, places)) + alibi(places, places, (0, 0)) + mask
    assert_same(ours, total.softmax(-1) @ v, [q, k, v], 65.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("prefix", [0, 1])
def test_mixed_and_learned_ape(prefix, dtype):
    """As in RoPE-ViT: the table is added once, wave vectors turn in every layer, the class token has neither."""
    shape = {"kv_heads": KV_HEADS, "layers": 2, "size": (3, 5)}
    parts = made("mixed", dtype, **shape), made("learned-ape", dtype, **shape)
    encoding, (wave, table) = rw.chain(*parts), [twin(x) for part in parts for x in part.parameters()]
    positions = encoding.grid(3, 5, dtype=dtype)
    code = encoding(positions).prefixed(q=prefix, k=prefix)
    x = leaf(BATCH, prefix + 15, HEADS * HEAD_DIM, seed=0, dtype=dtype)
    q = leaf(BATCH, HEADS, prefix + 15, HEAD_DIM, seed=1, dtype=dtype)
    k = leaf(BATCH, KV_HEADS, prefix + 15, HEAD_DIM, seed=2, dtype=dtype)
    ours = [code.tokens(x), *code[0].qk(q, k), *code[1].qk(q, k)]
    theirs = [x.double() + F.pad(table.flatten(0, 1), (0, 0, prefix, 0))]
    theirs += [mixed(y, wave[layer], positions, prefix) for layer in range(2) for y in (q, k)]
    assert_same(ours, theirs, [x, q, k, *zip((parts[0].wave, parts[1].table), (wave, table), strict=True)], 8.0)
    assert code[1].tokens(x) is x, "a layer adds nothing to tokens"
    assert code[0].scores(q, k) is None


def test_mixed_and_learned_ape_of_samples_and_keys_elsewhere():
    """Tokens are read at the queries' places. Between entries the table is linear."""
    parts = made("mixed", kv_heads=KV_HEADS, size=(3, 5)), made("learned-ape", kv_heads=KV_HEADS, size=(3, 5))
    queries = (torch.special.ndtr(normal(BATCH, 7, 2, seed=0)) * torch.tensor([2.0, 4.0])).requires_grad_()
    keys = leaf(BATCH, 9, 2, seed=1)
    code, wave, table = rw.chain(*parts)(queries, keys.clamp(0, 2)), twin(parts[0].wave), twin(parts[1].table)
    x, q = leaf(BATCH, 7, 24, seed=2), leaf(BATCH, HEADS, 7, HEAD_DIM, seed=3)
    k = leaf(BATCH, KV_HEADS, 9, HEAD_DIM, seed=4)
    corners = (queries / torch.tensor([1.0, 2.0]) - 1).flip(-1)[:, :, None]
    image = table.movedim(-1, 0).expand(BATCH, -1, -1, -1)
    offset = F.grid_sample(image, corners, mode="bilinear", align_corners=True)[..., 0].mT
    theirs = [x + offset, mixed(q, wave, queries), mixed(k, wave, keys.clamp(0, 2))]
    leaves = [x, q, k, queries, keys, (parts[0].wave, wave), (parts[1].table, table)]
    assert_same([code.tokens(x), *code.qk(q, k)], theirs, leaves, 8.0)


def test_half_precision():
    """Each part in float32, each rounded once: tokens and q and k to 2^-8 of a number."""
    parts = [made(name, torch.float32, size=(3, 5)) for name in ("mixed", "learned-ape")]
    encoding = rw.chain(*parts).bfloat16()
    positions = encoding.grid(3, 5)
    assert positions.dtype is torch.float32
    code = encoding(positions)
    x = normal(BATCH, 15, 24, seed=0).bfloat16()
    q, k = (normal(BATCH, HEADS, 15, HEAD_DIM, seed=seed).bfloat16() for seed in (1, 2))
    theirs = [x.double() + parts[1].table.detach().double().flatten(0, 1)]
    theirs += [mixed(y, parts[0].wave.detach().double(), positions) for y in (q, k)]
    for actual, expected in zip([code.tokens(x), *code.qk(q, k)], theirs, strict=True):
        assert actual.dtype is torch.bfloat16
        torch.testing.assert_close(actual.detach().double(), expected, rtol=2**-8, atol=1e-4)


def test_biases_add_up_and_a_basis_comes_first():
    """Three parts: what a part adds is of q and k as all parts have turned them."""
    names = ("string-circulant", "t5-bias", "alibi")
    parts = [made(name, kv_heads=KV_HEADS, axes=1) for name in names]
    q, k = normal(BATCH, HEADS, 7, HEAD_DIM, seed=0), normal(BATCH, KV_HEADS, 7, HEAD_DIM, seed=1)
    places = normal(7, 1, seed=2)
    turned_by, table, distance = (part(places) for part in parts)
    q1, k1 = turned_by.qk(q, k)
    for order in ((0, 1, 2), (2, 1, 0)):
        code = rw.chain(*(parts[i] for i in order))(places)
        for actual, expected in zip(code.qk(q, k), (q1, k1), strict=True):
            assert_close(actual.detach(), expected.detach())
        assert_close(code.scores(q1, k1).detach(), (table.scores(q1, k1) + distance.scores(q1, k1)).detach())


# What a chain is made of


def test_a_chain_has_the_parameters_of_its_parts():
    parts = made("mixed", size=(3, 5)), made("learned-ape", size=(3, 5))
    encoding = rw.chain(*parts)
    assert {name: tensor.data_ptr() for name, tensor in encoding.state_dict().items()} == {
        "members.0.wave": parts[0].wave.data_ptr(),
        "members.1.table": parts[1].table.data_ptr(),
    }
    assert list(rw.chain(made("rope"), made("alibi")).state_dict()) == []


CHAINS = {
    "rope, alibi": ({"kv_heads": 2, "layers": 2}, [("rope", {"base": 500.0, "interleaved": True}), ("alibi", {})]),
    "mixed, learned-ape": ({"size": (3, 5)}, [("mixed", {"base": 100.0}), ("learned-ape", {"interpolation": "bicubic"})]),
    "size of one": ({}, [("axial", {"variant": "eva"}), ("learned-ape", {"size": (3, 5)})]),
    "three": (
        {"size": (3, 5)},
        [("string-cayley", {"std": 0.5}), ("swin-bias", {"class_token": True}), ("sincos", {"axes": 2})],
    ),
    "mrope": ({}, [("mrope", {"sections": (1, 1, 1)}), ("alibi", {"axes": 3})]),
}


@pytest.mark.parametrize("case", CHAINS)
def test_a_chain_is_rebuilt_from_its_config(case):
    """Through JSON and a state dict: the same logits and tokens."""
    shape, parts = CHAINS[case]
    encoding = rw.chain(*(made(name, **(shape | options)) for name, options in parts))
    config = json.loads(json.dumps(encoding.config()))
    other = rw.create(**config).double()
    assert other.config() == encoding.config()
    other.load_state_dict(encoding.state_dict())
    sizes = {1: (7,), 2: (3, 5), 3: (2, 3, 2)}[encoding.axes]
    assert torch.equal(other.grid(*sizes), encoding.grid(*sizes))
    codes = [one(one.grid(*sizes, dtype=torch.float64)).prefixed(q=1, k=1) for one in (encoding, other)]
    tokens = 1 + math.prod(sizes)
    x, q = normal(BATCH, tokens, 24, seed=0), normal(BATCH, HEADS, tokens, HEAD_DIM, seed=1)
    k = q[:, : encoding.kv_heads or HEADS]
    assert torch.equal(*(code.tokens(x) for code in codes))
    blocks = [code if encoding.layers is None else code[1] for code in codes]
    for mine, others in zip(*(block.qk(q, k) for block in blocks), strict=True):
        assert torch.equal(mine, others)
    mine, others = (block.scores(*block.qk(q, k)) for block in blocks)
    assert mine is others is None or torch.equal(mine, others)


def simple(name: str, **options: object) -> rw.Encoding:
    return rw.create(name, **({"head_dim": 12, "heads": 2} | options))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "at least two parts, got 0"),
        (("rope",), "at least two parts, got 1"),
        (("rope", ("alibi", {"head_dim": 6})), r"head_dim, got 12.*rope, 6.*alibi"),
        (("rope", ("alibi", {"heads": 4})), r"heads, got 2.*rope, 4.*alibi"),
        (("rope", ("alibi", {"kv_heads": 1})), r"kv_heads, got None.*rope, 1.*alibi"),
        (("mixed", "alibi"), r"axes, got 2.*mixed, 1.*alibi"),
        (("rope", ("alibi", {"layers": 3})), r"layers, got None.*rope, 3.*alibi"),
        ((("mixed", {"size": (4, 5)}), ("learned-ape", {"size": (3, 5)})), r"size, got \(4, 5\).*mixed, \(3, 5\)"),
        (("golden", ("learned-ape", {"size": (3, 5)})), r"coordinates, got 'area'.*golden, 'index'.*learned-ape"),
        (("rope", "xpos"), r"chain.*q and k.*got rope, xpos"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, message):
    made_parts = [simple(part) if isinstance(part, str) else simple(part[0], **part[1]) for part in parts]
    with pytest.raises(ValueError, match=message):
        rw.chain(*made_parts)


def test_a_chain_may_be_a_part_of_a_chain():
    """Which is rebuilt from its config as well, and turns q and k only once too."""
    inner = rw.chain(simple("rope"), simple("alibi"))
    nested = rw.chain(inner, simple("t5-bias"))
    flat = rw.chain(simple("rope"), simple("alibi"), nested.members[2])
    again = rw.create(**json.loads(json.dumps(nested.config())))
    again.load_state_dict(nested.state_dict())
    q, k = (normal(1, 2, 7, 12, seed=seed, dtype=torch.float32) for seed in (0, 1))
    wanted = flat(torch.arange(7))
    for code in (nested(torch.arange(7)), again(torch.arange(7))):
        for actual, expected in zip(code.qk(q, k), wanted.qk(q, k), strict=True):
            assert torch.equal(actual, expected)
        assert_close(code.scores(q, k).detach(), wanted.scores(q, k).detach())
    with pytest.raises(ValueError, match=r"chain.*q and k"):
        rw.chain(inner, simple("xpos"))


def test_parts_are_encodings():
    with pytest.raises((TypeError, ValueError), match=r"part.*'rope'"):
        rw.chain("rope", "alibi")


def test_parts_that_add_to_tokens_agree_on_width():
    shape = {"head_dim": 12, "heads": 2}
    with pytest.raises(ValueError, match=r"width, got \[10, 24\]"):
        rw.chain(rw.create("sincos", **shape), rw.create("sincos", **shape, width=10))


def parts(*names, **options):
    return [rw.create(name, head_dim=12, heads=2, **options) for name in names]


def test_a_chain_of_chains_is_one_chain():
    rope, alibi, sincos = parts("rope", "alibi", "sincos")
    whole = rw.chain(rw.chain(rope, alibi), sincos)
    assert list(whole.members) == [rope, alibi, sincos]
    with pytest.raises(ValueError, match=r"chain.*q and k.*got rope, xpos"):
        rw.chain(rw.chain(rope, alibi), *parts("xpos"))


def test_terms_that_know_content_must_not_see_turned_queries():
    with pytest.raises(ValueError, match=r"relative.*got rope, transformer-xl"):
        rw.chain(*parts("transformer-xl", "rope"))


def test_a_chain_refuses_a_shape_that_its_parts_do_not_have():
    for wrong in ({"head_dim": 99}, {"heads": 7}, {"layers": 2}, {"size": (3,)}):
        ((name, value),) = wrong.items()
        with pytest.raises(
            ValueError, match=rf"the parts of this chain have {name}=.*, got {name}={re.escape(repr(value))}"
        ):
            rw.create("chain", parts=parts("rope", "alibi"), **wrong)
    with pytest.raises(TypeError, match=r"bogus.*chain.*head_dim"):
        rw.create("chain", parts=parts("rope", "alibi"), bogus=3)
    with pytest.raises(ValueError, match=r"chain.*two parts, got 0"):
        rw.create("chain", head_dim=12)


@pytest.mark.parametrize("axes", [1, 2])
def test_the_repr_of_a_chain_has_its_axes(axes):
    whole = rw.chain(*parts("mixed", "alibi", axes=axes))
    assert f"axes={axes}" in repr(whole)
    assert whole.traits.reach == 1e6
    assert rw.chain(*parts("none", "mixed", axes=axes)).traits.reach == 1e6

"""Codes of codes, and codes whose bias knows content or prefix: against matrices and loops written out."""

import dataclasses
import itertools
import math

import pytest
import torch
from torch.utils import _pytree as pytree

import ropewalk as rw
from ropewalk.ops.layout import exactly
from tests.support.random_tensors import DOUBLE, normal

pytestmark = pytest.mark.usefixtures("drawn_anew")


def orthogonal(*lead, size=6):
    return torch.linalg.qr(normal(*lead, size, size))[0]


def turning(layers=None, batch=(), heads=2):
    """A basis and a rotation of pairs, for 3 queries and 4 keys."""
    lead = () if layers is None else (layers,)
    basis = rw.Basis(layers=layers, head_dim=6, basis=orthogonal(*lead, heads))
    angles = {f"{side}_angle": normal(*lead, *batch, heads, n, 3) for side, n in (("q", 3), ("k", 4))}
    return rw.Chain(layers=layers, codes=(basis, rw.Rotation(layers=layers, head_dim=6, interleaved=True, **angles)))


def content(layers=None, batch=()):
    lead = () if layers is None else (layers,)
    tables = {"u": (2, 6), "v": (2, 6), "sine": (2, 6, 5), "cosine": (2, 6, 5)}
    places = {"q_angle": (*batch, 3, 5), "k_angle": (*batch, 4, 5)}
    return rw.ContentBias(layers=layers, **{name: normal(*lead, *shape) for name, shape in {**tables, **places}.items()})


# Bases and chains


@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (4, 4)])
def test_a_basis_writes_q_and_k_of_all_tokens_in_its_vectors(heads):
    code = rw.Basis(head_dim=6, basis=orthogonal(2)).prefixed(q=1, k=2)
    for side, n in (("q", heads[0]), ("k", heads[1])):
        x = normal(2, n, 5, 6)
        mine = getattr(code, side)(x)
        for head, token, vector in itertools.product(range(n), range(5), range(6)):
            along = code.basis[head // (n // 2)][:, vector]
            torch.testing.assert_close(mine[:, head, token, vector], x[:, head, token] @ along, **DOUBLE)


def test_a_basis_alone_changes_no_score():
    code, q, k = rw.Basis(head_dim=6, basis=orthogonal(2)), normal(2, 4, 3, 6), normal(2, 2, 3, 6)
    turned = code.qk(q, k)
    scores = [a @ b.repeat_interleave(2, 1).mT for a, b in ((q, k), turned)]
    torch.testing.assert_close(scores[0], scores[1], **DOUBLE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_basis_multiplies_in_float32_and_keeps_the_dtype(dtype):
    code, q = rw.Basis(head_dim=6, basis=orthogonal(2).float()), normal(2, 4, 3, 6).to(dtype)
    plain = code.q(q)
    assert plain.dtype is dtype
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(code.q(q), plain)
    exact = q.double().unflatten(1, (2, 2)) @ code.basis[:, None].double()
    rounding = 2.0**-8 if dtype is torch.bfloat16 else 2.0**-21
    assert ((plain.double() - exact.flatten(1, 2)).abs() <= rounding * (1 + exact.flatten(1, 2).abs())).all()


@pytest.mark.parametrize("shape", [(2, 4, 3, 5), (2, 3, 3, 6), (4, 3, 6)])
def test_a_basis_wants_its_width_and_heads(shape):
    got = ", ".join(map(str, shape))
    with pytest.raises(ValueError, match=rf"q must be \(B, a multiple of 2 heads, tokens, 6\), got \({got}\)"):
        rw.Basis(head_dim=6, basis=orthogonal(2)).q(normal(*shape))


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("layers", [None, 3])
def test_matrices_of_a_chain_are_products_last_code_first(layers, batch):
    code = turning(layers, batch).prefixed(q=1, k=2)
    basis, rotation = code.codes
    for mine, turns in ((code.matrices(), rotation.matrices()), (code.key_matrices(), rotation.key_matrices())):
        assert mine.shape == turns.shape
        for index in itertools.product(*map(range, turns.shape[:-2])):
            own = basis.basis[(*(index[:1] if layers else ()), index[-2])]
            torch.testing.assert_close(mine[index], turns[index] @ own.T, **DOUBLE)


def test_q_and_k_of_a_chain_are_turned_by_its_matrices_prefix_included():
    code, q, k = turning().prefixed(q=1, k=2), normal(2, 4, 4, 6), normal(2, 2, 6, 6)
    for mine, x, each in zip(code.qk(q, k), (q, k), (code.matrices(), code.key_matrices()), strict=True):
        turned = each.repeat_interleave(x.shape[1] // 2, 0) @ x.unsqueeze(-1)
        torch.testing.assert_close(mine, turned.squeeze(-1), **DOUBLE)
    torch.testing.assert_close((code.q(q), code.k(k)), code.qk(q, k), **DOUBLE)


def test_only_chains_that_turn_have_matrices():
    bias = rw.create("alibi", head_dim=6, heads=2)(torch.arange(3))
    with pytest.raises(TypeError, match=r"got.*Basis, Rotation, Bias"):
        rw.Chain(codes=(*turning().codes, bias)).matrices()
    with pytest.raises(TypeError, match="got one of nothing"):
        rw.Chain(codes=()).key_matrices()


def test_a_chain_of_nothing_does_nothing():
    code, q, k, x = rw.Chain(codes=()), normal(1, 2, 3, 6), normal(1, 2, 3, 6), normal(1, 3, 12)
    assert code.qk(q, k)[0] is q
    assert code.tokens(x) is x
    assert code.scores(q, k) is None
    assert code.score_mod(q, k) is None


def test_a_chain_adds_up_offsets_and_biases():
    alibi = rw.create("alibi", head_dim=6, heads=2)
    codes = tuple(alibi(scale * torch.arange(3.0)[:, None]) for scale in (1.0, 2.0))
    offsets = tuple(rw.Offset(offset=normal(3, 12)) for _ in range(2))
    code, q, x = rw.Chain(codes=codes + offsets), normal(1, 2, 3, 6).float(), normal(1, 3, 12)
    torch.testing.assert_close(code.scores(q, q), 3 * codes[0].scores(q, q))
    torch.testing.assert_close(code.tokens(x), x + offsets[0].offset + offsets[1].offset, **DOUBLE)
    score, where = torch.tensor(0.5), [torch.tensor(i) for i in (0, 1, 2, 0)]
    torch.testing.assert_close(code.score_mod(q, q)(score, *where), 0.5 + code.scores(q, q)[1, 2, 0])


@pytest.mark.parametrize("layer", [0, -1])
def test_a_layer_of_a_chain_is_the_chain_of_that_layer(layer):
    code = turning(3).prefixed(q=1, k=2)
    one = code[layer]
    assert (one.layers, one.q_prefix, one.k_prefix) == (None, 1, 2)
    assert [type(part) for part in one.codes] == [rw.Basis, rw.Rotation]
    torch.testing.assert_close(one.matrices(), code.matrices()[layer], **DOUBLE)
    for use in (code.qk, code.scores, code.score_mod):
        with pytest.raises(TypeError, match=r"3 layers.*code\[i\].*block"):
            use(normal(1, 2, 4, 6), normal(1, 2, 6, 6))
    with pytest.raises(IndexError, match=r"3.*3 layers"):
        code[3]


def test_a_chain_says_what_its_parts_are():
    offset, bias, xl = rw.Offset(offset=normal(3, 12)), rw.create("alibi", head_dim=6)(torch.arange(3)), content()
    facts = {
        (): (True, False, False),
        turning().codes: (True, False, False),
        (*turning().codes, offset): (False, False, False),
        (offset, bias): (False, True, True),
        (xl, bias): (False, True, False),
    }
    for codes, wanted in facts.items():
        code = rw.Chain(codes=codes)
        assert (code.rotary, code.biased, code.sparing) == wanted


def test_a_chain_is_a_pytree_of_the_tensors_of_its_codes():
    code = turning().prefixed(q=1)
    leaves, structure = pytree.tree_flatten(code)
    assert [leaf.shape for leaf in leaves] == [(2, 6, 6), (2, 3, 3), (2, 4, 3)]
    again = pytree.tree_unflatten(leaves, structure)
    torch.testing.assert_close(again.matrices(), code.matrices(), **DOUBLE)
    assert pytree.tree_structure(code) != pytree.tree_structure(turning())


# Biases that know content


@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (4, 4)])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_terms_of_transformer_xl_one_pair_at_a_time(heads, batch):
    code, q, k = content(batch=batch).prefixed(q=1, k=2), normal(2, heads[0], 4, 6), normal(2, heads[1], 6, 6)
    mine = code.scores(q, k)
    assert mine.shape == (2, heads[0], 4, 6)
    for b, h, i, j in itertools.product(range(2), range(heads[0]), range(4), range(6)):
        row, key = h // (heads[0] // 2), k[b, h // (heads[0] // heads[1]), j]
        if i < 1 or j < 2:
            assert mine[b, h, i, j] == 0
            continue
        x, y = (angle[b] if batch else angle for angle in (code.q_angle, code.k_angle))
        apart = x[i - 1] - y[j - 2]
        relative = code.sine[row] @ apart.sin() + code.cosine[row] @ apart.cos()
        want = (code.u[row] @ key + (q[b, h, i] + code.v[row]) @ relative) / math.sqrt(6)
        torch.testing.assert_close(mine[b, h, i, j], want, **DOUBLE)
        where = [torch.tensor(n) for n in (b, h, i, j)]
        torch.testing.assert_close(code.score_mod(q, k)(torch.zeros((), dtype=torch.float64), *where), want, **DOUBLE)


def test_content_terms_pass_gradients_to_everything():
    def scores(q, k, *fields):
        names = ("u", "v", "sine", "cosine", "q_angle", "k_angle")
        return rw.ContentBias(**dict(zip(names, fields, strict=True))).scores(q, k)

    code = content()
    given = [normal(1, 2, 3, 6), normal(1, 2, 4, 6), code.u, code.v, code.sine, code.cosine, code.q_angle, code.k_angle]
    assert torch.autograd.gradcheck(scores, [x.requires_grad_() for x in given], fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_content_terms_are_at_least_as_wide_as_queries_and_tables(dtype):
    code = pytree.tree_map(lambda tensor: tensor.float(), content())
    q, k = normal(2, 2, 3, 6).to(dtype), normal(2, 2, 4, 6).to(dtype)
    scores = code.scores(q, k)
    assert scores.dtype is torch.promote_types(dtype, torch.float32)
    exact = pytree.tree_map(lambda tensor: tensor.double(), code).scores(q.double(), k.double())
    torch.testing.assert_close(scores.double(), exact, rtol=0, atol=1e-5)


def test_content_terms_want_queries_and_keys_at_their_places():
    code = content(batch=(2,)).prefixed(q=1)
    for use in (code.qk, code.scores):
        with pytest.raises(ValueError, match=r"q.*\(2.*2 heads, 4, 6\), got \(2, 2, 3, 6\)"):
            use(normal(2, 2, 3, 6), normal(2, 2, 4, 6))
        with pytest.raises(ValueError, match=r"k.*\(2.*2 heads, 4, 6\), got \(1, 2, 4, 6\)"):
            use(normal(2, 2, 4, 6), normal(1, 2, 4, 6))


# Biases that know the prefix


@dataclasses.dataclass(frozen=True)
class Product:
    def __call__(self, table, head, query, key):
        return table[head] * query[0] * key[0]


@pytest.mark.parametrize("prefix", [(0, 0), (1, 0), (0, 2), (1, 2)])
@pytest.mark.parametrize(("n", "m"), [(3, 4), (0, 4), (0, 0)])
def test_a_bias_may_have_entries_for_the_prefix(prefix, n, m):
    fields = {"table": normal(2), "prefix": normal(2, 3), "q_positions": normal(n, 1), "k_positions": normal(m, 1)}
    code = rw.Bias(rule=Product(), **fields).prefixed(*prefix)
    q, k = normal(1, 4, prefix[0] + n, 6), normal(1, 4, prefix[1] + m, 6)
    mine, modify = code.scores(q, k), code.score_mod(q, k)
    for h, i, j in itertools.product(range(4), range(q.shape[2]), range(k.shape[2])):
        query, key = i < prefix[0], j < prefix[1]
        want = code.prefix[h // 2, 2 if query and key else 0 if query else 1]
        if not (query or key):
            want = code.table[h // 2] * code.q_positions[i - prefix[0], 0] * code.k_positions[j - prefix[1], 0]
        torch.testing.assert_close(mine[h, i, j], want, **DOUBLE)
        place = [torch.tensor(x) for x in (0, h, i, j)]
        got = modify(torch.zeros((), dtype=torch.float64), *place)
        torch.testing.assert_close(got, want, **DOUBLE)


def test_entries_for_the_prefix_belong_to_a_layer():
    fields = {"q_positions": normal(3, 1), "k_positions": normal(3, 1), "table": normal(5, 2), "prefix": normal(5, 2, 3)}
    code = rw.Bias(rule=Product(), layers=5, **fields).prefixed(q=1, k=1)
    x = normal(1, 2, 4, 6)
    torch.testing.assert_close(code[3].scores(x, x)[:, 0, 0], code.prefix[3, :, 2], **DOUBLE)


def test_a_rule_that_reads_its_table_twice_is_not_for_flex_attention():
    swin, alibi = (rw.create(name, head_dim=6, heads=2, axes=2, size=(3, 5)) for name in ("swin-bias", "alibi"))
    codes = [encoding(encoding.grid(3, 5)) for encoding in (swin, alibi)]
    assert [code.sparing for code in codes] == [False, True]
    q = normal(1, 2, 15, 6).float()
    got = codes[0].score_mod(q, q)(torch.tensor(0.0), *(torch.tensor(i) for i in (0, 1, 2, 14)))
    torch.testing.assert_close(got, codes[0].scores(q, q)[1, 2, 14], **DOUBLE)


def test_a_bias_wants_queries_or_keys_at_their_places_alone_too():
    code = rw.create("alibi", head_dim=6, heads=2)(torch.arange(3)).prefixed(k=1)
    with pytest.raises(ValueError, match=r"q.*\(B, heads, 3, channels\), got \(1,\)"):
        code.q(normal(1))
    with pytest.raises(ValueError, match=r"k.*\(B, heads, 4, channels\), got \(1, 2, 3, 6\)"):
        code.k(normal(1, 2, 3, 6))


@pytest.mark.parametrize("before", ["highest", "high", "medium"])
def test_products_are_in_full_float32_whatever_is_set(before):
    torch.set_float32_matmul_precision(before)
    try:
        with exactly(torch.zeros(1)):
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == before
        with pytest.raises(KeyError), exactly(torch.zeros(1)):
            raise KeyError
        assert torch.get_float32_matmul_precision() == before
    finally:
        torch.set_float32_matmul_precision("highest")

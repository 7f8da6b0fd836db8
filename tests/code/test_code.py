"""Codes: what they do to tokens, q, k and logits, against matrices written out; layers, prefixes, pytrees, errors."""

import dataclasses
import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree

import ropewalk as rw
from tests.support.random_tensors import DOUBLE, normal

pytestmark = pytest.mark.usefixtures("drawn_anew")


@dataclasses.dataclass(frozen=True)
class Apart:
    """A rule for a bias: the table's entry of the head, the difference along the first axis, the square of the last."""

    power: int = 2

    def __call__(self, table, head, query, key):
        return table[head] * (key[0] - 2 * query[0]) + (query[-1] - key[-1]) ** self.power


class Kind(NamedTuple):
    """A kind of code, made for queries and keys of its own; `layers` and `batch` lead its tables."""

    make: type
    fields: dict
    tables: dict

    def build(self, layers=None, **changes):
        lead = () if layers is None else (layers,)
        tables = {name: normal(*lead, *shape) for name, shape in self.tables.items()}
        return self.make(layers=layers, **{**self.fields, **tables, **changes})


# Two table heads, 3 queries and 4 keys, heads of 7 channels of which 6 turn.
KINDS = {
    "code": Kind(rw.Code, {}, {}),
    "offset": Kind(rw.Offset, {"offset": normal(3, 14)}, {}),
    "interleaved": Kind(rw.Rotation, {"head_dim": 7, "interleaved": True}, {"q_angle": (2, 3, 3), "k_angle": (2, 4, 3)}),
    "half-split": Kind(rw.Rotation, {"head_dim": 7, "interleaved": False}, {"q_angle": (2, 3, 3), "k_angle": (2, 4, 3)}),
    "gain": Kind(
        rw.Rotation,
        {"head_dim": 7, "interleaved": True},
        {"q_angle": (2, 3, 3), "k_angle": (2, 4, 3), "q_gain": (2, 3, 3), "k_gain": (2, 4, 3)},
    ),
    "sphere": Kind(rw.Sphere, {"head_dim": 7}, {"q_angle": (2, 3, 2, 3), "k_angle": (2, 4, 2, 3)}),
    "turn": Kind(rw.Turn, {"head_dim": 7}, {"q_matrix": (2, 3, 2, 3, 3), "k_matrix": (2, 4, 2, 3, 3)}),
    "bias": Kind(rw.Bias, {"rule": Apart(), "q_positions": normal(3, 2), "k_positions": normal(4, 2)}, {"table": (2,)}),
}
ROTARY = {name: KINDS[name] for name in ("interleaved", "half-split", "gain", "sphere", "turn")}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
rotary = pytest.mark.parametrize("kind", ROTARY.values(), ids=ROTARY)


def q_and_k(q_prefix=0, k_prefix=0, heads=(4, 2)):
    return normal(2, heads[0], 3 + q_prefix, 7), normal(2, heads[1], 4 + k_prefix, 7)


def tensors(code):
    return {f.name: getattr(code, f.name) for f in dataclasses.fields(code) if torch.is_tensor(getattr(code, f.name))}


def plain(code):
    return {f.name: getattr(code, f.name) for f in dataclasses.fields(code) if f.name not in tensors(code)}


# Values


@every_kind
@pytest.mark.parametrize("layers", [None, 5])
def test_codes_are_frozen(kind, layers):
    code = kind.build(layers)
    for name in (*tensors(code), *plain(code), "new"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(code, name, 1)


@every_kind
@pytest.mark.parametrize("layers", [None, 5])
def test_codes_are_pytrees_of_their_tensors(kind, layers):
    code = kind.build(layers).prefixed(q=1, k=2)
    leaves, structure = pytree.tree_flatten(code)
    assert {id(leaf) for leaf in leaves if leaf is not None} == {id(tensor) for tensor in tensors(code).values()}
    again = pytree.tree_unflatten(leaves, structure)
    assert type(again) is type(code)
    assert plain(again) == plain(code)
    assert all(getattr(again, name) is tensor for name, tensor in tensors(code).items())


@every_kind
def test_structure_of_a_pytree_is_all_but_the_tensors(kind):
    code, like, other = kind.build(), kind.build(), kind.build().prefixed(q=1)
    assert pytree.tree_structure(code) == pytree.tree_structure(like)
    assert pytree.tree_structure(code) != pytree.tree_structure(other)


@every_kind
@pytest.mark.parametrize("layers", [None, 5])
def test_codes_can_be_mapped(kind, layers):
    code = kind.build(layers).prefixed(k=3)
    single = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.float() + 1, code)
    assert type(single) is type(code)
    assert plain(single) == plain(code)
    for name, tensor in tensors(code).items():
        torch.testing.assert_close(getattr(single, name), tensor.float() + 1, rtol=0, atol=0)


@every_kind
def test_codes_pass_into_compiled_functions(kind):
    code, (q, k) = kind.build(), q_and_k()

    def use(code, q, k):
        q, k = code.qk(q, k)
        scores = code.scores(q, k)
        return q, k, q.new_zeros(1) if scores is None else scores

    torch.compiler.reset()
    compiled = torch.compile(use, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(code, q, k), use(code, q, k), **DOUBLE)


# Layers


@every_kind
@pytest.mark.parametrize("layer", range(-5, 5))
def test_a_layer_of_a_code(kind, layer):
    code = kind.build(5).prefixed(q=1, k=2)
    one = code[layer]
    assert one.layers is None
    assert (one.q_prefix, one.k_prefix) == (1, 2)
    if kind.make is rw.Offset:
        assert type(one) is rw.Code
        return
    assert type(one) is type(code)
    for name, tensor in tensors(code).items():
        own = tensor[layer % 5] if name in kind.tables else tensor
        torch.testing.assert_close(getattr(one, name), own, rtol=0, atol=0)
    rest = {"layers": None, "q_prefix": 1, "k_prefix": 2}
    assert plain(one) == {**plain(code), **rest}


@every_kind
def test_layers_count_as_a_sequence_does(kind):
    code = kind.build(5)
    assert len(list(code)) == 5
    for layer in (5, -6, 100):
        with pytest.raises(IndexError, match=f"5 layers, got {layer}"):
            code[layer]


@every_kind
def test_a_code_without_layers_has_none_to_choose(kind):
    with pytest.raises(TypeError, match=r"layers.*encoding.*layers="):
        kind.build()[0]
    with pytest.raises(TypeError, match="no layers"):
        kind.build(5)[0][0]


@every_kind
@pytest.mark.parametrize(
    "use",
    [
        lambda code, q, k: code.qk(q, k),
        lambda code, q, k: code.q(q),
        lambda code, q, k: code.k(k),
        lambda code, q, k: code.scores(q, k),
        lambda code, q, k: code.score_mod(q, k),
    ],
    ids=["qk", "q", "k", "scores", "score_mod"],
)
def test_a_code_of_many_layers_must_be_indexed(kind, use):
    with pytest.raises(TypeError, match=r"5 layers.*code\[i\].*block"):
        use(kind.build(5), *q_and_k())
    use(kind.build(5)[2], *q_and_k())


@every_kind
@pytest.mark.parametrize("layers", [None, 5])
def test_only_an_offset_touches_tokens_and_only_once(kind, layers):
    code, x = kind.build(layers), normal(2, 3, 14)
    if kind.make is rw.Offset:
        torch.testing.assert_close(code.tokens(x), x + code.offset, **DOUBLE)
    else:
        assert code.tokens(x) is x
    if layers:
        assert code[0].tokens(x) is x


# Prefixes


@every_kind
def test_prefixes_add_up(kind):
    code = kind.build().prefixed(q=1, k=2).prefixed(q=3).prefixed(k=4)
    assert (code.q_prefix, code.k_prefix) == (4, 6)
    before = kind.build()
    before.prefixed(q=1, k=1)
    assert (before.q_prefix, before.k_prefix) == (0, 0)


@pytest.mark.parametrize("lengths", [{"q": -1}, {"k": -2}, {"q": 1, "k": -1}])
def test_prefixes_are_not_negative(lengths):
    with pytest.raises(ValueError, match=r"[qk] must be an integer at least 0, got -"):
        rw.Code(q_prefix=5, k_prefix=5).prefixed(**lengths)


def test_offset_leaves_the_prefix_alone():
    code, x = KINDS["offset"].build().prefixed(q=2), normal(2, 5, 14)
    moved = code.tokens(x)
    assert torch.equal(moved[:, :2], x[:, :2])
    torch.testing.assert_close(moved[:, 2:], x[:, 2:] + code.offset, **DOUBLE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_offset_of_each_sample_in_the_dtype_of_the_tokens(dtype):
    offset, x = normal(2, 3, 4).float(), normal(2, 3, 4).to(dtype)
    moved = rw.Offset(offset=offset).tokens(x)
    assert moved.dtype is dtype
    assert torch.equal(moved, (x.float() + offset).to(dtype))


# Matrices


def pairs(angle, gain, interleaved, size=7):
    matrix = torch.eye(size, dtype=torch.float64)
    for p, (a, g) in enumerate(zip(angle.tolist(), gain.tolist(), strict=True)):
        i, j = (2 * p, 2 * p + 1) if interleaved else (p, p + len(angle))
        block = [[g * math.cos(a), -g * math.sin(a)], [g * math.sin(a), g * math.cos(a)]]
        for row, column in itertools.product(range(2), repeat=2):
            matrix[(i, j)[row], (i, j)[column]] = block[row][column]
    return matrix


def triplets(angle, size=7):
    """Rotations about the middle, the first and the last channel of a triplet, the first axis acting first."""
    matrix = torch.eye(size, dtype=torch.float64)
    for t, angles in enumerate(angle.tolist()):
        turns = []
        for axis, a in enumerate(angles):
            cos, sin = math.cos(a), math.sin(a)
            turns.append(
                [
                    [[cos, 0, -sin], [0, 1, 0], [sin, 0, cos]],
                    [[1, 0, 0], [0, cos, -sin], [0, sin, cos]],
                    [[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]],
                ][axis]
            )
        first, second, third = torch.tensor(turns, dtype=torch.float64)
        matrix[3 * t : 3 * t + 3, 3 * t : 3 * t + 3] = third @ second @ first
    return matrix


def blocks(given, size=7):
    matrix = torch.eye(size, dtype=torch.float64)
    for g, block in enumerate(given):
        start = g * len(block)
        matrix[start : start + len(block), start : start + len(block)] = block
    return matrix


def written_out(code, side):
    """The matrix of each head and token of one side, (h, n, D, D), the prefix included."""
    if isinstance(code, rw.Rotation):
        angle = getattr(code, f"{side}_angle")
        gain = getattr(code, f"{side}_gain")
        gain = torch.ones_like(angle) if gain is None else gain
        rows = [[pairs(a, g, code.interleaved) for a, g in zip(*row, strict=True)] for row in zip(angle, gain, strict=True)]
    elif isinstance(code, rw.Sphere):
        rows = [[triplets(angle) for angle in row] for row in getattr(code, f"{side}_angle")]
    else:
        rows = [[blocks(matrix) for matrix in row] for row in getattr(code, f"{side}_matrix")]
    still = [torch.eye(7, dtype=torch.float64)] * getattr(code, f"{side}_prefix")
    return torch.stack([torch.stack([*still, *row]) for row in rows])


@rotary
@pytest.mark.parametrize("prefix", [(0, 0), (1, 2)])
def test_matrices(kind, prefix):
    code = kind.build().prefixed(*prefix)
    torch.testing.assert_close(code.matrices(), written_out(code, "q"), **DOUBLE)
    torch.testing.assert_close(code.key_matrices(), written_out(code, "k"), **DOUBLE)


@rotary
def test_keys_stand_where_queries_stand_unless_told(kind):
    tables = {name: shape for name, shape in kind.tables.items() if name[0] == "q"}
    code = Kind(kind.make, kind.fields, tables).build()
    if kind is KINDS["gain"]:
        assert code.k_gain is None  # a gain of the queries is theirs alone
        code = dataclasses.replace(code, q_gain=None)
    torch.testing.assert_close(code.key_matrices(), code.matrices(), **DOUBLE)
    q = normal(2, 4, 3, 7)
    torch.testing.assert_close(code.k(q), code.q(q), **DOUBLE)


@rotary
def test_matrices_lead_with_layers_and_samples(kind):
    code = Kind(kind.make, kind.fields, {name: (2, *shape) for name, shape in kind.tables.items()}).build(5)
    assert code.matrices().shape == (5, 2, 2, 3, 7, 7)
    assert code.key_matrices().shape == (5, 2, 2, 4, 7, 7)
    for layer, sample in itertools.product(range(5), range(2)):
        one = dataclasses.replace(code[layer], **{name: getattr(code, name)[layer, sample] for name in kind.tables})
        torch.testing.assert_close(code.matrices()[layer, sample], written_out(one, "q"), **DOUBLE)
        torch.testing.assert_close(code.key_matrices()[layer, sample], written_out(one, "k"), **DOUBLE)


@rotary
@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (8, 4)])
def test_q_and_k_are_turned_by_the_matrices(kind, heads):
    """Query and key heads are shared out over the table's, in runs; scores follow, the prefix included."""
    code = kind.build().prefixed(q=1, k=2)
    q, k = q_and_k(1, 2, heads)
    turned = {"q": q.clone(), "k": k.clone()}
    for side, x in turned.items():
        matrices = written_out(code, side)
        for head, token in itertools.product(range(x.shape[1]), range(x.shape[2])):
            x[:, head, token] = x[:, head, token] @ matrices[head // (x.shape[1] // 2), token].T
    mine = code.qk(q, k)
    torch.testing.assert_close(mine, (turned["q"], turned["k"]), **DOUBLE)
    group = heads[0] // heads[1]
    scores = mine[0] @ mine[1].repeat_interleave(group, dim=1).mT
    torch.testing.assert_close(scores, turned["q"] @ turned["k"].repeat_interleave(group, dim=1).mT, **DOUBLE)
    assert code.scores(*mine) is None
    assert code.score_mod(*mine) is None


@every_kind
def test_q_and_k_alone(kind):
    code, (q, k) = kind.build().prefixed(q=1, k=2), q_and_k(1, 2)
    both = code.qk(q, k)
    assert torch.equal(code.q(q), both[0])
    assert torch.equal(code.k(k), both[1])
    if kind.make in (rw.Code, rw.Offset, rw.Bias):
        assert code.q(q) is q
        assert code.k(k) is k


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_q_and_k_keep_their_dtype(kind, dtype):
    q, k = kind.build().qk(*(x.to(dtype) for x in q_and_k()))
    assert q.dtype is k.dtype is dtype


# Biases


def bias_of(code, heads):
    """Head by head, query by query, key by key: (2, H, N, M)."""
    batched = code.q_positions.ndim == 3, code.k_positions.ndim == 3
    shape = (2, heads, code.q_prefix + code.q_positions.shape[-2], code.k_prefix + code.k_positions.shape[-2])
    total = torch.zeros(shape, dtype=torch.float64)
    for b, h, i, j in itertools.product(*map(range, shape)):
        if i >= code.q_prefix and j >= code.k_prefix:
            p = (code.q_positions[b] if batched[0] else code.q_positions)[i - code.q_prefix].tolist()
            r = (code.k_positions[b] if batched[1] else code.k_positions)[j - code.k_prefix].tolist()
            entry = code.table[h // (heads // len(code.table))].item()
            total[b, h, i, j] = entry * (r[0] - 2 * p[0]) + (p[-1] - r[-1]) ** 2
    return total


BIASES = {
    "shared": {},
    "one-axis": {"q_positions": normal(3, 1), "k_positions": normal(4, 1)},
    "per-sample": {"q_positions": normal(2, 3, 2), "k_positions": normal(2, 4, 2)},
    "queries-per-sample": {"q_positions": normal(2, 3, 2)},
    "keys-per-sample": {"k_positions": normal(2, 4, 2)},
    "one-head": {"table": normal(1)},
}


@pytest.mark.parametrize("changes", BIASES.values(), ids=BIASES)
@pytest.mark.parametrize("prefix", [(0, 0), (1, 2), (2, 0)])
@pytest.mark.parametrize("heads", [2, 6])
def test_bias(changes, prefix, heads):
    code = KINDS["bias"].build(**changes).prefixed(*prefix)
    q, k = q_and_k(*prefix, heads=(heads, heads))
    scores = code.scores(q, k)
    torch.testing.assert_close(scores.expand(2, -1, -1, -1), bias_of(code, heads), **DOUBLE)


@pytest.mark.parametrize("changes", BIASES.values(), ids=BIASES)
@pytest.mark.parametrize("prefix", [(0, 0), (1, 2)])
def test_bias_element_by_element(changes, prefix):
    """What flex attention calls, one score at a time, with the heads of the queries."""
    code = KINDS["bias"].build(**changes).prefixed(*prefix)
    want, modify = bias_of(code, 4), code.score_mod(*q_and_k(*prefix, heads=(4, 4)))
    score, index = normal(()), itertools.product(*map(range, want.shape))
    mine = torch.stack([modify(score, *map(torch.tensor, place)) for place in index]).view_as(want)
    torch.testing.assert_close(mine, score + want, **DOUBLE)


def test_bias_passes_gradients_to_its_table_and_positions():
    q, k = q_and_k(heads=(4, 4))

    def scores(table, q_positions, k_positions):
        return rw.Bias(rule=Apart(), table=table, q_positions=q_positions, k_positions=k_positions).scores(q, k)

    given = [x.requires_grad_() for x in (normal(2), normal(3, 2), normal(2, 4, 2))]
    assert torch.autograd.gradcheck(scores, given)


# Errors


@rotary
@pytest.mark.parametrize(
    ("side", "shape", "wanted"),
    [
        ("q", (2, 4, 5, 7), r"a multiple of 2 heads, 4, 7\)"),
        ("q", (2, 4, 4, 6), r"a multiple of 2 heads, 4, 7\)"),
        ("q", (2, 3, 4, 7), r"a multiple of 2 heads, 4, 7\)"),
        ("q", (4, 4, 7), r"a multiple of 2 heads, 4, 7\)"),
        ("k", (2, 2, 4, 7), r"a multiple of 2 heads, 6, 7\)"),
        ("k", (2, 1, 6, 7), r"a multiple of 2 heads, 6, 7\)"),
    ],
)
def test_rotary_shapes(kind, side, shape, wanted):
    code = kind.build().prefixed(q=1, k=2)
    got = "got \\(" + ", ".join(map(str, shape)) + "\\)"
    with pytest.raises(ValueError, match=f"{side} must be .*{wanted}, {got}"):
        getattr(code, side)(normal(*shape))
    right = {"q": normal(2, 4, 4, 7), "k": normal(2, 2, 6, 7)}
    with pytest.raises(ValueError, match=f"{side} must be .*{wanted}, {got}"):
        code.qk(*({**right, side: normal(*shape)}[name] for name in ("q", "k")))


@rotary
def test_rotary_tables_of_samples_fit_their_batch_alone(kind):
    code = Kind(kind.make, kind.fields, {name: (3, *shape) for name, shape in kind.tables.items()}).build()
    with pytest.raises(ValueError, match=r"q.*3.*got \(2, 4, 3, 7\)"):
        code.q(normal(2, 4, 3, 7))


@pytest.mark.parametrize("shape", [(2, 3, 14), (2, 4, 13), (4, 14), (2, 1, 4, 14)])
def test_offset_shapes(shape):
    got = "got \\(" + ", ".join(map(str, shape)) + "\\)"
    with pytest.raises(ValueError, match=rf"tokens must be \(B, 4, 14\), {got}"):
        KINDS["offset"].build().prefixed(q=1).tokens(normal(*shape))


@pytest.mark.parametrize(
    ("q", "k", "message"),
    [
        ((2, 4, 5, 7), (2, 4, 6, 7), r"q.*\(B, heads, 4, channels\), got \(2, 4, 5, 7\)"),
        ((2, 4, 4, 7), (2, 4, 4, 7), r"k.*\(B, heads, 6, channels\), got \(2, 4, 4, 7\)"),
        ((2, 3, 4, 7), (2, 3, 6, 7), r"q.*2 heads, got 3"),
    ],
)
def test_bias_shapes(q, k, message):
    with pytest.raises(ValueError, match=message):
        KINDS["bias"].build().prefixed(q=1, k=2).scores(normal(*q), normal(*k))


# What they print


@pytest.mark.parametrize(
    ("name", "options", "printed"),
    [
        ("rope", {}, "Rotation(pairs=6, heads=1, positions=15, layout=half-split)"),
        ("mixed", {"layers": 3}, "Rotation(pairs=6, heads=2, positions=15, layout=interleaved, layers=3)"),
        ("xpos", {}, "Rotation(pairs=6, heads=1, positions=15, layout=interleaved, gain=True)"),
        ("spherical", {}, "Sphere(triplets=4, axes=2, heads=1, positions=15)"),
        ("liere", {"block": 4}, "Turn(blocks=3, size=4, heads=2, positions=15)"),
        ("sincos", {"axes": 2}, "Offset(width=24, positions=15)"),
        ("alibi", {"axes": 2}, "Bias(rule=Distance, heads=2, positions=15, axes=2)"),
        ("transformer-xl", {}, "ContentBias(frequencies=12, heads=2, positions=15, head_dim=12)"),
        ("none", {"layers": 3}, "Code(layers=3)"),
        (
            "string-cayley",
            {},
            "Chain(codes=[Basis(head_dim=12, heads=2), Rotation(pairs=6, heads=2, positions=15, layout=interleaved)])",
        ),
    ],
)
def test_codes_print_their_kind_and_sizes_in_one_line(name, options, printed):
    encoding = rw.create(name, head_dim=12, heads=2, **options)
    positions = encoding.grid(*{1: (15,), 2: (3, 5)}[encoding.axes])
    assert repr(encoding(positions)) == str(encoding(positions)) == printed


def test_codes_print_keys_batches_and_prefixes_of_their_own():
    encoding = rw.create("axial", head_dim=12, heads=2)
    code = encoding(encoding.grid(3, 5).expand(4, -1, -1), encoding.grid(2, 2)).prefixed(1, 0)
    assert repr(code) == "Rotation(pairs=6, heads=1, positions=15, keys=4, batch=4, layout=interleaved, q_prefix=1)"
    assert repr(code.prefixed(0, 1)).endswith("layout=interleaved, prefix=1)")


@every_kind
@pytest.mark.parametrize("layers", [None, 5])
def test_codes_print_whatever_a_pytree_holds_in_the_place_of_tensors(kind, layers):
    code = kind.build(layers)
    for change in (lambda leaf: leaf.shape, lambda leaf: None, lambda leaf: leaf.sum()):
        assert repr(pytree.tree_map(change, code)).startswith(f"{type(code).__name__}(")
    assert "\n" not in repr(code)

"""What every encoding gets from the protocol, beyond the contract: devices, dtypes, refusals, the heads it is for."""

import pytest
import torch
from torch.utils import _pytree as pytree

import ropewalk as rw
from ropewalk.testing.case import points

EXAMPLES = [example for kind in rw.encodings.REGISTRY.values() for example in kind.examples()]
LEARNED = [example for example in EXAMPLES if example.traits.learned]


@pytest.mark.parametrize("encoding", EXAMPLES, ids=repr)
def test_a_grid_follows_its_encoding(encoding):
    sides = encoding.size or (3, 5, 2)[: encoding.axes]
    config = {name: value for name, value in encoding.config().items() if name != "name"}
    wide = type(encoding)(**config).double()
    has_state = bool(list(wide.parameters()) + list(wide.buffers()))
    assert wide.grid(*sides).dtype is (torch.float64 if has_state else torch.float32)
    assert wide.grid(*sides, dtype=torch.float16).dtype is torch.float16
    assert wide.to("meta").grid(*sides).is_meta == has_state
    assert wide.grid(*sides, device="cpu").device.type == "cpu"


@pytest.mark.parametrize("encoding", LEARNED, ids=repr)
def test_narrowed_parameters_are_refused(encoding):
    config = {name: value for name, value in encoding.config().items() if name != "name"}
    narrowed = type(encoding)(**config)
    state = {name: value.bfloat16() for name, value in narrowed.state_dict().items()}
    narrowed.load_state_dict(state, assign=True)
    with pytest.raises(ValueError, match=r"float32.*torch.bfloat16; .*\.float\(\)"):
        narrowed(points(encoding, 3).float())
    narrowed.float()(points(encoding, 3).float())
    plain = type(encoding)(**config)
    plain.load_state_dict(state)
    assert all(parameter.dtype is torch.float32 for parameter in plain.parameters())


@pytest.mark.parametrize(("name", "heads"), [("mixed", 8), ("mixed", 3), ("liere", 8), ("spherical", 2)])
def test_tables_of_several_heads_insist_on_them(name, heads):
    learned = {"learned": True} if name == "spherical" else {}
    code = rw.create(name, head_dim=16, heads=4, **learned)(torch.rand(5, 2))
    q = torch.zeros(1, heads, 5, 16)
    with pytest.raises(ValueError, match=rf"q must be \(B, 4 heads, 5, 16\), got \(1, {heads}, 5, 16\)"):
        code.qk(q, q)


def test_biases_insist_on_their_heads():
    code = rw.create("alibi", head_dim=16, heads=8)(torch.arange(5))
    q = torch.zeros(1, 16, 5, 16)
    with pytest.raises(ValueError, match=r"q.*8 heads, got 16"):
        code.scores(q, q)


def test_one_table_serves_any_number_of_heads():
    code, q = rw.create("rope", head_dim=16)(torch.arange(5)), torch.randn(1, 12, 5, 16)
    assert code.q(q).shape == q.shape


def test_keys_may_come_repeated_for_each_query():
    code = rw.create("mixed", head_dim=16, heads=4, kv_heads=2)(torch.rand(5, 2))
    k = torch.randn(1, 2, 5, 16)
    torch.testing.assert_close(code.k(k.repeat_interleave(2, 1)), code.k(k).repeat_interleave(2, 1))


@pytest.mark.parametrize("name", ["mixed", "liere", "comrope-ld", "comrope-ap", "spherical"])
def test_generators_have_gradients(name):
    """So that a penalty on commutators, say, can be trained."""
    encoding = rw.create(name, head_dim=16, heads=2, **({"learned": True} if name == "spherical" else {}))
    encoding.generators().square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in encoding.parameters())


@pytest.mark.parametrize("encoding", EXAMPLES, ids=repr)
def test_a_model_that_takes_a_code_can_be_exported(encoding):
    class Block(torch.nn.Module):
        def forward(self, code, q, k):
            code = code if code.layers is None else code[0]
            q, k = code.qk(q, k)
            return q, k, code.scores(q, k)

    code = pytree.tree_map(lambda tensor: tensor.detach(), encoding(points(encoding, 5).float()))
    q = torch.randn(2, encoding.heads, 5, encoding.head_dim)
    k = torch.randn(2, encoding.kv_heads or encoding.heads, 5, encoding.head_dim)
    program = torch.export.export(Block(), (code, q, k))
    torch.testing.assert_close(program.module()(code, q, k), Block()(code, q, k))


def test_samples_of_another_batch_are_refused():
    code = rw.create("rope", head_dim=16)(torch.arange(10).view(2, 5))
    with pytest.raises(ValueError, match=r"q.*\(2, heads, 5, 16\), got \(1, 4, 5, 16\)"):
        code.q(torch.zeros(1, 4, 5, 16))
    with pytest.raises(ValueError, match=r"q must be \(B, H, N, D\)"):
        rw.attend(torch.zeros(4, 2, 5, 16), torch.zeros(1, 2, 5, 16), torch.zeros(1, 2, 5, 16))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("rope", {"learned": "no"}, r"learned.*True.*False, got 'no'"),
        ("rope", {"rotary_dim": 4.0}, r"rotary_dim.*got 4.0"),
        ("rope", {"shared": True}, r"shared=True.*learned=True"),
        ("rope", {"proportional": True}, "it needs a rotary_dim"),
        ("axial", {"size": 14}, r"size.*got 14"),
        ("axial", {"size": (14,)}, r"2 axes, got \(14,\)"),
        ("spherical", {"learned": True, "base": 10.0}, "got base=10.0"),
        ("spherical", {"axes": 4}, r"spherical.*1.*3 axes, got axes=4"),
        ("mixed", {"variant": "liere", "base": 3.0}, "it takes no base, got 3.0"),
        ("comrope-ld", {"variant": "yu-code", "shared": True}, "shared=True goes with yu"),
        ("liere", {"block": 64}, r"block.*2.*head_dim=32, got 64"),
        ("t5-bias", {"buckets": 6}, r"buckets.*4, got 6"),
        ("learned-ape", {}, r"size.*2.*got size=None"),
    ],
)
def test_refusals_say_what_was_wanted_and_what_came(name, options, words):
    with pytest.raises(ValueError, match=words):
        rw.create(name, head_dim=32, heads=2, **options)


def test_numbers_of_other_libraries_are_numbers():
    numpy = pytest.importorskip("numpy", reason="numpy comes with the dev extra")
    assert rw.create("rope", head_dim=numpy.int64(16)).config()["head_dim"] == 16


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("golden", {"fastest": 0.1, "slowest": 20.0}, r"slowest.*fastest, got 20.0.*0.1"),
        ("golden", {"still": "x"}, r"still.*got 'x'"),
        ("golden", {"still": 0.99}, r"still.*6.*got 0.99"),
        ("dinov3", {"min_period": 3.0, "max_period": 2.0}, r"min_period.*max_period, got 3.0.*2.0"),
        ("dinov3", {"min_period": -1.0, "max_period": 2.0}, r"min_period.*got -1.0"),
        ("dinov3", {"min_period": 1.0}, r"base.*min_period.*max_period, got None, 1.0.*None"),
        ("mrope", {"sections": (1, 2, 2)}, r"6 pairs, got \(1, 2, 2\)"),
        ("mrope", {"sections": (3, 3, 3), "variant": "qwen3-vl"}, r"at most 6 pairs, got \(3, 3, 3\)"),
        ("string-cayley", {"std": -1.0}, r"std.*got -1.0"),
        ("swin-bias", {"size": (3, 5), "coordinates": "unit"}, r"coordinates.*'index', got 'unit'"),
        ("learned-ape", {"size": (3, 5), "coordinates": "pi"}, r"coordinates.*'index', got 'pi'"),
        ("swin-bias", {}, r"swin-bias.*size.*2.*got size=None"),
        ("transformer-xl", {"width": 7}, "width must be even, got 7"),
        ("string-circulant", {"head_dim": 2}, r"head_dim.*3.*got 2"),
        ("xpos", {"gamma": 0}, r"gamma.*got 0"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_in_words(name, options, words):
    with pytest.raises(ValueError, match=words):
        rw.create(name, **{"head_dim": 12, **options})

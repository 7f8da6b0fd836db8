"""Permutations spelled by hand, scores of ropewalk's RoPE, and whole models of transformers."""

import importlib
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ropewalk as rw
from ropewalk.layouts import convert, to_half_split, to_interleaved, to_sections
from tests.support.float64_reference import normal

HEADS, KV_HEADS, HEAD_DIM, WIDTH = 4, 2, 10, 24
INTERLEAVED = {
    (6, None): [0, 3, 1, 4, 2, 5],
    (7, None): [0, 3, 1, 4, 2, 5, 6],
    (6, 4): [0, 2, 1, 3, 4, 5],
    (7, 6): [0, 3, 1, 4, 2, 5, 6],
    (8, 6): [0, 3, 1, 4, 2, 5, 6, 7],
    (9, 2): [0, 1, 2, 3, 4, 5, 6, 7, 8],
}
HALF_SPLIT = {
    (6, None): [0, 2, 4, 1, 3, 5],
    (7, None): [0, 2, 4, 1, 3, 5, 6],
    (6, 4): [0, 2, 1, 3, 4, 5],
    (8, 6): [0, 2, 4, 1, 3, 5, 6, 7],
}


def attention(prefix: str = "model.layers.0.self_attn.", head_dim: int = HEAD_DIM) -> dict[str, Tensor]:
    """One layer as transformers has it: biases, gains of both kinds, and what must stay."""
    q, k = HEADS * head_dim, KV_HEADS * head_dim
    shapes = {
        "q_proj.weight": (q, WIDTH),
        "q_proj.bias": (q,),
        "k_proj.weight": (k, WIDTH),
        "k_proj.bias": (k,),
        "v_proj.weight": (k, WIDTH),
        "v_proj.bias": (k,),
        "o_proj.weight": (WIDTH, q),
        "q_norm.weight": (head_dim,),
        "k_norm.weight": (k,),
        "rotary_emb.inv_freq": (head_dim // 2,),
    }
    return {prefix + name: normal(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}


# One tensor


@pytest.mark.parametrize(("head_dim", "rotary_dim"), INTERLEAVED)
def test_to_interleaved_by_hand(head_dim, rotary_dim):
    order = INTERLEAVED[head_dim, rotary_dim]
    gain = torch.arange(head_dim, dtype=torch.float32)
    assert to_interleaved(gain, head_dim, rotary_dim=rotary_dim).tolist() == order
    bias = torch.arange(3 * head_dim, dtype=torch.float32)
    expected = [head * head_dim + channel for head in range(3) for channel in order]
    assert to_interleaved(bias, head_dim, rotary_dim=rotary_dim).tolist() == expected
    weight = normal(3 * head_dim, 5, seed=0)
    assert torch.equal(to_interleaved(weight, head_dim, rotary_dim=rotary_dim), weight[expected])


@pytest.mark.parametrize(("head_dim", "rotary_dim"), HALF_SPLIT)
def test_to_half_split_by_hand(head_dim, rotary_dim):
    order = HALF_SPLIT[head_dim, rotary_dim]
    weight = normal(2 * head_dim, 5, seed=0)
    expected = order + [head_dim + channel for channel in order]
    assert torch.equal(to_half_split(weight, head_dim, rotary_dim=rotary_dim), weight[expected])


SECTIONS = {  # of (1, 2) pairs among 7 channels: a0 b0 | a1 a2 b1 b2 | rest
    "half-split": [0, 3, 1, 2, 4, 5, 6],
    "interleaved": [0, 1, 2, 4, 3, 5, 6],
    (2, 1): [0, 2, 1, 4, 3, 5, 6],
}


@pytest.mark.parametrize("source", SECTIONS, ids=str)
def test_to_sections_by_hand(source):
    gain = torch.arange(7.0)
    assert to_sections(gain, 7, (1, 2), source=source).tolist() == SECTIONS[source]
    back = {"half-split": to_half_split, "interleaved": to_interleaved}.get(source)
    moved = to_sections(gain, 7, (1, 2), source=source)
    there = to_sections(moved, 7, (2, 1), source=(1, 2)) if back is None else back(moved, 7, source=(1, 2), rotary_dim=6)
    assert torch.equal(there, gain)


def test_state_dicts_in_sections():
    state = attention()
    new = convert(state, head_dim=HEAD_DIM, to=(2, 3), source="half-split")
    for name, x in state.items():
        if re.search(r"(q|k)_(proj|norm)", name):
            assert torch.equal(new[name], to_sections(x, HEAD_DIM, (2, 3), source="half-split")), name
        else:
            assert new[name] is x
    back = convert(new, head_dim=HEAD_DIM, to="half-split", source=[2, 3])
    assert all(torch.equal(back[name], x) for name, x in state.items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(2, None), (3, None), (7, None), (8, None), (8, 4), (9, 6), (64, 16)])
@pytest.mark.parametrize("lead", [(3,), (1,), (3, 5), (1, 1)], ids=str)
def test_round_trips(lead, head_dim, rotary_dim, dtype):
    heads, *rest = lead
    weight = normal(heads * head_dim, *rest, seed=0, dtype=dtype)
    for there, back in ((to_interleaved, to_half_split), (to_half_split, to_interleaved)):
        moved = there(weight, head_dim, rotary_dim=rotary_dim)
        assert moved.dtype is dtype
        assert moved.is_contiguous()
        assert torch.equal(back(moved, head_dim, rotary_dim=rotary_dim), weight)


def test_twice_the_same_way_is_not_the_identity():
    weight = normal(12, 5, seed=0)
    assert not torch.equal(to_interleaved(to_interleaved(weight, 6), 6), weight)
    assert not torch.equal(to_half_split(to_half_split(weight, 6), 6), weight)


def test_new_tensor_from_any_strides():
    rows, order = normal(24, 10, seed=0), [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    for weight in (rows[::2], rows[::2, 1::3], rows.T[:6].repeat(2, 1).T[:12], normal(5, 12, seed=1).T, rows[:12, 3]):
        kept = weight.clone()
        moved = to_interleaved(weight, 6)
        assert torch.equal(moved, kept[order])
        moved.zero_()
        assert torch.equal(weight, kept)


def test_gradient():
    weight = normal(14, 3, seed=0).requires_grad_()
    slope = normal(14, 3, seed=1)
    (got,) = torch.autograd.grad((to_interleaved(weight, 7) * slope).sum(), weight)
    assert torch.equal(got, to_half_split(slope, 7))


def test_meta():
    moved = to_interleaved(torch.empty(12, 5, device="meta", dtype=torch.bfloat16), 6)
    assert (moved.device.type, moved.shape, moved.dtype) == ("meta", (12, 5), torch.bfloat16)
    with torch.device("meta"):
        assert torch.equal(
            to_interleaved(torch.arange(6.0, device="cpu"), 6), torch.tensor([0.0, 3, 1, 4, 2, 5], device="cpu")
        )
    state = {name: x.to("meta") for name, x in attention().items()}
    assert all(x.is_meta for x in convert(state, head_dim=HEAD_DIM, to="interleaved").values())


# Scores


def scores(q_side: tuple[Tensor, Tensor], k_side: tuple[Tensor, Tensor], encoding: rw.Encoding) -> Tensor:
    """Of tokens through projections of (weight, bias), (B H N N)."""
    x = normal(2, 11, WIDTH, seed=9)
    q, k = (F.linear(x, *side).unflatten(-1, (-1, encoding.head_dim)).transpose(1, 2) for side in (q_side, k_side))
    q, k = encoding(3 * torch.arange(11) - 7).qk(q, k)
    return q @ k.repeat_interleave(HEADS // KV_HEADS, dim=1).mT


@pytest.mark.parametrize(
    ("name", "head_dim", "rotary_dim", "options"),
    [
        ("rope", 10, None, {}),
        ("rope", 11, None, {}),
        ("rope", 10, 6, {"rotary_dim": 6}),
        ("rope", 11, 8, {"rotary_dim": 8}),
        ("rope", 10, None, {"rotary_dim": 4, "proportional": True}),
        ("xpos", 10, None, {}),
    ],
)
def test_scores(name, head_dim, rotary_dim, options):
    """Unchanged if both sides are converted; with one, or none, quite other."""
    shape = {"head_dim": head_dim, "heads": HEADS, "kv_heads": KV_HEADS}
    half, interleaved = (rw.create(name, **shape, **options, interleaved=i).double() for i in (False, True))
    q = normal(HEADS * head_dim, WIDTH, seed=0), normal(HEADS * head_dim, seed=1)
    k = normal(KV_HEADS * head_dim, WIDTH, seed=2), normal(KV_HEADS * head_dim, seed=3)
    new_q, new_k = (tuple(to_interleaved(x, head_dim, rotary_dim=rotary_dim) for x in side) for side in (q, k))
    expected = scores(q, k, half)
    size = expected.abs().max()
    assert (scores(new_q, new_k, interleaved) - expected).abs().max() < 1e-12 * size
    wrong = [
        (new_q, k, interleaved),
        (q, new_k, interleaved),
        (q, k, interleaved),
        (new_q, new_k, half),
        ((new_q[0], q[1]), new_k, interleaved),
    ]
    for case in wrong:
        assert (scores(*case) - expected).abs().max() > 1e-2 * size


# Whole models of transformers. They compute tables and norms in float32 whatever their dtype: here, in float64.


@dataclass(frozen=True)
class Model:
    family: str
    prefix: str
    to: str = "interleaved"
    rotary_dim: int = HEAD_DIM
    heads: dict[str, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def module(self) -> Any:
        return importlib.import_module(f"transformers.models.{self.family}.modeling_{self.family}")

    def build(self) -> nn.Module:
        rope = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": self.rotary_dim / HEAD_DIM}
        width = {"hidden_size": HEADS * HEAD_DIM, "head_dim": HEAD_DIM, "intermediate_size": 16, "vocab_size": 17}
        heads = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "num_hidden_layers": 2}
        tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        kind = getattr(importlib.import_module("transformers"), f"{self.prefix}Config")
        config = kind(**width, **heads, **tokens, rope_parameters=rope, attn_implementation="sdpa", **self.options)
        model = getattr(self.module(), f"{self.prefix}ForCausalLM")(config).double().eval()
        for seed, (name, x) in enumerate(model.named_parameters()):
            x.data = 0.3 * normal(*x.shape, seed=seed) + (1.0 if "norm" in name else 0.0)
        return model


BOTH = {"heads": HEADS, "kv_heads": KV_HEADS}
MODELS = [
    Model("llama", "Llama"),
    Model("llama", "Llama", heads=BOTH, options={"attention_bias": True}),
    Model("mistral", "Mistral"),
    Model("qwen3", "Qwen3"),
    Model("phi3", "Phi3", heads=BOTH),
    Model("phi3", "Phi3", heads=BOTH, rotary_dim=6),
    Model("olmo2", "Olmo2", heads=BOTH),
    Model("stablelm", "StableLm", rotary_dim=6, options={"qk_layernorm": True, "use_qkv_bias": True}),
    Model("glm", "Glm", to="half-split", rotary_dim=6, options={"attention_bias": True}),
]


def exact_tables(self: nn.Module, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    pairs = len(self.inv_freq)
    angle = position_ids[..., None] * 100.0 ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    return angle.cos().repeat(1, 1, 2), angle.sin().repeat(1, 1, 2)


def exact_norm(self: nn.Module, x: Tensor) -> Tensor:
    return F.rms_norm(x, self.weight.shape, self.weight, self.variance_epsilon)


@torch.no_grad()
def logits(model: nn.Module) -> Tensor:
    return model(torch.arange(26).remainder(17).view(2, 13), use_cache=False).logits


@pytest.mark.parametrize("case", MODELS, ids=lambda case: f"{case.family}-{case.rotary_dim}")
def test_logits_of_a_model(case, monkeypatch):
    """Converted weights, with our rotation in the other layout, give what the model gives; unconverted ones do not."""
    module, model = case.module(), case.build()
    stock = logits(model)
    monkeypatch.setattr(getattr(module, f"{case.prefix}RotaryEmbedding"), "forward", exact_tables)
    if hasattr(module, f"{case.prefix}RMSNorm"):
        monkeypatch.setattr(getattr(module, f"{case.prefix}RMSNorm"), "forward", exact_norm)
    expected = logits(model)
    torch.testing.assert_close(expected, stock, rtol=1e-4, atol=1e-4)

    shape = {"head_dim": HEAD_DIM, "heads": HEADS, "kv_heads": KV_HEADS, "rotary_dim": case.rotary_dim}
    encoding = rw.create("rope", **shape, base=100.0, interleaved=case.to == "interleaved").double()
    if case.family == "stablelm":  # whose attention hands over the channels that turn
        encoding = rw.create("rope", **shape | {"head_dim": 6}, base=100.0, interleaved=True).double()
    monkeypatch.setattr(
        module, "apply_rotary_pos_emb", lambda q, k, cos, sin, **_: encoding(torch.arange(q.shape[2])).qk(q, k)
    )
    assert (logits(model) - expected).abs().max() > 1e-2
    rotary_dim = None if case.rotary_dim == HEAD_DIM else case.rotary_dim
    state = convert(model.state_dict(), head_dim=HEAD_DIM, to=case.to, rotary_dim=rotary_dim, **case.heads)
    other = case.build()
    other.load_state_dict(state)
    torch.testing.assert_close(logits(other), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", ["qwen3", "olmo2", "phi3"])
def test_back_and_forth_is_exact(family):
    case = next(case for case in MODELS if case.family == family)
    state = case.build().state_dict()
    there = convert(state, head_dim=HEAD_DIM, to="interleaved", **case.heads)
    back = convert(there, head_dim=HEAD_DIM, to="half-split", **case.heads)
    assert list(back) == list(there) == list(state)
    assert all(torch.equal(back[name], x) for name, x in state.items())
    assert any(not torch.equal(there[name], x) for name, x in state.items())


# State dicts


def test_what_changes_and_what_stays():
    state = attention()
    kept = {name: x.clone() for name, x in state.items()}
    held = dict(state)
    new = convert(state, head_dim=HEAD_DIM, to="interleaved", rotary_dim=6)
    assert list(new) == list(state) == list(kept)
    assert all(state[name] is held[name] and torch.equal(state[name], kept[name]) for name in kept)
    for name, x in state.items():
        if re.search(r"(q|k)_(proj|norm)", name):
            assert torch.equal(new[name], to_interleaved(x, HEAD_DIM, rotary_dim=6)), name
            assert not torch.equal(new[name], x)
        else:
            assert new[name] is x


def test_names_of_meta():
    """And of those that no path comes before, or that only end alike."""
    x = normal(20, 20, seed=0)
    names = ["layers.0.attention.wq.weight", "layers.0.attention.wk.weight", "wq.bias", "wk.bias", "q_proj.weight"]
    others = [
        "layers.0.attention.wv.weight",
        "layers.0.attention.wo.weight",
        "rope.freqs",
        "swq.weight",
        "add_q_proj.weight",
    ]
    new = convert(dict.fromkeys(names + others, x), head_dim=10, to="half-split")
    assert all(torch.equal(new[name], to_half_split(x, 10)) for name in names)
    assert all(new[name] is x for name in others)


@pytest.mark.parametrize("name", ["self_attn.qkv_proj", "attention.wqkv"])
@pytest.mark.parametrize("entry", ["weight", "bias"])
@pytest.mark.parametrize("kv_heads", [2, None])
def test_fused(name, entry, kv_heads):
    """Rows of q and of k, in this order, then those of v, which stay."""
    rest = () if entry == "bias" else (3,)
    rows = [HEADS * HEAD_DIM, *2 * [(kv_heads or HEADS) * HEAD_DIM]]
    q, k, v = (normal(n, *rest, seed=seed) for seed, n in enumerate(rows))
    state = {f"layers.0.{name}.{entry}": torch.cat([q, k, v])}
    (new,) = convert(state, head_dim=HEAD_DIM, to="interleaved", heads=HEADS, kv_heads=kv_heads).values()
    assert torch.equal(new, torch.cat([to_interleaved(q, HEAD_DIM), to_interleaved(k, HEAD_DIM), v]))


@pytest.mark.parametrize("end", ["weight", "default.weight"])
def test_adapters(end):
    """A converted adapter on a converted weight is the sum, converted. An adapter may be of q alone."""
    path = "base_model.model.model.layers.0.self_attn.q_proj"
    base, a, b = normal(40, WIDTH, seed=0), normal(3, WIDTH, seed=1), normal(40, 3, seed=2)
    state = {f"{path}.lora_A.{end}": a, f"{path}.lora_B.{end}": b}
    new = convert(state, head_dim=HEAD_DIM, to="interleaved")
    assert new[f"{path}.lora_A.{end}"] is a
    total = to_interleaved(base, HEAD_DIM) + new[f"{path}.lora_B.{end}"] @ a
    torch.testing.assert_close(total, to_interleaved(base + b @ a, HEAD_DIM), rtol=0, atol=1e-13)


def test_wrapped_weights_and_magnitudes():
    """Names of a model that carries its adapters: DoRA's magnitudes are one a row."""
    weight, row, rest = normal(20, 3, seed=0), normal(20, seed=1), normal(3, 20, seed=2)
    names = ["q_proj.base_layer.weight", "q_proj.lora_B.default.weight", "k_proj.lora_B.default.weight"]
    rows = ["q_proj.base_layer.bias", "q_proj.lora_magnitude_vector", "k_proj.lora_magnitude_vector.default.weight"]
    others = ["q_proj.lora_A.default.weight", "v_proj.lora_B.default.weight", "o_proj.weight"]
    state = dict.fromkeys(names, weight) | dict.fromkeys(rows, row) | dict.fromkeys(others, rest)
    new = convert(state, head_dim=10, to="interleaved")
    assert all(torch.equal(new[name], to_interleaved(weight, 10)) for name in names)
    assert all(torch.equal(new[name], to_interleaved(row, 10)) for name in rows)
    assert all(new[name] is rest for name in others)


def test_adapters_of_a_fused_projection():
    b = normal((HEADS + 2 * KV_HEADS) * HEAD_DIM, 3, seed=0)
    (new,) = convert({"qkv_proj.lora_B.weight": b}, head_dim=HEAD_DIM, to="interleaved", **BOTH).values()
    turned = (HEADS + KV_HEADS) * HEAD_DIM
    assert torch.equal(new, torch.cat([to_interleaved(b[:turned], HEAD_DIM), b[turned:]]))


@pytest.mark.parametrize("heads", [{}, BOTH], ids=["uncounted", "counted"])
def test_norms(heads):
    """Gains of a head, of the whole width, and (heads, head_dim) as Cohere has them; biases as well."""
    state = attention() | {"q_norm.weight": normal(HEADS, HEAD_DIM, seed=20)}
    state |= {name: normal(HEAD_DIM, seed=21) for name in ("k_layernorm.bias", "q_layernorm.norms.0.weight")}
    new = convert(state, head_dim=HEAD_DIM, to="interleaved", **heads)
    expected = [to_interleaved(row, HEAD_DIM) for row in state["q_norm.weight"]]
    assert torch.equal(new["q_norm.weight"], torch.stack(expected))
    for name in ("k_layernorm.bias", "q_layernorm.norms.0.weight"):
        assert torch.equal(new[name], to_interleaved(state[name], HEAD_DIM))


# Refusals

Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({Q: normal(41, 3, seed=0)}, r"model.*q_proj.weight.*head_dim=10, got shape \(41, 3\)"),
        ({Q: torch.zeros(0)}, r"head_dim=10, got shape \(0,\)"),
        ({Q: torch.zeros(40, 3, dtype=torch.int8)}, r"q_proj.weight.*got .* torch.int8"),
        ({Q: torch.zeros(40, 3).to(torch.float8_e4m3fn)}, r"q_proj.weight.*got .* torch.float8_e4m3fn"),
        ({Q: torch.zeros(40, 3, 1)}, r"q_proj.weight.*got shape \(40, 3, 1\)"),
        ({Q: torch.tensor(1.0)}, r"dimensions.*got shape \(\)"),
        ({Q: normal(80, WIDTH, seed=0)}, r"q_proj.weight.*got 80.*40.*heads"),
        ({"x.q_norm.weight": torch.ones(7)}, r"x.q_norm.weight.*head_dim=10, got shape \(7,\)"),
        ({"x.q_norm.weight": torch.ones(10, 4)}, r"x.q_norm.weight.*head_dim=10, got shape \(10, 4\)"),
        ({"x.qkv_proj.weight": torch.ones(80, 3)}, r"x.qkv_proj.weight.*heads.*kv_heads"),
        ({"x.wqkv.bias": torch.ones(80)}, r"x.wqkv.bias.*heads.*kv_heads"),
    ],
)
def test_refused_tensors(change, words):
    with pytest.raises(ValueError, match=words):
        convert(attention() | change, head_dim=HEAD_DIM, to="interleaved")


@pytest.mark.parametrize(
    "entry",
    ["qweight", "scales", "qzeros", "g_idx", "weight_scale", "weight_scale_inv", "SCB", "weight.absmax", "weight_packed"],
)
@pytest.mark.parametrize("module", ["q_proj", "wk", "qkv_proj"])
def test_refused_quantisation(module, entry):
    name = f"layers.0.{module}.{entry}"
    with pytest.raises(ValueError, match=f"{name} cannot be reordered: of {module}, only .* not quantised can; dequantise"):
        convert({name: torch.ones(40, 3)}, head_dim=HEAD_DIM, to="interleaved", **BOTH)


def test_quantised_values_are_no_concern():
    packed = torch.zeros(20, 3, dtype=torch.int32)
    state = attention() | {"model.layers.0.self_attn.v_proj.qweight": packed}
    assert convert(state, head_dim=HEAD_DIM, to="interleaved")["model.layers.0.self_attn.v_proj.qweight"] is packed


@pytest.mark.parametrize("module", ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "wq_b", "wkv_a"])
def test_refused_latent_attention(module):
    """Also beside a q_proj, as in the small models of DeepSeek."""
    name = f"model.layers.0.self_attn.{module}.weight"
    with pytest.raises(
        ValueError, match=f"{name} is of multi-head latent attention .MLA., whose rotary channels lie elsewhere"
    ):
        convert(attention() | {name: torch.ones(40, 3)}, head_dim=HEAD_DIM, to="interleaved")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, "got nothing"),
        ({"h.0.c_attn.weight": torch.ones(40, 3), "h.0.ln.weight": torch.ones(3)}, "got h.0.c_attn.weight, h.0.ln.weight"),
        ({"q_norm.weight": torch.ones(10)}, "got q_norm.weight"),
    ],
)
def test_refused_without_projections(state, words):
    with pytest.raises(
        ValueError, match=f"state must hold one of q_proj, wq, k_proj, wk, qkv_proj, wqkv, qkv, query_key_value, {words}"
    ):
        convert(state, head_dim=HEAD_DIM, to="interleaved")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": "interleave"}, r"to 'interleave'.*Did you mean 'interleaved'"),
        ({"to": (2, 3)}, r"give source, got to=\(2, 3\) and source=None"),
        ({"to": (2, 4), "source": "half-split"}, r"rotary_dim.*head_dim=10"),
        ({"to": (2, 2), "source": (2, 3)}, r"sections must make 4 pairs of head_dim=10, got 4 and 5"),
        ({"to": (2, 2), "source": "half-split", "rotary_dim": 6}, r"sections must make 3 pairs.*got 4"),
        ({"to": "half-split", "source": "interleave"}, r"source 'interleave'.*Did you mean 'interleaved'"),
        ({"to": (2, 0), "source": "half-split"}, r"to must be a positive integer, got 0"),
        ({"rotary_dim": 5}, r"rotary_dim.*2.*head_dim=10, got 5"),
        ({"rotary_dim": 12}, r"rotary_dim.*2.*head_dim=10, got 12"),
        ({"rotary_dim": 0}, r"rotary_dim.*got 0"),
        ({"rotary_dim": 4.0}, r"rotary_dim.*got 4.0"),
        ({"head_dim": 0}, r"head_dim.*got 0"),
        ({"head_dim": 2.5, "rotary_dim": 2}, r"head_dim.*got 2.5"),
        ({"heads": 0}, r"heads.*got 0"),
        ({"heads": 5, "kv_heads": 2}, r"heads.*kv_heads, got heads=5.*kv_heads=2"),
        ({"kv_heads": 2}, r"heads.*kv_heads, got heads=None.*kv_heads=2"),
        ({"heads": 2}, r"q_proj.weight.*heads.*head_dim = 2.*10.*got shape \(40, 24\)"),
        ({"heads": 4}, r"k_proj.weight.*kv_heads.*head_dim = 4.*10.*got shape \(20, 24\)"),
    ],
)
def test_refused_options(options, words):
    with pytest.raises(ValueError, match=words):
        convert(attention(), **{"head_dim": HEAD_DIM, "to": "interleaved"} | options)


def test_refused_counts():
    state = {"a.qkv_proj.weight": torch.ones(70, 3)}
    words = r"a.qkv_proj.weight must have \(heads \+ 2 kv_heads\) · head_dim = 8 · 10 rows, got shape \(70, 3\)"
    with pytest.raises(ValueError, match=words):
        convert(state, head_dim=HEAD_DIM, to="interleaved", **BOTH)
    with pytest.raises(ValueError, match=r"k_norm.weight.*kv_heads.*head_dim = 2.*10.*got shape \(30,\)"):
        convert(attention() | {"k_norm.weight": torch.ones(30)}, head_dim=HEAD_DIM, to="interleaved", **BOTH)


@pytest.mark.parametrize("change", [to_interleaved, to_half_split])
@pytest.mark.parametrize(
    ("weight", "options", "words"),
    [
        (torch.ones(13, 2), {"head_dim": 6}, r"head_dim=6, got shape \(13, 2\)"),
        (torch.ones(12, 2), {"head_dim": 6, "rotary_dim": 3}, r"rotary_dim.*2.*head_dim=6, got 3"),
        (torch.ones(12, 2), {"head_dim": 6, "rotary_dim": 8}, r"rotary_dim.*2.*head_dim=6, got 8"),
        (torch.ones(12, 2), {"head_dim": 1}, r"rotary_dim.*2.*head_dim=1, got None"),
        (torch.ones(12, 2), {"head_dim": -6}, r"head_dim.*got -6"),
        (torch.ones(12, 2, 2), {"head_dim": 6}, r"weight.*dimensions"),
        (
            torch.ones(12, 2).long(),
            {"head_dim": 6},
            r"weight.*got .* torch.int64",
        ),
    ],
)
def test_refused_weights(change, weight, options, words):
    with pytest.raises(ValueError, match=words):
        change(weight, **options)

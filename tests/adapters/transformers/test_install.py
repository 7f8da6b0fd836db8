"""Models of transformers with the encoding that they had: logits and gradients are theirs, and come back bit for bit."""

import copy
import pickle

import pytest
import torch
from torch import nn
from transformers import (
    DINOv3ViTBackbone,
    DINOv3ViTConfig,
    DINOv3ViTModel,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import ropewalk as rw
from ropewalk.adapters.transformers import apply_rotary, install, installed, uninstall

LAYERS, WORDS = 3, 97
COMMON = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4, initializer_range=0.15)
TEXT = COMMON | dict(vocab_size=WORDS, max_position_embeddings=80, pad_token_id=0, eos_token_id=None, bos_token_id=None)
GROUPED = TEXT | dict(num_key_value_heads=2, head_dim=16)
SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]
SMALL = dict(rtol=2e-5, atol=2e-5)


def llama(**options):
    return LlamaForCausalLM(LlamaConfig(**GROUPED | options)).eval()


def qwen3():
    model = Qwen3ForCausalLM(Qwen3Config(**GROUPED | dict(head_dim=20))).eval()
    for layer in model.model.layers:
        nn.init.uniform_(layer.self_attn.q_norm.weight, 0.5, 1.5)
    return model


def mistral():
    return MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=8)).eval()


def gemma3(**options):
    shape = GROUPED | dict(sliding_window=8, query_pre_attn_scalar=24, layer_types=SLIDING)
    return Gemma3ForCausalLM(Gemma3TextConfig(**shape | options)).eval()


def gpt_neox():
    return GPTNeoXForCausalLM(GPTNeoXConfig(**TEXT, rotary_pct=0.25)).eval()


def one_for_all(make, said):
    """An encoding for all layers, also of a model whose types of layers would have a RoPE each."""
    if make is gemma3 and said["name"] == "rope":
        return rw.create(**(dict(head_dim=16, heads=4, kv_heads=2) | said))
    return said


def unturned(model):
    """The model with frequencies of 0: nothing turns."""
    for name, frequency in model.base_model.rotary_emb.named_buffers():
        if "inv_freq" in name:
            frequency.zero_()
    return model


def dinov3(kind=DINOv3ViTModel):
    shape = dict(image_size=48, patch_size=16, num_register_tokens=2, layerscale_value=1.0, attention_dropout=0.0)
    return kind(DINOv3ViTConfig(**COMMON | shape)).eval()


DECODERS = [llama, qwen3, mistral, gemma3, gpt_neox]


def words(batch, length):
    return torch.randint(1, WORDS, (batch, length), generator=torch.Generator().manual_seed(length))


def pictures(batch=2):
    return torch.randn(batch, 3, 48, 80, generator=torch.Generator().manual_seed(batch))


def answers(model, given):
    """Everything that a model says of texts or pictures, and the gradients of its own weights."""
    model.zero_grad()
    out = model(given)
    out = out.logits if "logits" in out else out.feature_maps[-1] if "feature_maps" in out else out.last_hidden_state
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return out.detach(), {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same(model, host, given):
    (ours, gradients), (theirs, wanted) = answers(model, given), answers(host, given)
    torch.testing.assert_close(ours, theirs, **SMALL)
    assert gradients.keys() == wanted.keys()
    for name, gradient in gradients.items():
        scale = wanted[name].abs().max() + 1e-3
        torch.testing.assert_close(gradient / scale, wanted[name] / scale, rtol=0, atol=1e-4, msg=name)


@pytest.fixture(params=["few", "many"])
def tokens(request, monkeypatch):
    """Whether tokens are turned as few are, or as many."""
    if request.param == "many":
        monkeypatch.setattr(apply_rotary, "FEW", 0)


@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("length", [1, 5, 65])
@pytest.mark.parametrize("make", DECODERS)
def test_what_the_config_says_is_what_the_model_did(make, length):
    host = make()
    model = install(copy.deepcopy(host))
    assert_same(model, host, words(3, length))
    if length == 1:
        assert torch.equal(model(words(3, 1)).logits, host(words(3, 1)).logits)


@pytest.mark.parametrize("kind", [DINOv3ViTModel, DINOv3ViTBackbone])
def test_dinov3_as_it_was(kind):
    host = dinov3(kind)
    assert_same(install(copy.deepcopy(host)), host, pictures())


def test_dinov3_varies_its_positions_in_training_as_it_did():
    host = dinov3().train()
    model = install(copy.deepcopy(host))
    outs = []
    for each in (model, host, host):
        torch.manual_seed(len(outs) // 2)
        outs.append(each(pictures()).last_hidden_state)
    torch.testing.assert_close(outs[0], outs[1], **SMALL)
    assert not torch.allclose(outs[1], outs[2], rtol=1e-2)


def test_the_model_without_its_head():
    host = LlamaModel(LlamaConfig(**GROUPED)).eval()
    assert_same(install(copy.deepcopy(host)), host, words(1, 5))


SHORT, LONG = [1.0 + 0.1 * i for i in range(8)], [2.0 + 0.3 * i for i in range(8)]
TYPES = {
    "linear": dict(factor=2.0),
    "dynamic": dict(factor=2.0),
    "yarn": dict(factor=4.0, original_max_position_embeddings=32),
    "llama3": dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32),
    "longrope": dict(short_factor=SHORT, long_factor=LONG, factor=4.0, original_max_position_embeddings=32),
}


@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("length", [5, 65])
@pytest.mark.parametrize("name", TYPES)
def test_rope_types_of_a_config(name, length):
    parameters = {"rope_type": name, "rope_theta": 500.0, **TYPES[name]}
    host = llama(max_position_embeddings=40, rope_parameters=parameters)
    plain = llama(max_position_embeddings=40, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    plain.load_state_dict(host.state_dict())
    model, given = install(copy.deepcopy(host)), words(1, length)
    ours, theirs = model(given).logits, host(given).logits
    torch.testing.assert_close(ours, theirs, **SMALL)
    same = (theirs - plain(given).logits).abs().max()
    assert same < 1e-4 if (name, length) == ("dynamic", 5) else same > 1e-3


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("gain", [None, 1.25])
def test_few_tokens_are_turned_as_written(gain, dtype, compiled):
    heads, depth, places = {"q": 4, "k": 2}, 16, torch.tensor([[3], [70]])
    code = rw.create("rope", head_dim=depth, base=100.0)(places)
    code = code if gain is None else code.stretched(gain)
    assert isinstance(apply_rotary.lighter(code, torch.empty(2, 1, 64)), apply_rotary.Few)

    def turn(q, k):
        return apply_rotary.lighter(code, torch.empty(2, 1, 64)).qk(q, k)

    generator = torch.Generator().manual_seed(0)
    xs = [torch.randn(2, n, 1, depth, dtype=dtype, generator=generator).requires_grad_() for n in heads.values()]
    turn = torch.compile(turn, backend="eager", fullgraph=True) if compiled else turn
    angle = places.double() * 100.0 ** (-torch.arange(8, dtype=torch.float64) / 8)
    number = (gain or 1.0) * torch.polar(torch.ones_like(angle), angle)[:, None, None]
    near = {torch.bfloat16: 8e-3, torch.float32: 1e-5, torch.float64: 1e-5}[dtype]
    outs = turn(*xs)
    torch.autograd.backward(outs, [out.detach() for out in outs])
    for x, turned in zip(xs, outs, strict=True):
        wanted = torch.complex(*x.detach().double().chunk(2, -1)) * number
        wanted = torch.cat([wanted.real, wanted.imag], -1)
        assert turned.dtype is dtype
        torch.testing.assert_close(turned.double(), wanted, rtol=near, atol=near)
        torch.testing.assert_close(x.grad.double(), (gain or 1.0) ** 2 * x.detach().double(), rtol=3 * near, atol=3 * near)


def test_what_few_tokens_cannot_do_in_few_calls_a_code_does():
    hidden, options = torch.empty(1, 1, 64), dict(head_dim=16)
    cases = rw.create("rope", rotary_dim=8, **options), rw.create("rope", interleaved=True, **options)
    own = rw.create("rope", heads=4, learned=True, shared=False, **options)
    codes = [encoding(torch.tensor([[3]])) for encoding in (*cases, own)]
    for code in (*codes, rw.create("rope", **options)(torch.tensor([[3]]), torch.tensor([[4]]))):
        assert apply_rotary.lighter(code, hidden) is code
    code = rw.create("rope", **options)(torch.tensor([[3]]))
    assert apply_rotary.lighter(code, torch.empty(1, 2048, 64)) is code
    assert apply_rotary.lighter(code.prefixed(q=1, k=1), hidden).q_prefix == 1


def test_types_of_layers_have_their_own_rules():
    full = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 5e4, "truncate": False}
    own = {"sliding_attention": {"rope_type": "default", "rope_theta": 100.0}, "full_attention": full}
    host = gemma3(rope_parameters=own)
    model = install(copy.deepcopy(host))
    assert_same(model, host, words(1, 33))
    made = installed(model)
    assert (made["sliding_attention"].base, made["full_attention"].extension["rope_type"]) == (100.0, "yarn")


@pytest.mark.parametrize("make", DECODERS)
def test_in_bfloat16_it_is_no_farther_from_the_truth(make):
    exact = make()
    host = copy.deepcopy(exact).bfloat16()
    model, given = install(copy.deepcopy(exact), learned=True).bfloat16(), words(3, 33)
    parts = installed(model)
    for part in parts.values() if isinstance(parts, dict) else [parts]:
        assert part.frequency.dtype is torch.float32
    truth = exact(given).logits
    ours, theirs = ((each(given).logits - truth).abs().mean() for each in (model, host))
    assert ours < 1.15 * theirs


@pytest.mark.filterwarnings("ignore:images of another size:FutureWarning")
@pytest.mark.parametrize("make", [*DECODERS, dinov3])
def test_everything_comes_back(make):
    host, given = make(), pictures() if make is dinov3 else words(3, 5)
    model = copy.deepcopy(host)
    config, hooks = model.config, [len(module._forward_pre_hooks) for module in model.modules()]
    for encoding in (None, "comrope-ld", "alibi", "sincos"):
        install(model, encoding)
    assert not torch.allclose(answers(model, given)[0], answers(host, given)[0], rtol=1e-2)
    uninstall(model)
    (ours, gradients), (theirs, wanted) = answers(model, given), answers(host, given)
    assert torch.equal(ours, theirs)
    assert all(torch.equal(gradients[name], wanted[name]) for name in wanted)
    assert model.config is config
    assert config.to_dict() == host.config.to_dict()
    assert [len(module._forward_pre_hooks) for module in model.modules()] == hooks
    assert installed(uninstall(model)) is None
    assert model.state_dict().keys() == host.state_dict().keys()


@pytest.mark.parametrize("make", DECODERS)
def test_a_second_encoding_takes_the_place_of_the_first(make):
    model, given = make(), words(3, 5)
    fresh = install(copy.deepcopy(model), "xpos")
    again = install(install(install(model, "alibi"), "sincos"), "xpos")
    assert torch.equal(again(given).logits, fresh(given).logits)
    assert again.config.to_dict() == fresh.config.to_dict()


def test_other_models_are_left_alone():
    config, given = LlamaConfig(**GROUPED), words(3, 5)
    model, other = LlamaForCausalLM(config).eval(), LlamaForCausalLM(config).eval()
    before, said = other(given).logits, config.to_dict()
    install(model, "alibi")
    model(given)
    assert torch.equal(other(given).logits, before)
    assert other.config.to_dict() == said


def test_copies_have_encodings_of_their_own():
    with pytest.warns(UserWarning, match="base=100.0 replaces base=10000.0"):
        model = install(llama(), "rope", learned=True, base=100.0)
    given = words(1, 5)
    before = model(given).logits
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(given).logits, before)
        with torch.no_grad():
            installed(other).frequency.mul_(2)
        assert not torch.equal(other(given).logits, before)
        assert torch.equal(model(given).logits, before)


def test_lengths_are_remembered_by_nobody():
    parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0}
    model, given = install(llama(max_position_embeddings=40, rope_parameters=parameters)), words(1, 41)
    before = model(given).logits
    model(words(1, 65))
    assert torch.equal(model(given).logits, before)
    fixed = install(model, length=65)
    assert installed(fixed).length == 65


def test_what_cannot_be_used_is_refused():
    refused = [
        ("mixed", dict(axes=2), "one axis, got axes=2"),
        ("mixed", dict(coordinates="unit"), "must be 'index', got 'unit'"),
        ("rope", dict(layers=2), "must be 3 or None, got 2"),
        ("rope", dict(head_dim=32), r"\(B, heads, 1, 32\), got \(1, 4, 1, 16\)"),
        ("mixed", dict(heads=3, kv_heads=None), "3 heads"),
        ("learned-ape", dict(size=(9,), width=8), r"tokens must be \(B, 1, 8\)"),
        (rw.create("rope", head_dim=16), dict(base=2.0), "has its options already, got base"),
        ({"full_attention": "rope"}, {}, "no types of layers, got 'full_attention'"),
    ]
    model = llama()
    for encoding, options, said in refused:
        with pytest.raises(ValueError, match=said):
            install(model, encoding, **options)
    assert installed(model) is None
    with pytest.raises(TypeError, match="got Linear"):
        install(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="have 2 axes, got axes=1"):
        install(dinov3(), rw.create("rope", head_dim=16))


@pytest.mark.parametrize("build", [*DECODERS, dinov3], ids=lambda build: build.__name__)
def test_what_turns_all_layers_alike_needs_no_hooks(build):
    model = build()

    def hooks(_=None):
        return sum(len(module._forward_pre_hooks) for module in model.modules())

    assert not hooks()
    assert not hooks(install(model))
    install(model, "mixed")
    assert hooks() == LAYERS + 1
    assert not hooks(install(model))
    if build is not dinov3:
        install(model, "alibi")
        assert hooks() == LAYERS + 1


def test_attention_of_ours_for_what_adds_nothing():
    """Asked for by name, before or after: it finds what it needs, or says what it lacks."""
    tokens, model = words(2, 9), llama(attn_implementation="ropewalk")
    with torch.no_grad():
        torch.testing.assert_close(install(model)(tokens).logits, llama_like(model)(tokens).logits, **SMALL)
    other = install(llama())
    other.set_attn_implementation("ropewalk")
    with pytest.raises(TypeError, match="adds to the logits"):
        other(tokens)


def llama_like(model):
    """Plain, with the same weights."""
    plain = llama()
    plain.load_state_dict(model.state_dict())
    return plain

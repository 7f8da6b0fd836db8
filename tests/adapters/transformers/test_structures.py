"""Hosts are found by structure: parts of models, rotary embeddings in attention, models that are not of transformers."""

import copy
import pickle
import sys
import types

import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GlmConfig,
    GlmForCausalLM,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    RecurrentGemmaConfig,
    RecurrentGemmaForCausalLM,
    Trainer,
    set_seed,
)
from transformers.models.llama import modeling_llama

import ropewalk as rw
from ropewalk.adapters.transformers import fold_into, install, installed, register, uninstall
from ropewalk.adapters.transformers.probing import HostRefusedError
from ropewalk.adapters.transformers.rebinding import Rebound
from ropewalk.code import unseal
from tests.adapters.transformers.test_install import GROUPED, SMALL, TEXT, dinov3, gemma3, llama, words


def glm():
    return GlmForCausalLM(GlmConfig(**GROUPED, partial_rotary_factor=0.5)).eval()


def deepseek():
    latent = dict(q_lora_rank=24, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16)
    experts = dict(n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=32)
    return DeepseekV3ForCausalLM(DeepseekV3Config(**TEXT, **latent, **experts, first_k_dense_replace=1)).eval()


def recurrent_gemma():
    shape = TEXT | dict(num_key_value_heads=1, head_dim=16, lru_width=64, attention_window_size=32)
    return RecurrentGemmaForCausalLM(RecurrentGemmaConfig(**shape, block_types=["attention", "recurrent"])).eval()


def qwen2_vl():
    tower = dict(depth=2, embed_dim=32, hidden_size=64, num_heads=2, patch_size=4, spatial_merge_size=2, in_channels=3)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    config = Qwen2VLConfig(text_config=GROUPED | {"rope_parameters": rope}, vision_config=tower)
    return Qwen2VLForConditionalGeneration(config).eval()


@pytest.mark.parametrize("length", [1, 5, 65])
@pytest.mark.parametrize("make", [glm, deepseek, recurrent_gemma, qwen2_vl])
def test_logits_stay_what_they_were(make, length):
    host, given = make(), words(2, length)
    model = install(copy.deepcopy(host))
    with torch.no_grad():
        torch.testing.assert_close(model(given).logits, host(given).logits, **SMALL)


def test_the_layout_of_the_pairs_is_found():
    assert installed(install(llama())).interleaved is False
    assert installed(install(glm())).interleaved is True
    assert installed(install(glm())).rotary_dim == 8
    assert installed(install(deepseek())).interleaved is True


def test_each_part_of_a_model_has_an_encoding():
    model = install(qwen2_vl())
    assert list(installed(model)) == ["model.visual", "model.language_model"]
    assert [part.axes for part in installed(model).values()] == [2, 3]
    install(model, "mixed", tower="model.visual")
    assert installed(model)["model.visual"].name == "mixed"
    assert installed(model)["model.language_model"].name == "waves"
    with pytest.raises(ValueError, match=r"name one by tower=, of 'model.visual', 'model.language_model'"):
        install(model, "mixed")
    with pytest.raises(ValueError, match=r"'model.visual', 'model.language_model', got 'visual'"):
        install(model, "mixed", tower="visual")
    assert installed(uninstall(model)) is None


def test_a_part_is_saved_and_loaded_with_what_it_has(tmp_path):
    model, given = llama(), words(1, 9)
    install(model.model, "alibi")
    model.save_pretrained(tmp_path / "with")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "with").eval()
    assert installed(loaded).name == "alibi"
    assert torch.equal(loaded(given).logits, model(given).logits)
    uninstall(model.model).save_pretrained(tmp_path / "part")
    model.save_pretrained(tmp_path / "without")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "without").eval()
    assert installed(loaded) is None
    assert torch.equal(loaded(given).logits, model(given).logits)
    whole = qwen2_vl()
    install(whole.model.language_model, learned=True)
    with torch.no_grad():
        installed(whole)["model.language_model"].wave.mul_(1.1)
    whole.save_pretrained(tmp_path / "whole")
    again = Qwen2VLForConditionalGeneration.from_pretrained(tmp_path / "whole").eval()
    assert list(installed(again)) == ["model.language_model"]
    assert torch.equal(again(given).logits, whole(given).logits)


class WithComRoPE(LlamaForCausalLM):
    """Installs when it is made: under `from_pretrained`, on the meta device."""

    def __init__(self, config):
        super().__init__(config)
        install(self, "comrope-ld", std=0.5)


def test_what_is_installed_in_a_constructor_has_values_when_loaded(tmp_path):
    llama().save_pretrained(tmp_path)
    model = WithComRoPE.from_pretrained(tmp_path).eval()
    assert 0.4 < installed(model).matrix.std() < 0.6
    model.save_pretrained(tmp_path)
    assert torch.equal(installed(WithComRoPE.from_pretrained(tmp_path)).matrix, installed(model).matrix)


@pytest.fixture
def seeded(monkeypatch):
    """As transformers' own tests: weights are made from one seed each."""
    host = PreTrainedModel._initialize_weights

    def initialize(*args, **options):
        set_seed(42)
        host(*args, **options)

    monkeypatch.setattr(PreTrainedModel, "_initialize_weights", initialize)


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("name", [None, "mixed", "comrope-ld", "alibi"])
def test_transformers_makes_the_weights_of_encodings(name):
    config = install(llama(), name, **({"learned": True} if name is None else {})).config
    for kind in (LlamaForCausalLM, modeling_llama.LlamaModel):
        made = kind(copy.deepcopy(config)).state_dict()
        loaded = kind.from_pretrained(None, config=copy.deepcopy(config), state_dict={}).state_dict()
        assert made.keys() == loaded.keys()
        assert [key for key, value in made.items() if not torch.equal(value, loaded[key])] == []
    with torch.device("meta"):
        empty = LlamaForCausalLM(copy.deepcopy(config))
    empty.to_empty(device="cpu").init_weights()
    buffers = dict(LlamaForCausalLM(copy.deepcopy(config)).named_buffers())
    assert [key for key, value in empty.named_buffers() if not torch.equal(value, buffers[key])] == []


def test_trainers_decay_no_parameter_of_an_encoding():
    model = install(llama(), "comrope-ld")
    decayed = Trainer.get_decay_parameter_names(None, model)
    assert "model.layers.0.self_attn.q_proj.weight" in decayed
    assert not [name for name in decayed if "encoding" in name]


def test_neither_the_file_nor_other_models_are_touched():
    before = dict(vars(modeling_llama))
    other, model = llama(), install(llama())
    assert dict(vars(modeling_llama)) == before
    attention = model.model.layers[0].self_attn
    assert isinstance(attention, modeling_llama.LlamaAttention)
    assert isinstance(attention, Rebound)
    assert type(other.model.layers[0].self_attn) is modeling_llama.LlamaAttention
    assert type(pickle.loads(pickle.dumps(model)).model.layers[0].self_attn) is type(attention)
    uninstall(model)
    assert type(attention) is modeling_llama.LlamaAttention


def test_modules_that_accelerate_has_hooked():
    host, given = llama(), words(1, 5)
    model = copy.deepcopy(host)
    for layer in model.model.layers:
        add_hook_to_module(layer.self_attn, ModelHook())
    install(model, "xpos")
    plain = install(copy.deepcopy(host), "xpos")
    assert torch.equal(model(given).logits, plain(given).logits)
    uninstall(model)
    assert torch.equal(model(given).logits, host(given).logits)
    for layer in model.model.layers:
        remove_hook_from_module(layer.self_attn)
    assert torch.equal(model(given).logits, host(given).logits)


def test_options_of_the_model_are_inherited_and_others_are_named():
    scaled = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    host = llama(rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, **scaled})
    model, given = install(copy.deepcopy(host), "rope", learned=True), words(1, 65)
    assert (installed(model).base, installed(model).extension["rope_type"]) == (500.0, "llama3")
    torch.testing.assert_close(model(given).logits, host(given).logits, **SMALL)
    with pytest.warns(UserWarning, match=r"base=100.0 replaces base=500.0, with which the model was trained"):
        install(model, "rope", base=100.0)
    partial = installed(install(glm(), "rope", learned=True))
    assert (partial.rotary_dim, partial.interleaved) == (8, True)


def test_flat_rope_parameters_of_types_of_layers():
    try:
        host = gemma3(rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    except AttributeError:
        pytest.skip("this release of transformers wants rope_parameters of Gemma 3 for each type of layers")
    model, given = install(copy.deepcopy(host)), words(1, 33)
    torch.testing.assert_close(model(given).logits, host(given).logits, **SMALL)


def test_a_host_that_differs_from_its_config_is_measured():
    model, given = llama(), words(1, 9)
    rotary = model.model.rotary_emb
    rotary.inv_freq.mul_(torch.linspace(0.5, 1.0, len(rotary.inv_freq)))
    before = model(given).logits
    install(model)
    assert installed(model).name == "waves"
    torch.testing.assert_close(model(given).logits, before, **SMALL)


def test_a_rotation_that_no_encoding_can_stand_for_is_refused(monkeypatch):
    def mixes_three(q, k, cos, sin, unsqueeze_dim=1):
        return tuple(x + 0.1 * x.roll(1, -1) + 0.1 * x.roll(2, -1) * sin.unsqueeze(1) for x in (q, k))

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", mixes_three)
    model = llama()
    classes = [type(module) for module in model.modules()]
    with pytest.raises(HostRefusedError, match="position 0 is not left as it is"):
        install(model)
    assert [type(module) for module in model.modules()] == classes


def test_what_it_did_is_printed(capsys):
    install(qwen2_vl(), describe=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["model.visual", "model.language_model"]
    assert "positions as axes first, now waves, 3 axes, 8 pairs, half-split" in lines[1]


def foreign_file():
    """A modelling file with names of its own."""
    file = types.ModuleType("foreign_modelling")
    sys.modules[file.__name__] = file
    exec(
        """
import torch
from torch import nn

class Angles(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("inv_freq", 100.0 ** (-torch.arange(0, width, 2) / width), persistent=False)

    def forward(self, x, position_ids):
        angle = position_ids[..., None].float() * self.inv_freq
        return angle.cos(), angle.sin()

def spin(q, k, cos, sin):
    def one(x):
        a, b = x[..., 0::2], x[..., 1::2]
        c, s = cos.unsqueeze(1), sin.unsqueeze(1)
        return torch.stack([a * c - b * s, a * s + b * c], dim=-1).flatten(-2)
    return one(q), one(k)

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, hidden_states, position_embeddings):
        q, k, v = (x.unflatten(-1, (4, 8)).transpose(1, 2) for x in self.qkv(hidden_states).chunk(3, -1))
        q, k = spin(q, k, *position_embeddings)
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.angles = config, Angles(8)
        self.layers = nn.ModuleList([Attention(), Attention()])

    def forward(self, x):
        places = torch.arange(x.shape[1])[None]
        tables = self.angles(x, places)
        for layer in self.layers:
            x = x + layer(x, tables)
        return x
""",
        vars(file),
    )
    return file


def test_models_of_others_are_registered():
    file = foreign_file()
    config = types.SimpleNamespace(_attn_implementation="sdpa", to_dict=dict)
    model = file.Model(config)
    with pytest.raises(TypeError, match="got Model"):
        install(model)
    register(rotary=file.Angles, rotation=file.spin)
    x = torch.randn(2, 5, 32)
    before = model(x)
    install(model)
    assert installed(model).interleaved is True
    torch.testing.assert_close(model(x), before, **SMALL)
    install(model, rw.create("mixed", head_dim=8, heads=4, axes=1))
    assert not torch.allclose(model(x), before, rtol=1e-2)
    assert torch.equal(uninstall(model)(x), before)
    with pytest.raises(ValueError, match=r"must take \(q, k, cos, sin\)"):
        register(rotation=lambda a, b: a)
    with pytest.raises(TypeError, match="rotary must be a class of modules"):
        register(rotary=nn.Linear(2, 2))


def test_all_parts_of_a_model_or_none(monkeypatch):
    def stretched(q, k, cos, sin, unsqueeze_dim=1):
        return q * cos.unsqueeze(unsqueeze_dim), k * sin.unsqueeze(unsqueeze_dim)

    model = qwen2_vl()
    monkeypatch.setattr(sys.modules[type(model).__module__], "apply_rotary_pos_emb", stretched)
    classes, config = [type(module) for module in model.modules()], model.config
    with pytest.raises(HostRefusedError, match=r"model.language_model .*rotates nothing; use tower= to install"):
        install(model)
    assert [type(module) for module in model.modules()] == classes
    assert model.config is config
    assert list(installed(install(model, tower="model.visual"))) == ["model.visual"]


@pytest.mark.filterwarnings("ignore:images:FutureWarning")
@pytest.mark.parametrize("options", [{}, {"extension": "yarn"}], ids=["rescaled", "extension"])
def test_images_of_another_size(options):
    host, images = dinov3(), torch.randn(2, 3, 64, 80)  # made for 3 × 3 patches
    model = install(copy.deepcopy(host), "axial", **options)
    encoding = installed(model)
    positions = encoding.grid(4, 5)
    assert (positions.max() < 3) is not bool(options)
    settled = encoding.at((4, 5))
    monitor = []
    settled_code = settled(positions)
    model.model.layer[0].attention.register_forward_pre_hook(
        lambda _, args, given: monitor.append(unseal(given["position_embeddings"][0])), with_kwargs=True
    )
    with torch.no_grad():
        assert model(images).last_hidden_state.isfinite().all()
    torch.testing.assert_close(monitor[0].q_angle, settled_code.q_angle)


def test_attention_that_cannot_be_folded_is_refused():
    model = install(deepseek(), rw.create("comrope-ld", head_dim=8, heads=4, kv_heads=1, axes=1, coordinates="index"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(TypeError, match="DeepseekV3Attention cannot be folded: kv_a_"):
        fold_into(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    whole = install(qwen2_vl(), "mixed", tower="model.language_model")
    with pytest.raises(TypeError, match="fold_into takes a model with one encoding"):
        fold_into(whole, tower="model.visual")


def apply_back_rotary(q, k, cos, sin):
    return modeling_llama.apply_rotary_pos_emb(q, k, cos, -sin)


class BackAttention(modeling_llama.LlamaAttention):
    """Rotates the other way."""

    def forward(self, hidden_states, position_embeddings=None, **rest):
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        q, k, v = (make(hidden_states).view(shape).transpose(1, 2) for make in (self.q_proj, self.k_proj, self.v_proj))
        q, k = apply_back_rotary(q, k, *position_embeddings)
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).flatten(2)), None


def test_layers_that_rotate_otherwise_are_refused():
    """What the first layer does is not enough."""
    model = llama()
    model.model.layers[1].self_attn.__class__ = BackAttention
    with pytest.raises(HostRefusedError, match=r"at position .* differs from that of"):
        install(model)


def test_keys_that_rotate_otherwise_are_refused(monkeypatch):
    host = modeling_llama.apply_rotary_pos_emb

    def for_queries_alone(q, k, cos, sin, unsqueeze_dim=1):
        return host(q, k, cos, sin)[0], k

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", for_queries_alone)
    with pytest.raises(HostRefusedError, match=r"at position .* differs from that of"):
        install(llama())


def test_training_flags_stay_as_they_were():
    model = llama().train()
    for layer in model.model.layers:
        layer.self_attn.q_proj.eval()
    flags = [module.training for module in model.modules()]
    uninstall(install(model))
    assert [module.training for module in model.modules()] == flags
    assert model.model.layers[0].self_attn.training


def test_casts_of_the_host_round_no_frequency():
    host = llama(rope_parameters={"rope_type": "default", "rope_theta": 5e5}).bfloat16()
    assert installed(install(copy.deepcopy(host), learned=True)).base == 5e5
    assert installed(install(copy.deepcopy(host), "rope", learned=True)).base == 5e5


def test_types_of_layers_keep_their_own_frequencies():
    types_of_layers = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    }
    host, given = gemma3(rope_parameters=types_of_layers), words(1, 33)
    model = install(copy.deepcopy(host), "rope", learned=True)
    assert [installed(model)[kind].base for kind in ("sliding_attention", "full_attention")] == [100.0, 1e6]
    torch.testing.assert_close(model(given).logits, host(given).logits, **SMALL)


def test_what_a_host_has_is_inherited_under_other_names():
    host, given = llama(rope_parameters={"rope_type": "default", "rope_theta": 5e5}), words(1, 33)
    before = host(given).logits
    for asked in ("waves", {"name": "rope", "learned": True}):
        torch.testing.assert_close(install(copy.deepcopy(host), asked)(given).logits, before, **SMALL)
    with pytest.warns(UserWarning, match="base=100.0 replaces base=500000.0"):
        install(host, base=100.0)


DAMAGED = ["rope", ["rope"], {"towers": 5, "name": 3}, {"name": "rope", "head_dim": 16, "host": {}}]


@pytest.mark.parametrize("said", DAMAGED, ids=str)
def test_damaged_descriptions_are_refused(said):
    config = copy.deepcopy(install(llama(), "xpos").config)
    config.ropewalk = said
    with pytest.raises((ValueError, TypeError), match=r"ropewalk|encoding"):
        LlamaForCausalLM(config)

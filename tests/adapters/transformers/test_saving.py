"""Models of transformers with encodings, saved and loaded; rules that configs may name; folding."""

import copy
import json
import os
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaModel,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import ropewalk as rw
from ropewalk.adapters.transformers import extending, fold_into, install, installed, uninstall
from ropewalk.adapters.transformers.config_io import KIND
from tests.adapters.transformers.test_install import (
    DECODERS,
    GROUPED,
    LAYERS,
    SMALL,
    dinov3,
    gemma3,
    gpt_neox,
    llama,
    one_for_all,
    pictures,
    qwen3,
    words,
)

SAVED = {
    "rope": {"base": 500.0},
    "learned": {"name": "rope", "learned": True, "layers": LAYERS},
    "comrope-ld": {"block": 4},
    "alibi": {},
    "chain": {"parts": [{"name": "mixed"}, {"name": "t5-bias"}]},
    "learned-ape": {"size": (80,)},
}


def changed(model):
    """The model with parameters of its encoding that no start would draw."""
    with torch.no_grad():
        for part in [installed(model)] if isinstance(installed(model), rw.Encoding) else installed(model).values():
            for weight in part.parameters():
                weight.mul_(1.1).add_(0.01)
    return model


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("make", DECODERS)
def test_saved_and_loaded(make, name, tmp_path):
    host, given = make(), words(3, 5)
    model = changed(install(copy.deepcopy(host), one_for_all(make, {"name": name, **SAVED[name]})))
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(given).logits, model(given).logits)
    assert installed(loaded).config() == installed(model).config()
    bare = AutoModel.from_pretrained(tmp_path).eval()
    assert torch.equal(bare(given).last_hidden_state, model.base_model(given).last_hidden_state)
    assert torch.equal(uninstall(loaded)(given).logits, host(given).logits)
    assert loaded.config.rope_parameters == host.config.rope_parameters
    assert not hasattr(loaded.config, "ropewalk")


def test_saved_and_loaded_by_types_of_layers(tmp_path):
    model, given = gemma3(), words(3, 5)
    changed(install(model, {"sliding_attention": "mixed", "full_attention": "alibi"})).save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(given).logits, model(given).logits)


def test_one_encoding_for_all_types_of_layers_is_saved_once(tmp_path):
    own = rw.create("mixed", head_dim=16, heads=4, kv_heads=2, axes=1, coordinates="index")
    model, given = install(gemma3(), {"sliding_attention": own, "full_attention": own}), words(3, 9)
    assert installed(model) is own
    assert torch.equal(model(given).logits, install(copy.deepcopy(model), copy.deepcopy(own))(given).logits)
    changed(model).save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(given).logits, model(given).logits)
    two = {"sliding_attention": own, "full_attention": copy.deepcopy(own)}
    assert installed(install(gemma3(), two)) == two


FRESH = """
import sys, torch
model = torch.load(sys.argv[1], weights_only=False)
given, wanted = torch.load(sys.argv[2])
torch.testing.assert_close(model(given).logits, wanted, rtol=1e-4, atol=1e-4)  # on as many threads as there are
print("the same")
"""


def test_a_whole_model_is_loaded_by_a_program_that_installs_nothing(tmp_path):
    model, given = install(llama(), "comrope-ld", std=0.3), words(1, 9)
    torch.save(model, tmp_path / "model")
    torch.save((given, model(given).logits.detach()), tmp_path / "said")
    call = [sys.executable, "-c", FRESH, tmp_path / "model", tmp_path / "said"]
    done = subprocess.run(call, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout == "the same\n", done.stderr


ATTENTION = {"eager": "ropewalk_eager", "ropewalk_eager": "ropewalk_eager", "sdpa": "ropewalk", "ropewalk": "ropewalk"}


@pytest.mark.parametrize("named", ATTENTION)
def test_attention_may_be_named_when_a_model_is_loaded(named, tmp_path):
    host, given = llama(), words(1, 5)
    install(copy.deepcopy(host), "alibi").save_pretrained(tmp_path / "ours")
    host.save_pretrained(tmp_path / "theirs")
    wanted = install(copy.deepcopy(host), "alibi")(given).logits
    for path in ("ours", "theirs"):
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / path, attn_implementation=named).eval()
        install(loaded, "alibi") if path == "theirs" else None
        assert loaded.config._attn_implementation == ATTENTION[named]
        out = loaded(given, output_attentions=True)
        torch.testing.assert_close(out.logits, wanted, **SMALL)
        assert len(out.attentions) == (LAYERS if "eager" in named else 0)
        uninstall(loaded)
        assert loaded.config._attn_implementation == ("eager" if "eager" in named else "sdpa")
        torch.testing.assert_close(loaded(given).logits, host(given).logits, **SMALL)


def test_a_config_is_left_alone_by_models_that_are_made_from_it():
    said = install(llama(), "alibi").config
    said._attn_implementation = None
    model, other = LlamaForCausalLM(said), LlamaForSequenceClassification(said)
    assert said._attn_implementation == "sdpa"  # which transformers writes
    for each in (model, other):
        assert isinstance(installed(each), rw.ALiBi)
        assert each.config is each.model.config is not said
        assert each.config._attn_implementation == "ropewalk"
    model.set_attn_implementation("ropewalk_eager")
    assert (said._attn_implementation, other.config._attn_implementation) == ("sdpa", "ropewalk")
    assert uninstall(model).config._attn_implementation == "eager"


@pytest.mark.parametrize("name", ["mixed", "alibi", "learned-ape"])
def test_pictures_saved_and_loaded(name, tmp_path):
    model, given = changed(install(dinov3(), name, size=(3, 5))), pictures()
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(given).last_hidden_state, model(given).last_hidden_state)


def test_loaded_in_bfloat16_the_encoding_is_whole(tmp_path):
    model = changed(install(llama(), "comrope-ld"))
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).eval()
    assert loaded.lm_head.weight.dtype is torch.bfloat16
    assert torch.equal(installed(loaded).matrix, installed(model).matrix)
    assert loaded(words(1, 5)).logits.isfinite().all()


def test_what_is_as_the_config_says_is_saved_as_it_was(tmp_path):
    host, given = llama(), words(3, 5)
    install(copy.deepcopy(host)).save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert installed(loaded) is None
    assert torch.equal(loaded(given).logits, host(given).logits)


def test_without_this_adapter_it_is_refused(tmp_path, monkeypatch):
    install(llama(), "alibi").save_pretrained(tmp_path)
    monkeypatch.delitem(ROPE_INIT_FUNCTIONS, KIND)
    for kind in (AutoModelForCausalLM, LlamaModel):
        with pytest.raises(KeyError, match=r"pip install ropewalk, then import ropewalk\.adapters"):
            kind.from_pretrained(tmp_path)


def test_models_from_configs_and_weights_that_are_missing(tmp_path):
    host = llama()
    host.save_pretrained(tmp_path)
    said = install(copy.deepcopy(host), "comrope-ld", std=0.5).config
    model = LlamaForCausalLM(said)
    assert installed(model).matrix.std() > 0.1
    (tmp_path / "config.json").write_text(json.dumps(said.to_dict()))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert 0.3 < installed(loaded).matrix.std() < 0.7
    assert torch.equal(loaded.lm_head.weight, host.lm_head.weight)


def test_an_encoding_is_not_started_anew():
    model = install(llama(), "comrope-ld")
    before = installed(model).matrix.clone()
    model.init_weights()
    assert torch.equal(installed(model).matrix, before)


def test_a_type_of_rope_that_stands_for_an_encoding_needs_one():
    for kind in ("ropewalk", KIND):
        with pytest.raises(Exception, match="got one without"):
            LlamaConfig(**GROUPED, rope_parameters={"rope_type": kind, "rope_theta": 1e4})


NAMED = {
    "ntk-aware": {"factor": 4.0},
    "ntk-by-parts": {"factor": 2.5, "original_max_position_embeddings": 32},
    "yarn-article": {"factor": 4.0, "original_max_position_embeddings": 32},
}


@pytest.mark.parametrize("name", NAMED)
def test_a_config_may_name_our_rules(name, tmp_path):
    model = llama(rope_parameters={"rope_type": name, "rope_theta": 500.0, **NAMED[name]})
    plain = llama(rope_parameters={"rope_type": "default", "rope_theta": 500.0}).model.rotary_emb.inv_freq
    found, given = model.model.rotary_emb.inv_freq, words(1, 33)
    rule = rw.extension.parse({"rope_type": name, **NAMED[name]})
    wanted = rule(rw.spectra.geometric(8, 500.0), base=500.0, rotary_dim=16).frequency
    torch.testing.assert_close(found, wanted.float())
    assert (found / plain - 1).abs().max() > 0.1
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(given).logits, model(given).logits)
    torch.testing.assert_close(install(loaded)(given).logits, model(given).logits, **SMALL)


def test_ntk_aware_has_the_base_of_its_law():
    found = llama(rope_parameters={"rope_type": "ntk-aware", "rope_theta": 500.0, "factor": 4.0}).model.rotary_emb.inv_freq
    base = 500.0 * 4.0 ** (16 / 14)
    torch.testing.assert_close(found, torch.tensor([base ** (-i / 8) for i in range(8)]))


def test_without_a_factor_a_rule_goes_by_the_longest_text_of_the_config():
    said = {"rope_type": "ntk-by-parts", "rope_theta": 500.0, "original_max_position_embeddings": 32}
    model, given = llama(rope_parameters=said), words(1, 5)
    told = llama(rope_parameters=said | {"factor": 2.5})
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, told.model.rotary_emb.inv_freq)
    before = model(given).logits
    torch.testing.assert_close(install(model)(given).logits, before, **SMALL)


def test_our_rules_do_not_replace_theirs():
    before = dict(ROPE_INIT_FUNCTIONS)
    assert extending.register() == []
    assert before == ROPE_INIT_FUNCTIONS
    theirs = {name for name, rule in before.items() if rule.__module__.startswith("transformers")}
    assert theirs >= {"linear", "dynamic", "yarn", "longrope", "llama3"}
    assert set(before) - theirs >= {"ropewalk", *NAMED}


def test_wrong_rules_are_refused_with_the_config():
    with pytest.raises(Exception, match=r"factor.*got factr"):
        LlamaConfig(**GROUPED, rope_parameters={"rope_type": "ntk-aware", "factr": 4.0})


FOLDED = [
    {"name": "comrope-ld", "std": 0.02, "layers": LAYERS},
    {"name": "liere", "scale": 0.005, "block": 5},
    {"name": "chain", "parts": [{"name": "liere", "scale": 0.005}, {"name": "alibi"}]},
]


@pytest.mark.parametrize("encoding", FOLDED, ids=str)
@pytest.mark.parametrize("make", [llama, gemma3, gpt_neox])
def test_folded_it_computes_what_it_did(make, encoding, tmp_path):
    model, given = changed(install(make(), encoding)), words(3, 33)
    if make is gpt_neox:
        for layer in model.gpt_neox.layers:
            nn.init.normal_(layer.attention.query_key_value.bias)
    before, weights = model(given).logits, copy.deepcopy(model.state_dict())
    assert fold_into(model) is model
    torch.testing.assert_close(model(given).logits, before, rtol=1e-4, atol=2e-4)
    assert "mixed" in str(model.config.ropewalk)
    rewritten = {name for name, weight in weights.items() if not torch.equal(model.state_dict().get(name, weight), weight)}
    assert all(any(each in name for each in ("q_proj", "k_proj", "query_key_value")) for name in rewritten)
    assert len(rewritten) >= 2 * LAYERS
    model.save_pretrained(tmp_path)
    assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path).eval()(given).logits, model(given).logits)


@pytest.mark.filterwarnings("ignore:images of another size:FutureWarning")
def test_pictures_folded():
    model, given = install(dinov3(), "comrope-ld", std=0.3), pictures()
    before = model(given).last_hidden_state
    torch.testing.assert_close(fold_into(model)(given).last_hidden_state, before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", ["as it is", "copied", "loaded", "put there again"])
@pytest.mark.parametrize("encoding", [{"name": "comrope-ld", "std": 0.3}, FOLDED[2]], ids=str)
def test_a_folded_model_keeps_its_encoding(encoding, way, tmp_path):
    """Its weights hold the basis: with another rotation, or none of ours, it would be wrong and nobody would see it."""
    model, given = fold_into(install(llama(), encoding)), words(3, 9)
    before = model(given).logits
    if way == "copied":
        model = pickle.loads(pickle.dumps(model))
    elif way == "loaded":
        model.save_pretrained(tmp_path)
        model = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    elif way == "put there again":
        model = install(model, copy.deepcopy(installed(model)))
    for other in ("rope", "alibi", None, {"name": "mixed"}, model.config.ropewalk):
        with pytest.raises(ValueError, match=r"'(mixed|chain)', got.*'"):
            install(model, other)
    with pytest.raises(ValueError, match="got the rotation of the model"):
        uninstall(model)
    assert torch.equal(model(given).logits, before)
    assert model.config.ropewalk["folded"] is True
    install(model, installed(model))
    assert torch.equal(fold_into(model)(given).logits, before)


def test_weights_of_a_folded_model_go_with_what_its_config_says():
    folded = fold_into(install(llama(), "comrope-ld", std=0.3))
    model, given = install(llama(), folded.config.ropewalk), words(1, 9)
    model.load_state_dict(folded.state_dict())
    assert torch.equal(model(given).logits, folded(given).logits)
    with pytest.raises(ValueError, match="folded encoding"):
        uninstall(model)


def test_what_cannot_be_folded_is_refused_and_left():
    model, given = install(qwen3(), "comrope-ld"), words(1, 5)
    before = model(given).logits
    with pytest.raises(ValueError, match=r"0.*Qwen3RMSNorm"):
        fold_into(model)
    assert torch.equal(model(given).logits, before)
    with pytest.raises(TypeError, match="each type of layers"):
        fold_into(install(gemma3()))
    with pytest.raises(TypeError, match="got none"):
        fold_into(llama())
    with pytest.raises(ValueError, match="liere do not commute"):
        fold_into(install(dinov3(), "liere"))
    assert installed(uninstall(model)) is None


def test_what_a_config_was_told_since_stays(tmp_path):
    model, given = llama(), words(1, 5)
    own = model.config
    assert uninstall(install(model, "alibi")).config is own
    install(model, "comrope-ld", layers=LAYERS, block=4)
    model.resize_token_embeddings(101)
    model.config.use_cache = False
    folded = fold_into(copy.deepcopy(model))
    folded.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(given).logits, folded(given).logits)
    assert (folded.config.vocab_size, folded.config.use_cache) == (101, False)
    install(model, "alibi")
    assert (model.config.vocab_size, model.config.use_cache) == (101, False)
    assert model.config._attn_implementation == "ropewalk"
    uninstall(model)
    assert (model.config.vocab_size, model.config.use_cache) == (101, False)
    assert model.config._attn_implementation == own._attn_implementation == "sdpa"
    assert not hasattr(model.config, "ropewalk")
    assert own.vocab_size != 101  # which others may share

"""Context extension as transformers has it: every rope type, over a sweep of configs, and whole rotary modules.

Its functions compute in float32, ours in float64: they differ by its rounding.
"""

import itertools

import pytest
import torch
from transformers import Gemma3TextConfig, LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama import modeling_llama as llama

import ropewalk as rw
from ropewalk import extension
from tests.support.float64_reference import assert_same, leaf

BASES, WIDTHS, LONGEST = (1e4, 5e5, 150.0), (128, 20), 2048


def swept(**choices):
    """All dictionaries of one choice each; a choice of None leaves its key out."""
    for values in itertools.product(*choices.values()):
        yield {key: value for key, value in zip(choices, values, strict=True) if value is not None}


def lists(pairs):
    return {"short_factor": [1 + 0.01 * i for i in range(pairs)], "long_factor": [1 + 0.5 * i for i in range(pairs)]}


SPECS = {
    "linear": list(swept(factor=[1.0, 2.0, 7.5])),
    "dynamic": list(swept(factor=[1.0, 2.0, 7.5])),
    "yarn": [
        *swept(
            factor=[1.0, 4.0, 40.0],
            original_max_position_embeddings=[6, 64, 512, None],
            beta_fast=[32, 8.0, None],
            beta_slow=[2.0, None],
            truncate=[False, True, None],
        ),
        *swept(
            factor=[1.0, 16.0],
            original_max_position_embeddings=[512],
            attention_factor=[0.8, None],
            mscale=[0.7, 1.0, 0, None],
            mscale_all_dim=[0.3, 1.0, 0, None],
        ),
        *swept(factor=[32.0], original_max_position_embeddings=[64, 512], beta_fast=[1.0], beta_slow=[1.0]),  # Kimi K2's
    ],
    "llama3": [
        *swept(
            factor=[8.0, 32.0],
            low_freq_factor=[1.0, 0.5],
            high_freq_factor=[4.0, 16.0],
            original_max_position_embeddings=[512, 1024],
        ),
        *swept(factor=[16.0], low_freq_factor=[1.0], high_freq_factor=[1.0], original_max_position_embeddings=[512]),
    ],  # the last of them Llama 4 Scout's
    "longrope": list(
        swept(factor=[1.0, 32.0, None], attention_factor=[1.1, None], original_max_position_embeddings=[512, 2048])
    ),
    "proportional": list(swept(factor=[1.0, 8.0, None])),
}


def config_of(parameters, width, kind=LlamaConfig, **more):
    sizes = {"hidden_size": 2 * width, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": width}
    return kind(**sizes, max_position_embeddings=LONGEST, rope_parameters=parameters, **more)


def ours(parameters, width, length, **options):
    found = extension.options(parameters, head_dim=width, max_position_embeddings=LONGEST, **options)
    return rw.create("rope", head_dim=width, heads=2, kv_heads=1, **found).double().at(length)


def frequencies(encoding):
    return encoding.waves()[0, :, 0]


def attention_factor(encoding):
    gain = encoding(torch.zeros(1, 1)).q_gain
    return 1.0 if gain is None else gain.unique().item()


def test_every_rope_type_is_swept():
    own = {name for name, function in ROPE_INIT_FUNCTIONS.items() if function.__module__.startswith("transformers")}
    assert set(SPECS) == own  # others are ours, where the adapter was imported


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", SPECS)
def test_frequencies_and_factors_like_transformers(name, base, width):
    lengths = (100, 512, 513, 2049, 9000) if name in ("dynamic", "longrope") else (100,)
    for spec, share, length in itertools.product(SPECS[name], (0.5, None), lengths):
        parameters = {"rope_type": name, "rope_theta": base, **spec}
        parameters |= {} if share is None else {"partial_rotary_factor": share}
        pairs = int(width * (share or 1)) // 2 if name != "proportional" else width // 2
        parameters |= lists(pairs) if name == "longrope" else {}
        config = config_of(dict(parameters), width)
        theirs, factor = ROPE_INIT_FUNCTIONS[name](config, torch.device("cpu"), seq_len=length)
        made = ours(parameters, width, length)
        assert torch.allclose(frequencies(made), theirs.double(), rtol=1e-5, atol=0), parameters
        assert attention_factor(made) == pytest.approx(factor, rel=1e-15), parameters


EXTENDED = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 256},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256},
    "longrope": {"factor": 8.0, "original_max_position_embeddings": 256, **lists(7)},
    "proportional": {"factor": 4.0, "partial_rotary_factor": 0.5},
}


@pytest.mark.parametrize("length", [65, 2050])
@pytest.mark.parametrize("name", EXTENDED)
def test_queries_and_keys_like_llama(name, length):
    parameters = {"rope_type": name, "rope_theta": 1e3, **EXTENDED[name]}
    position_ids = torch.stack([torch.arange(length)[-65:], torch.arange(length)[-65:] // 3])
    q, k = (leaf(2, heads, 65, 14, seed=heads, dtype=torch.float32) for heads in (2, 1))
    rotary = llama.LlamaRotaryEmbedding(config_of(dict(parameters), 14))
    theirs = llama.apply_rotary_pos_emb(q, k, *rotary(q, position_ids))
    made = ours(parameters, 14, length).float()
    assert_same(made(position_ids).qk(q, k), theirs, [q, k], length)


def test_a_length_of_training_beside_the_dictionary_like_phi():
    parameters = {"rope_type": "longrope", "rope_theta": 1e4, **lists(16)}
    config = config_of(dict(parameters), 32, Phi3Config, original_max_position_embeddings=512, pad_token_id=0)
    theirs, factor = ROPE_INIT_FUNCTIONS["longrope"](config, seq_len=600)
    made = ours(parameters, 32, 600, original_max_position_embeddings=512)
    torch.testing.assert_close(frequencies(made), theirs.double(), rtol=1e-6, atol=0)
    assert attention_factor(made) == pytest.approx(factor, rel=1e-15)
    assert made.rule.original_max_position_embeddings == 512


def test_dynamic_ntk_does_not_remember_where_transformers_does():
    parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    rotary = llama.LlamaRotaryEmbedding(config_of(dict(parameters), 14))
    made = ours(parameters, 14, LONGEST)
    x, short = torch.zeros(1), torch.arange(LONGEST)[None]
    before = rotary(x, short)[0]
    rotary(x, torch.arange(4 * LONGEST)[None])
    assert (rotary(x, short)[0] - before).abs().max() > 0.5
    fresh = made(short).q_angle.clone()
    made.at(4 * LONGEST)(short)
    assert torch.equal(made(short).q_angle, fresh)


def test_layers_of_several_types_like_gemma():
    parameters = {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    config = config_of({name: dict(spec) for name, spec in parameters.items()}, 64, Gemma3TextConfig)
    theirs, _ = ROPE_INIT_FUNCTIONS["linear"](config, layer_type="full_attention")
    made = ours(parameters, 64, 100, layer_type="full_attention")
    torch.testing.assert_close(frequencies(made), theirs.double(), rtol=1e-6, atol=0)
    assert (
        ours(parameters, 64, 100, layer_type="sliding_attention").config()
        == rw.create("rope", head_dim=64, heads=2, kv_heads=1).config()
    )


@pytest.mark.parametrize("truncate", [True, False])
def test_a_nested_truncate_as_transformers_reads_it(truncate):
    own = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 8.0, "original_max_position_embeddings": 512}
    parameters = {"full_attention": own | {"truncate": truncate}, "sliding_attention": {"rope_type": "default"}}
    config = config_of({name: dict(spec) for name, spec in parameters.items()}, 64, Gemma3TextConfig)
    theirs, _ = ROPE_INIT_FUNCTIONS["yarn"](config, layer_type="full_attention")
    made = ours(parameters, 64, 100, layer_type="full_attention", framework="transformers")
    torch.testing.assert_close(frequencies(made), theirs.double(), rtol=1e-5, atol=0)
    meant = frequencies(ours(parameters, 64, 100, layer_type="full_attention"))
    assert torch.equal(frequencies(made), meant) == truncate

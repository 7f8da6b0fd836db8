"""A tiny config from any config class of transformers: widths, layers and experts shrunk, what makes a family special kept.

Sizes are found by the names of the attributes (`SIZES`), sub-configs by recursion, layers so that each kind of layer of the
default config occurs. What names do not say stands in `EXCEPTIONS`, with the reason.
"""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

HIDDEN, HEADS, HEAD_DIM, LAYERS, VOCABULARY, EXPERTS = 64, 4, 16, 2, 99, 4
MOST_LAYERS = 4
# The first pattern that matches the whole name of an integer gives its value, unless its default is less.
SIZES = [
    (r"(\w+_)?(vocab_size|vocabulary_size)", VOCABULARY),
    (r"(\w+_)?(head_dim|qk_rope_head_dim|qk_nope_head_dim|v_head_dim|d_head|key_head_dim|value_head_dim)", HEAD_DIM),
    (r"(\w+_)?(num_(key_value|kv)_heads|num_key_heads|n_kv_heads|n_head_kv)", HEADS // 2),
    (r"(\w+_)?(num_(attention_)?heads|n_heads?|attention_heads|num_value_heads|num_query_heads)", HEADS),
    (r"(\w+_)?(hidden_size|hidden_dim|d_model|n_embd|embed_dim|embedding_dim|width)", HIDDEN),
    (r"out_hidden_size|projection_dim|output_dim|projector_hidden_size", HIDDEN),
    (r"(\w+_)?(intermediate_size|ffn_dim|ffn_hidden_size|d_ff|n_inner|mlp_dim|intermediate_dim)", 96),
    (r"(\w+_)?(lora_rank|lora_dim)", 32),
    (r"(\w*_)?(num_hidden_layers|n_layers?|num_layers|depth|(encoder|decoder)_layers|num_(encoder|decoder)_layers)", LAYERS),
    (r"(n_routed_experts|num_experts|num_local_experts|moe_num_experts|n_experts|num_routed_experts)", EXPERTS),
    (r"(num_experts_per_tok|moe_k|moe_topk|num_experts_per_token|num_selected_experts|n_group)", 2),
    (r"(topk_group|n_shared_experts|num_shared_experts|moe_num_shared_experts|first_k_dense_replace|num_dense_layers)", 1),
    (r"(\w+_)?(sliding_window|attention_window|attention_chunk_size)", 8),
    (r"(\w+_)?max_position_embeddings|n_positions", 512),
    (r"image_size", 16),
    (r"patch_size", 4),
    (r"num_position_embeddings", 16),
    (r"mamba_(n|num)_heads", 8),
    (r"mamba_d_state|ssm_state_size|state_size", 8),
    (r"(mamba_)?chunk_size", 8),
    (r"index_topk", 8),
]
KV_HEADS = re.compile(r"num_(key_value|kv)_heads")
SPECIAL = re.compile(r"\w*_token_(id|index)|(\w+_)?(start|end)_(id|index)")
FIRST_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
# Values that names do not say: by the class of the config.
EXCEPTIONS: dict[str, dict[str, Any]] = {
    # Layers whose kinds are said otherwise than by lists.
    "BambaConfig": {"attn_layer_indices": [1]},
    "JambaConfig": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "GraniteMoeHybridConfig": {"layer_types": ["linear_attention", "full_attention"]},
    "RecurrentGemmaConfig": {"num_hidden_layers": 3},
    # Widths of rotation that no head_dim says.
    "CodeGenConfig": {"rotary_dim": 8},
    "GPTJConfig": {"rotary_dim": 8},
    # A quarter of the head is rotated: three axes need more than two pairs.
    "Qwen3_5TextConfig": {"head_dim": 64},
    "Qwen3_5MoeTextConfig": {"head_dim": 64},
    # No default, or one that the model refuses.
    "HunYuanDenseV1Config": {"head_dim": HEAD_DIM},
    "HunYuanMoEV1Config": {"head_dim": HEAD_DIM},
    "MinistralConfig": {"head_dim": HEAD_DIM},
    "EsmConfig": {"vocab_size": VOCABULARY, "position_embedding_type": "rotary"},
    "ESMCConfig": {"num_key_value_heads": HEADS},
    "Wav2Vec2ConformerConfig": {"vocab_size": VOCABULARY, "position_embeddings_type": "rotary"},
    "Wav2Vec2BertConfig": {"vocab_size": VOCABULARY, "position_embeddings_type": "rotary"},
}


def make_tiny(config_class: type[PreTrainedConfig], **given: Any) -> PreTrainedConfig:
    """A tiny config of a class. `given` are values that go before all rules."""
    return _Maker().make(config_class, None, given)


class _Maker:
    """Makes a config and those in it, which share the ids of special tokens."""

    def __init__(self) -> None:
        self.special = dict(FIRST_SPECIAL)

    def make(self, config_class: type[PreTrainedConfig], model: PreTrainedConfig | None, given: dict[str, Any]) -> Any:
        """A tiny config. `model` is the default one, as the config around it makes it."""
        full = config_class() if model is None else model
        values: dict[str, Any] = {}
        for name, field in config_class.__dataclass_fields__.items():
            if field.init and name not in _GENERAL:
                self._enter(values, name, vars(full).get(name), field.default)
        if "kv_lora_rank" in config_class.__dataclass_fields__:  # keys and values are made for every head
            values |= {name: HEADS for name in values if KV_HEADS.fullmatch(name)}
        values |= _pick_layers(full, config_class, values)
        values |= EXCEPTIONS.get(config_class.__name__, {}) | given
        made = config_class(**values)
        return made if (sections := _scale_sections(made)) is None else config_class(**values | sections)

    def _enter(self, values: dict[str, Any], name: str, full: Any, default: Any) -> None:
        if isinstance(full, PreTrainedConfig):
            values[name] = self.make(type(full), full, {})
        elif SPECIAL.fullmatch(name):
            if full is not None:
                one = self.special.setdefault(name.removesuffix("_index").removesuffix("_id"), len(self.special) + 6)
                values[name] = FIRST_SPECIAL.get(name, one)
        elif isinstance(default, int) and not isinstance(default, bool):
            tiny = next((value for pattern, value in SIZES if re.fullmatch(pattern, name)), default)
            values[name] = min(tiny, default) if default >= 0 else default
        elif default is None and KV_HEADS.fullmatch(name):
            values[name] = HEADS // 2


_GENERAL = {field.name for field in dataclasses.fields(PreTrainedConfig)} - {"pad_token_id", "bos_token_id", "eos_token_id"}


def _pick_layers(full: PreTrainedConfig, config_class: type[PreTrainedConfig], values: dict[str, Any]) -> dict[str, Any]:
    """Each kind of layer once, from the lists that say something for each layer; at least two layers."""
    count = getattr(full, "num_hidden_layers", None)
    lists = {
        name: value
        for name, value in vars(full).items()
        if isinstance(value, list | tuple) and len(value) == count and count > 2
    }
    if not lists:
        return {}
    kinds: dict[str, int] = {}
    for layer, one in enumerate(zip(*lists.values(), strict=True)):
        kinds.setdefault(repr(one), layer)
    chosen = sorted(list(kinds.values())[:MOST_LAYERS])
    chosen = chosen if len(chosen) > 1 else [0, 1]
    fields = config_class.__dataclass_fields__
    picked = {name: type(value)(value[layer] for layer in chosen) for name, value in lists.items() if name in fields}
    return picked | {"num_hidden_layers": len(chosen)} if picked else {}


def _scale_sections(config: PreTrainedConfig) -> dict[str, Any] | None:
    """Sections of M-RoPE, which say how many pairs each axis has, made to fit the tiny head; None if there are none."""
    if "rope_parameters" not in type(config).__dataclass_fields__:
        return None
    parameters = config.rope_parameters or {}
    nested = any(isinstance(value, dict) for value in parameters.values())
    sections = next((one["mrope_section"] for one in (parameters, *_dicts(parameters)) if one.get("mrope_section")), None)
    sections = sections or default_sections(type(config))
    if sections is None:
        return None
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    changed = {}
    for kind, one in (parameters if nested else {"": parameters}).items():
        pairs = int(head_dim * one.get("partial_rotary_factor", 1.0)) // 2
        changed[kind] = one | {"mrope_section": share_pairs(sections, pairs)}
    return {"rope_parameters": changed if nested else changed[""]}


def _dicts(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [value for value in values.values() if isinstance(value, dict)]


def default_sections(config_class: type[PreTrainedConfig]) -> list[int] | None:
    """The sections that a modelling file takes where the config has none: from its text, as no config says them."""
    folder = Path(inspect.getfile(config_class)).parent
    if "Vision" in config_class.__name__ or "Audio" in config_class.__name__:
        return None
    for file in sorted(folder.glob("modeling_*.py")):
        if found := re.search(r'get\("mrope_section", \[(\d+), (\d+), (\d+)\]\)', file.read_text()):
            return [int(one) for one in found.groups()]
    return None


def share_pairs(sections: list[int], pairs: int) -> list[int]:
    """`pairs` in the proportions of `sections`, the first ones rounded up."""
    exact = [pairs * section / sum(sections) for section in sections]
    shares = [int(one) for one in exact]
    order = sorted(range(len(exact)), key=lambda axis: shares[axis] - exact[axis])
    for axis in order[: pairs - sum(shares)]:
        shares[axis] += 1
    return shares

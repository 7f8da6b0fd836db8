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
    (r"vocab_size_per_layer_input", VOCABULARY),
    (r"hidden_size_per_layer_input", 8),
    (r"position_embedding_size|pos_emb_(height|width)", 16),
    (r"(nemo_conv|ext_pw_out|depthwise_separable_out)_channels?|downsample_hidden_size", 32),
    (r"(\w+_)?(vocab_size|vocabulary_size)", VOCABULARY),
    (r"(\w+_)?(head_dim|qk_rope_head_dim|qk_nope_head_dim|v_head_dim|d_head|key_head_dim|value_head_dim)", HEAD_DIM),
    (r"(\w+_)?(num_(key_value|kv)_heads|num_key_heads|n_kv_heads|n_head_kv)", HEADS // 2),
    (r"(\w+_)?(num_(attention_)?heads|n_heads?|attention_heads|num_value_heads|num_query_heads)", HEADS),
    (r"(\w+_)?(hidden_size|hidden_dim|d_model|n_embd|embed_dim|embedding_dim|width)", HIDDEN),
    (r"out_hidden_size|projection_dim|output_dim|projector_hidden_size|text_hidden_size|hidden_size_global", HIDDEN),
    (r"adapter_(in|out)_dim|adapter_input_size|condition_dim|moe_hidden_size|input_size|upsample_groups", HIDDEN),
    (r"(codebook|latent|vector_quantization_hidden)_(dim|dimension|channels)", HEAD_DIM),
    (r"codebook_size|num_embeddings", 32),
    (r"num_filters|base_channels", 8),
    (r"(\w+_)?(intermediate_size|ffn_dim|ffn_hidden_size|d_ff|n_inner|mlp_dim|intermediate_dim)", 96),
    (r"(\w+_)?(lora_rank|lora_dim)", 32),
    (r"(\w*_)?(num_hidden_layers|n_layers?|num_layers|depth|(encoder|decoder)_layers|num_(encoder|decoder)_layers)", LAYERS),
    (r"(n_routed_experts|num_experts|num_local_experts|moe_num_experts|n_experts|num_routed_experts)", EXPERTS),
    (r"(num_experts_per_tok|moe_k|moe_topk|num_experts_per_token|num_selected_experts|n_group)", 2),
    (r"(topk_group|n_shared_experts|num_shared_experts|moe_num_shared_experts|first_k_dense_replace|num_dense_layers)", 1),
    (r"(\w+_)?(sliding_window|attention_window|attention_chunk_size)", 8),
    (r"(\w+_)?max_position_embeddings|n_positions", 512),
    (r"image_size|crop_size", 16),
    (r"frames_per_clip", 4),
    (r"patch_size", 4),
    (r"num_position_embeddings", 16),
    (r"mamba_(n|num)_heads", 8),
    (r"mamba_d_state|ssm_state_size|state_size", 8),
    (r"(mamba_)?chunk_size", 8),
    (r"index_topk", 8),
]
# What models need although their configs have no default.
UNSAID = {"num_experts_per_tok": 2, "n_routed_experts": EXPERTS, "num_local_experts": EXPERTS}
KV_HEADS = re.compile(r"num_(key_value|kv)_heads")
SPECIAL = re.compile(r"\w*_token_(id|index)|(\w+_)?(start|end)_(id|index)")
FIRST_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
# Values that names do not say: by the class of the config.
EXCEPTIONS: dict[str, dict[str, Any]] = {
    # Configs that give layer types by other means than a list.
    "BambaConfig": {"attn_layer_indices": [1]},
    "JambaConfig": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "GraniteMoeHybridConfig": {"position_embedding_type": "rope", "layer_types": ["linear_attention", "full_attention"]},
    "RecurrentGemmaConfig": {"num_hidden_layers": 3},
    "Gemma3nTextConfig": {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0],
        "intermediate_size": 96,
        "laurel_rank": 8,
    },
    "MoonshineStreamingEncoderConfig": {"sliding_windows": ((16, 4), (16, 0))},
    # Off by default: the rotation itself.
    "EsmConfig": {"vocab_size": VOCABULARY, "position_embedding_type": "rotary", "pad_token_id": 0, "mask_token_id": 3},
    "Wav2Vec2ConformerConfig": {"vocab_size": VOCABULARY, "position_embeddings_type": "rotary"},
    "Wav2Vec2BertConfig": {"vocab_size": VOCABULARY, "position_embeddings_type": "rotary"},
    "Zamba2Config": {"use_mem_rope": True},
    # Widths of rotation that no head_dim says.
    "CodeGenConfig": {"rotary_dim": 8},
    "GPTJConfig": {"rotary_dim": 8},
    # A part of the head is rotated: three axes need more than two pairs.
    "Qwen3_5TextConfig": {"head_dim": 64},
    "Qwen3_5MoeTextConfig": {"head_dim": 64},
    "Glm4vMoeTextConfig": {"head_dim": 32},
    # Sizes that must fit others.
    "EsmcConfig": {"vocab_size": VOCABULARY, "num_key_value_heads": HEADS},
    "Glm5NextTextConfig": {"num_key_value_heads": HEADS, "index_kpool": 4, "index_topk": 8},
    "EfficientLoFTRConfig": {
        "num_attention_heads": 8,
        "out_features": [HIDDEN] * 4,
        "stage_num_blocks": [1, 1, 1, 1],
        "num_attention_layers": 2,
    },
    "EsmFold2AtomEncoderConfig": {"num_spatial_rope_pairs_per_axis": 2, "num_uid_rope_pairs": 2},
    "Molmo2AdapterConfig": {"vision_feature_layer": [1, 0]},
    "Molmo2VisionConfig": {"num_key_value_heads": HEADS, "image_size": [16, 16], "num_position_embeddings": 16},
    "NemotronHConfig": {"mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2},
    "ClvpDecoderConfig": {"feature_size": HEAD_DIM},
    "BltConfig": {"encoder_hash_byte_group_vocab": 64, "vocab_size": 260},
    "ChameleonVQVAEConfig": {"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1, "resolution": 16},
    "Emu3VQVAEConfig": {"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1},
    "Cosmos3EdgeTextConfig": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]}},
    "DbrxAttentionConfig": {"rope_theta": 10000.0, "clip_qkv": 8.0, "kv_n_heads": 2},
    "MoonshineStreamingConfig": {"num_key_value_heads": HEADS},
    "SeamlessM4TConfig": {"position_embeddings_type": "rotary"},
    "EsmFold2Config": {"single_inputs_size": HIDDEN + 67},
    # Multipliers that make attention uniform, negligible beside the residual, or so peaked that rounding is amplified.
    "MuseSparkTextConfig": {"qk_scale_factor": 1.0},
    "GraniteDoclingTextConfig": {"attention_multiplier": 0.5, "embedding_multiplier": 1.0, "residual_multiplier": 1.0},
    # No default, or one that the model refuses.
    "HunYuanDenseV1Config": {"head_dim": HEAD_DIM},
    "HunYuanMoEV1Config": {"head_dim": HEAD_DIM},
    "MinistralConfig": {"head_dim": HEAD_DIM},
    "ChameleonConfig": {"vocabulary_map": {"<image>": 8, **{f"IMGIMG{chr(65 + one)}Z": 10 + one for one in range(10)}}},
    "Emu3Config": {"vocabulary_map": {"<image>": 8, "<|extra_200|>": 9}},
    "DiffusionGemmaTextConfig": {"num_experts": EXPERTS, "top_k_experts": 2, "moe_intermediate_size": 32},
    "ClvpEncoderConfig": {"hidden_size": 128, "num_attention_heads": 2, "projection_dim": 128},
    "CohereCompassTextConfig": {
        "layer_types": ["sliding_attention", "full_attention"],
        "num_hidden_layers": 2,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]}
            for kind in ("sliding_attention", "full_attention")
        },
    },
    "DeepseekOcr2SamVisionConfig": {"downsample_channels": [32, HIDDEN], "output_channels": 32, "global_attn_indexes": [1]},
    "UnlimitedOcrSamVisionConfig": {"downsample_channels": [32, HIDDEN], "output_channels": 32, "global_attn_indexes": [1]},
    "MuseGlimmerConfig": {"out_hidden_size": 4 * HIDDEN},
    "MuseSparkConfig": {"out_hidden_size": 4 * HIDDEN},
    "AudioFlamingo3EncoderConfig": {"max_source_positions": 32},
    "MuseSparkAudioConfig": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
    "MuseGlimmerAssistantConfig": {"target_layer_ids": [0, 1], "block_size": 4},
    "Qwen2_5OmniThinkerConfig": {"vision_start_token_id": 30, "vision_end_token_id": 31},
    "Qwen3OmniMoeThinkerConfig": {"vision_start_token_id": 30, "vision_end_token_id": 31},
    "Sapiens2Config": {"num_hidden_layers": 2, "num_key_value_heads_per_layer": [HEADS, HEADS // 2]},
    "EomtDinov3Config": {"num_blocks": 1, "num_queries": 5},
    "Sam3TrackerVideoConfig": {"image_size": 32},
    "Sam2VideoConfig": {"memory_attention_rope_feat_sizes": [4, 6]},
    "EdgeTamVideoConfig": {"memory_attention_rope_feat_sizes": [4, 4], "memory_attention_rope_k_sizes": [4, 4]},
    "Gemma4Config": {
        "vision_config": {
            "model_type": "gemma4_vision",
            "hidden_size": HIDDEN,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "head_dim": HEAD_DIM,
            "patch_size": 4,
            "position_embedding_size": 64,
        }
    },
    "Llama4VisionConfig": {
        "projector_input_dim": HIDDEN,
        "projector_output_dim": HIDDEN,
        "vision_output_dim": HIDDEN,
        "intermediate_size": 4 * HIDDEN,
    },
    "NeuCodecConfig": {"quantization_dim": 2 * HIDDEN, "num_key_value_heads": HEADS},
    "Xcodec2Config": {"quantization_dim": 2 * HIDDEN, "num_key_value_heads": HEADS},
    "Nemotron3DiarizationAudioConfig": {"num_attention_heads": HEADS, "num_key_value_heads": HEADS},
    "Nemotron3_5TranscribeAsrAudioConfig": {"num_key_value_heads": HEADS},
    "Nemotron3_5TranscribeWordTimestampConfig": {"num_key_value_heads": HEADS},
    "UnlimitedOcrTextConfig": {"num_key_value_heads": HEADS},
    "Molmo2TextConfig": {"rope_scaling_layers": [0]},
    "DeepseekV4Config": {
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
        "mlp_layer_types": ["moe"] * 3,
        "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
        "sliding_window": 4,
    },
    "DacConfig": {"encoder_hidden_size": 4, "decoder_hidden_size": 64},
    "Dots1Config": {"n_shared_experts": 1},
    "HunYuanVLTextConfig": {
        "head_dim": HEAD_DIM,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2, 2]},
    },
    "Qwen3OmniMoeTalkerTextConfig": {"shared_expert_intermediate_size": 32},
    "Qwen4ExpTextConfig": {
        "head_dim": 64,
        "shared_expert_intermediate_size": 32,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 64,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    "Lfm2MoeConfig": {"layer_types": ["conv", "full_attention"]},
    "DeepseekOcr2TextConfig": {"mlp_layer_types": ["dense", "sparse"]},
    "Step3p7TextConfig": {"sliding_window": 8},
    "Granite4VisionConfig": {"deepstack_layer_map": [[-1, 0]], "downsample_rate": "1/2", "spatial_target_layers": [0]},
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
        elif default is None and name in UNSAID:
            values[name] = UNSAID[name]
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
        if one.get("rope_type") is None:  # a kind of layers without rotation
            continue
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

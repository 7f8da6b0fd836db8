"""What a forward pass through a tiny model takes: text, an image among text, an image, audio, or a series.

The rule is found by the arguments of `forward` (`RULES`, the first that fits); what they do not say stands in `OTHERWISE`.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from tiny_configs import VOCABULARY
from torch import Tensor
from transformers import PreTrainedModel

BATCH, TOKENS, ORDINARY = 2, 11, 50  # ids from ORDINARY on are never those of special tokens
FRAMES, SAMPLES = 64, 2000  # of audio
GRID = (1, 4, 6)  # patches of an image: frames, rows, columns
PARTS = "parts"  # the key of inputs for parts of a model, by their paths
Inputs = dict[str, Any]


def make_inputs(model: PreTrainedModel, family: str, seed: int = 0) -> Inputs:
    """What a forward pass takes: the same for the same seed."""
    source = torch.Generator().manual_seed(seed)
    if family in OTHERWISE:
        return OTHERWISE[family](model, source)
    takes = set(inspect.signature(model.forward).parameters)
    for names, make in RULES:
        if names <= takes:
            return make(model, source)
    raise LookupError(f"no rule for the inputs of {type(model).__name__}: {sorted(takes)}")


def split_parts(inputs: Inputs) -> tuple[Inputs, dict[str, Inputs]]:
    """The inputs of the whole model, and those of parts of it that are run by themselves."""
    return {key: value for key, value in inputs.items() if key != PARTS}, inputs.get(PARTS, {})


def draw_text(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Ids of tokens (B, N), of which the first two of the first sequence are left out by a mask."""
    inputs: Inputs = {"input_ids": _tokens(source)}
    takes = inspect.signature(model.forward).parameters
    if "decoder_input_ids" in takes:
        inputs["decoder_input_ids"] = _tokens(source)
    if "attention_mask" in takes:
        inputs["attention_mask"] = torch.ones(BATCH, TOKENS, dtype=torch.long)
        inputs["attention_mask"][0, :2] = 0
    return inputs


def draw_grid_image(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Patches of an image for each text, with their grid, among tokens: the models of Qwen-VL's kind."""
    vision = _find_vision(model)
    patch, merge = (
        _first(vision, "patch_size"),
        _first(vision, "spatial_merge_size", "merge_size", "merge_kernel_size", default=1),
    )
    channels = _first(vision, "in_channels", "num_channels", "in_chans", default=3)
    frames = _first(vision, "temporal_patch_size", "patch_temporal", default=1)
    pixels = torch.randn(BATCH * math.prod(GRID), channels * frames * patch * patch, generator=source)
    images = {"pixel_values": pixels, "image_grid_thw": torch.tensor([GRID] * BATCH)}
    return images | _among_tokens(model, source, math.prod(GRID) // merge**2)


def _among_tokens(model: PreTrainedModel, source: torch.Generator, count: int) -> Inputs:
    """Text with `count` tokens of an image: three tokens before it, others after it."""
    config = model.config
    image = _first(config, "image_token_id", "image_token_index", "image_patch_id", "im_token_id")
    tokens = torch.cat([_tokens(source)[:, :3], torch.full((BATCH, count), image), _tokens(source)[:, :5]], dim=1)
    start = getattr(config, "vision_start_token_id", None) or getattr(config, "image_start_token_id", None)
    if start is not None:
        tokens[:, 2] = start
    end = getattr(config, "vision_end_token_id", None) or getattr(config, "image_end_token_id", None)
    if end is not None:
        tokens[:, 3 + count] = end
    inputs: Inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        inputs["mm_token_type_ids"] = (tokens == image).long()
    elif "token_type_ids" in inspect.signature(model.forward).parameters:
        inputs["token_type_ids"] = (tokens == image).long()
    return inputs


def draw_image(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """An image alone: of the size that the config says, and else not square."""
    config = model.config
    size = getattr(config, "image_size", None)
    height, width = (size, size) if isinstance(size, int) else size or (16, 24)
    return {"pixel_values": torch.randn(BATCH, 3, height, width, generator=source)}


def draw_free_image(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """An image that is not square, for models that take any size."""
    patch = _first(model.config, "patch_size")
    return {"pixel_values": torch.randn(BATCH, 3, 3 * patch, 5 * patch, generator=source)}


def draw_video(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Frames (B, T, 3, S, S)."""
    size = _first(model.config, "crop_size", "image_size", default=16)
    return {"pixel_values_videos": torch.randn(BATCH, 4, 3, size, size, generator=source)}


def draw_features(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """A spectrogram (B, T, bins)."""
    audio = getattr(model.config, "encoder_config", model.config)
    bins = _first(audio, "num_mel_bins", "feature_projection_input_dim", "feature_size", "input_feat_size")
    return {"input_features": torch.randn(BATCH, FRAMES, bins, generator=source)}


def draw_wave(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Samples of a recording: (B, T), or (B, 1, T) where the model counts channels."""
    channels = getattr(model.config, "audio_channels", None)
    shape = (BATCH, SAMPLES) if channels is None else (BATCH, channels, SAMPLES)
    inputs: Inputs = {"input_values": torch.randn(shape, generator=source)}
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        inputs["decoder_input_ids"] = _tokens(source)
    return inputs


def draw_series(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Values of the past (B, T)."""
    length = 4 * _first(model.config, "patch_length", "patch_len", default=8)
    return {"past_values": torch.randn(BATCH, length, generator=source)}


def _tokens(source: torch.Generator) -> Tensor:
    return torch.randint(ORDINARY, VOCABULARY, (BATCH, TOKENS), generator=source)


def _find_vision(model: PreTrainedModel) -> Any:
    """The config of the part that sees images."""
    config = getattr(model.config, "thinker_config", model.config)
    return getattr(config, "vision_config", None) or config


def _first(config: Any, *names: str, default: Any = None) -> Any:
    """The first of some attributes that a config has."""
    found = next((value for name in names if (value := getattr(config, name, None)) is not None), default)
    if found is None:
        raise LookupError(f"{type(config).__name__} has none of the attributes {', '.join(names)}")
    return found[0] if isinstance(found, list | tuple) else found


Maker = Callable[[PreTrainedModel, torch.Generator], Inputs]
RULES: list[tuple[set[str], Maker]] = [
    ({"input_ids", "pixel_values", "image_grid_thw"}, draw_grid_image),
    ({"input_ids"}, draw_text),
    ({"pixel_values"}, draw_image),
    ({"pixel_values_videos"}, draw_video),
    ({"input_features"}, draw_features),
    ({"input_values"}, draw_wave),
    ({"past_values"}, draw_series),
]


def _draw_codes(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """A token of text and one of each codebook at each step."""
    config = model.config
    codes = torch.randint(1, 30, (BATCH, TOKENS, config.num_codebooks + 1), generator=source)
    return {"input_ids": codes}


def _draw_square(part: PreTrainedModel, source: torch.Generator) -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 3, 96, 96, generator=source)}


def _draw_uncached(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    return draw_text(model, source) | {"use_cache": False}


def _draw_idefics(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    size = model.config.vision_config.image_size
    pixels = torch.randn(BATCH, 1, 3, size, size, generator=source)
    return draw_text(model, source) | {"pixel_values": pixels, "image_attention_mask": torch.ones(BATCH, TOKENS, 1)}


def _draw_noise(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Embeddings of noise, and the hidden states that they attend to."""
    config = model.config
    noise = torch.randn(BATCH, config.block_size, config.hidden_size, generator=source)
    seen = torch.randn(BATCH, TOKENS, config.hidden_size * len(config.target_layer_ids), generator=source)
    return {"noise_embeds": noise, "context_hidden_states": seen, "use_cache": False}


def _draw_shaped_patches(*order: str) -> Maker:
    """As `draw_grid_image` draws, but patches keep their shape: N patches, C channels, P rows and columns."""

    def draw(model: PreTrainedModel, source: torch.Generator) -> Inputs:
        inputs = draw_grid_image(model, source)
        patch = _first(_find_vision(model), "patch_size")
        sizes = {"N": BATCH * math.prod(GRID), "C": 3, "P": patch}
        return inputs | {"pixel_values": inputs["pixel_values"].reshape([sizes[name] for name in order])}

    return draw


def _draw_merged_cells(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Cells (N, 2 P, 2 P, C) of four patches, which the grid counts."""
    inputs = draw_grid_image(model, source)
    patch = _first(_find_vision(model), "patch_size")
    cells = inputs["pixel_values"].reshape(-1, 2 * patch, 2 * patch, 3)
    return inputs | {"pixel_values": cells, "image_grid_thw": inputs["image_grid_thw"] // torch.tensor([1, 2, 2])}


def _draw_memory(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Features of an image and those of earlier ones (N, B, C), for the attention to memory alone."""
    config = model.config
    rows, columns = config.memory_attention_rope_feat_sizes
    tokens, channels = rows * columns, config.memory_encoder_output_channels
    now = torch.randn(tokens, 1, config.memory_attention_hidden_size, generator=source)
    past, places = (torch.randn(2 * tokens + 2, 1, channels, generator=source) for _ in range(2))
    memory: Inputs = {"current_vision_features": now, "memory": past, "memory_posision_embeddings": places}
    return {PARTS: {"memory_attention": memory | {"num_object_pointer_tokens": 2}}}


def _draw_memory_and_image(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    inputs = _draw_memory(model, source)
    size = model.config.vision_config.image_size
    inputs[PARTS]["vision_encoder"] = {"pixel_values": torch.randn(BATCH, 3, size, size, generator=source)}
    return inputs


def _draw_resampled_memory(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    inputs = _draw_memory(model, source)
    inputs[PARTS]["memory_attention"]["num_spatial_memory_tokens"] = 2
    return inputs


def _draw_rows(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Each row of merged patches ends in one more token, and the image begins and ends in one."""
    rows, columns = GRID[1] // 2, GRID[2] // 2
    return draw_grid_image(model, source) | _among_tokens(model, source, rows * (columns + 1) + 2)


def _draw_merged(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Patches are merged as each image says."""
    inputs = draw_grid_image(model, source) | _among_tokens(model, source, math.prod(GRID) // 4)
    return inputs | {"image_merge_sizes": torch.tensor([2] * BATCH)}


def _draw_pair(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Two images whose points are matched."""
    return {"pixel_values": torch.randn(BATCH, 2, 3, 64, 64, generator=source)}


def _draw_channels(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Text, and several codes at each step of the answer."""
    codes = torch.randint(3, 30, (BATCH, 5, model.config.decoder_config.num_channels), generator=source)
    return draw_text(model, source) | {"decoder_input_ids": codes}


def _draw_mono(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    return {"input_values": torch.randn(BATCH, 1, 20000, generator=source)}


def _draw_film(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    return draw_video(model, source) | _draw_mono(model, source)


def _draw_wave_and_features(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    bins = model.config.semantic_model_config.feature_projection_input_dim
    wave = torch.randn(BATCH, 1, 320 * 16, generator=source)
    return {"input_values": wave, "input_features": torch.randn(BATCH, 16, bins, generator=source)}


def _draw_speech(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Text beside a spectrogram (B, bins, T), which has as many steps as the text has tokens."""
    config = model.config
    steps = TOKENS * config.audio_length_per_tok
    features = torch.randn(BATCH, config.audio_config.num_mel_bins, steps, generator=source)
    return {"input_ids": _tokens(source), "input_features": features}


def _draw_spectrogram(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    bins = model.config.audio_config.num_mel_bins
    return {"input_features": torch.randn(BATCH, FRAMES, bins, generator=source)}


def _draw_with_parts(draw: Maker, **parts: Maker) -> Maker:
    """Inputs for the whole model, and for parts that these do not reach: by their paths, with __ for the dots."""

    def both(model: PreTrainedModel, source: torch.Generator) -> Inputs:
        paths = {name.replace("__", "."): make for name, make in parts.items()}
        return draw(model, source) | {PARTS: {path: make(model.get_submodule(path), source) for path, make in paths.items()}}

    return both


def _draw_states(part: PreTrainedModel, source: torch.Generator) -> Inputs:
    return {"hidden_states": torch.randn(BATCH, TOKENS, part.config.hidden_size, generator=source)}


def _draw_bins(part: PreTrainedModel, source: torch.Generator) -> Inputs:
    """A spectrogram (B, bins, T)."""
    return {"input_features": torch.randn(BATCH, part.config.num_mel_bins, FRAMES, generator=source)}


def _draw_frames(part: PreTrainedModel, source: torch.Generator) -> Inputs:
    """A spectrogram (B, T, bins)."""
    return {"input_features": torch.randn(BATCH, FRAMES, part.config.num_mel_bins, generator=source)}


def _draw_embedded(part: PreTrainedModel, source: torch.Generator) -> Inputs:
    return {"inputs_embeds": torch.randn(BATCH, TOKENS, part.config.hidden_size, generator=source)}


def _draw_chunks(part: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Chunks of a recording (B, bins, T) and how many samples each has."""
    config = part.config
    features = torch.randn(BATCH, config.feature_size, FRAMES, generator=source)
    return {"input_features": features, "chunk_sample_lengths": torch.tensor([config.hop_length * FRAMES] * BATCH)}


def _draw_bytes(part: PreTrainedModel, source: torch.Generator) -> Inputs:
    return {"input_ids": _tokens(source)}


def _draw_protein(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    protein = {"protein_input_ids": _tokens(source), "protein_attention_mask": torch.ones(BATCH, TOKENS, dtype=torch.long)}
    return draw_text(model, source) | protein


def _draw_song(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Text with a token for each four steps of the audio tower, beside the spectrogram (B, bins, T)."""
    config = model.config
    mask = torch.ones(BATCH, FRAMES, dtype=torch.long)
    features = torch.randn(BATCH, config.audio_config.num_mel_bins, FRAMES, generator=source)
    sound: Inputs = {"input_features": features, "input_features_mask": mask}
    count = int(model.model.audio_tower._get_feat_extract_output_lengths(mask.sum(-1))[1][0])
    tokens = torch.cat([_tokens(source)[:, :3], torch.full((BATCH, count), config.audio_token_id), _tokens(source)], dim=1)
    tokens[:, 2], tokens[:, 3 + count] = config.audio_bos_token_id, config.audio_eos_token_id
    return sound | {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def _draw_codec(part: str) -> Maker:
    """Samples for a codec, and states for the transformer before its codes, which small changes do not reach."""
    return _draw_with_parts(draw_wave, **{part: _draw_states})


def _draw_placed_patches(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Patches (B, N, C P P) with their coordinates."""
    config = model.config
    rows, columns = 6, 3 * config.pooling_kernel_size
    places = torch.stack(torch.meshgrid(torch.arange(columns), torch.arange(rows), indexing="xy"), dim=-1).reshape(1, -1, 2)
    pixels = torch.rand(BATCH, rows * columns, 3 * config.patch_size**2, generator=source)
    return {"pixel_values": pixels, "pixel_position_ids": places.repeat(BATCH, 1, 1)}


def _draw_sized_image(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    inputs = draw_free_image(model, source)
    return inputs | {"image_sizes": torch.tensor([inputs["pixel_values"].shape[-2:]] * BATCH)}


def _draw_named_image(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """An image, and the text that says what is looked for."""
    size = model.config.vision_config.backbone_config.image_size
    return {"pixel_values": torch.randn(BATCH, 3, size, size, generator=source)} | draw_text(model, source)


# Families whose arguments do not say what they take.
OTHERWISE: dict[str, Maker] = {
    "blt": _draw_with_parts(
        _draw_uncached, model__patcher=_draw_bytes
    ),  # its cache asks the config for num_hidden_layers, which there is not
    "deepseek_ocr2": _draw_with_parts(draw_text, model__vision_tower=_draw_square),
    "dia": _draw_channels,
    "csm": _draw_with_parts(
        draw_text,
        depth_decoder=_draw_bytes,
        codec_model__encoder__encoder_transformer=_draw_states,
        codec_model__decoder__decoder_transformer=_draw_states,
    ),
    "diffusion_gemma": _draw_with_parts(draw_text, encoder__vision_tower=_draw_placed_patches),
    "dots3_note": _draw_with_parts(draw_grid_image, model__audio_tower=_draw_chunks),
    "evolla": _draw_protein,
    "glmasr": _draw_with_parts(draw_text, model__audio_tower=_draw_bins),
    "dinov3_vit": draw_free_image,
    "efficientloftr": _draw_pair,
    "edgetam_video": _draw_resampled_memory,
    "gemma4": _draw_with_parts(draw_text, model__vision_tower=_draw_placed_patches),
    "glm_image": draw_text,
    "hunyuan_vl": _draw_rows,
    "idefics": _draw_idefics,
    "inkling2": _draw_merged_cells,
    "kimi_k25": _draw_shaped_patches("N", "C", "P", "P"),
    "kyutai_speech_to_text": _draw_with_parts(
        _draw_codes,
        codec_model__encoder__encoder_transformer=_draw_states,
        codec_model__decoder__decoder_transformer=_draw_states,
    ),
    "lightglue": _draw_pair,
    "llama4": _draw_with_parts(draw_text, vision_model=draw_image),
    "mistral_large4": _draw_with_parts(draw_text, model__vision_tower=_draw_sized_image),
    "mimi": _draw_codec("encoder__encoder_transformer"),
    "musicflamingo": _draw_song,
    "muse_glimmer_assistant": _draw_noise,
    "nemotron3_5_transcribe": _draw_with_parts(
        draw_text,
        model__audio_tower__asr_encoder=_draw_frames,
        model__audio_tower__diarization_model__model=_draw_spectrogram,
        model__word_timestamp_encoder=_draw_embedded,
    ),
    "nemotron3_diarization": _draw_spectrogram,
    "neucodec": _draw_wave_and_features,
    "paddleocr_vl": _draw_shaped_patches("N", "C", "P", "P"),
    "pe_audio": _draw_mono,
    "pe_audio_video": _draw_film,
    "pixtral": draw_free_image,
    "sam2_video": _draw_memory,
    "sam3": _draw_named_image,
    "sam3_tracker_video": _draw_memory_and_image,
    "step3p7": _draw_with_parts(draw_text, model__vision_model=draw_image),
    "video_llama_3": _draw_merged,
    "voxtral_realtime": _draw_speech,
    "xcodec2": _draw_wave_and_features,
}

"""Inputs of the families whose arguments do not tell what they take, and of parts that a forward pass does not reach."""

import math

import torch
from tiny_draws import (
    BATCH,
    FRAMES,
    GRID,
    PARTS,
    TOKENS,
    Inputs,
    Maker,
    draw_free_image,
    draw_grid_image,
    draw_image,
    draw_text,
    draw_tokens,
    draw_video,
    draw_wave,
    find_attribute,
    find_vision,
    put_among_tokens,
)
from transformers import PreTrainedModel


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
        patch = find_attribute(find_vision(model), "patch_size")
        sizes = {"N": BATCH * math.prod(GRID), "C": 3, "P": patch}
        return inputs | {"pixel_values": inputs["pixel_values"].reshape([sizes[name] for name in order])}

    return draw


def _draw_merged_cells(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Cells (N, 2 P, 2 P, C) of four patches, which the grid counts."""
    inputs = draw_grid_image(model, source)
    patch = find_attribute(find_vision(model), "patch_size")
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
    return draw_grid_image(model, source) | put_among_tokens(model, source, rows * (columns + 1) + 2)


def _draw_merged(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Patches are merged as each image says."""
    inputs = draw_grid_image(model, source) | put_among_tokens(model, source, math.prod(GRID) // 4)
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
    return {"input_ids": draw_tokens(source), "input_features": features}


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
    return {"input_ids": draw_tokens(source)}


def _draw_protein(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    protein = {
        "protein_input_ids": draw_tokens(source),
        "protein_attention_mask": torch.ones(BATCH, TOKENS, dtype=torch.long),
    }
    return draw_text(model, source) | protein


def _draw_song(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Text with a token for each four steps of the audio tower, beside the spectrogram (B, bins, T)."""
    config = model.config
    mask = torch.ones(BATCH, FRAMES, dtype=torch.long)
    features = torch.randn(BATCH, config.audio_config.num_mel_bins, FRAMES, generator=source)
    sound: Inputs = {"input_features": features, "input_features_mask": mask}
    count = int(model.model.audio_tower._get_feat_extract_output_lengths(mask.sum(-1))[1][0])
    tokens = torch.cat(
        [draw_tokens(source)[:, :3], torch.full((BATCH, count), config.audio_token_id), draw_tokens(source)], dim=1
    )
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

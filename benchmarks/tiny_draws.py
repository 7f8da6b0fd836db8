"""What a forward pass takes, by the arguments of `forward`: text, an image among text, an image, audio, or a series."""

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


def draw_text(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Ids of tokens (B, N), of which the first two of the first sequence are left out by a mask."""
    inputs: Inputs = {"input_ids": draw_tokens(source)}
    takes = inspect.signature(model.forward).parameters
    if "decoder_input_ids" in takes:
        inputs["decoder_input_ids"] = draw_tokens(source)
    if "attention_mask" in takes:
        inputs["attention_mask"] = torch.ones(BATCH, TOKENS, dtype=torch.long)
        inputs["attention_mask"][0, :2] = 0
    return inputs


def draw_grid_image(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Patches of an image for each text, with their grid, among tokens: the models of Qwen-VL's kind."""
    vision = find_vision(model)
    patch, merge = (
        find_attribute(vision, "patch_size"),
        find_attribute(vision, "spatial_merge_size", "merge_size", "merge_kernel_size", default=1),
    )
    channels = find_attribute(vision, "in_channels", "num_channels", "in_chans", default=3)
    frames = find_attribute(vision, "temporal_patch_size", "patch_temporal", default=1)
    pixels = torch.randn(BATCH * math.prod(GRID), channels * frames * patch * patch, generator=source)
    images = {"pixel_values": pixels, "image_grid_thw": torch.tensor([GRID] * BATCH)}
    return images | put_among_tokens(model, source, math.prod(GRID) // merge**2)


def put_among_tokens(model: PreTrainedModel, source: torch.Generator, count: int) -> Inputs:
    """Text with `count` tokens of an image: three tokens before it, others after it."""
    config = model.config
    image = find_attribute(config, "image_token_id", "image_token_index", "image_patch_id", "im_token_id")
    tokens = torch.cat([draw_tokens(source)[:, :3], torch.full((BATCH, count), image), draw_tokens(source)[:, :5]], dim=1)
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
    patch = find_attribute(model.config, "patch_size")
    return {"pixel_values": torch.randn(BATCH, 3, 3 * patch, 5 * patch, generator=source)}


def draw_video(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Frames (B, T, 3, S, S)."""
    size = find_attribute(model.config, "crop_size", "image_size", default=16)
    return {"pixel_values_videos": torch.randn(BATCH, 4, 3, size, size, generator=source)}


def draw_features(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """A spectrogram (B, T, bins)."""
    audio = getattr(model.config, "encoder_config", model.config)
    bins = find_attribute(audio, "num_mel_bins", "feature_projection_input_dim", "feature_size", "input_feat_size")
    return {"input_features": torch.randn(BATCH, FRAMES, bins, generator=source)}


def draw_wave(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Samples of a recording: (B, T), or (B, 1, T) where the model counts channels."""
    channels = getattr(model.config, "audio_channels", None)
    shape = (BATCH, SAMPLES) if channels is None else (BATCH, channels, SAMPLES)
    inputs: Inputs = {"input_values": torch.randn(shape, generator=source)}
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        inputs["decoder_input_ids"] = draw_tokens(source)
    return inputs


def draw_series(model: PreTrainedModel, source: torch.Generator) -> Inputs:
    """Values of the past (B, T)."""
    length = 4 * find_attribute(model.config, "patch_length", "patch_len", default=8)
    return {"past_values": torch.randn(BATCH, length, generator=source)}


def draw_tokens(source: torch.Generator) -> Tensor:
    return torch.randint(ORDINARY, VOCABULARY, (BATCH, TOKENS), generator=source)


def find_vision(model: PreTrainedModel) -> Any:
    """The config of the part that sees images."""
    config = getattr(model.config, "thinker_config", model.config)
    return getattr(config, "vision_config", None) or config


def find_attribute(config: Any, *names: str, default: Any = None) -> Any:
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

"""Rules of `ropewalk.extension` that transformers lacks, entered in its table: a config may name them.

    "rope_parameters": {"rope_type": "ntk-aware", "factor": 4.0, "rope_theta": 10000.0}

What transformers has itself is never replaced. Rules that depend on the length of a text are settled by the config's
max_position_embeddings, once.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RotaryEmbeddingConfigMixin

from ropewalk import spectra
from ropewalk.adapters.transformers.config_io import KIND, NAME, REPLACES
from ropewalk.extension.config import RULES, options, parse


def frequencies(
    config: Any, device: Any = None, seq_len: int | None = None, layer_type: str | None = None
) -> tuple[Tensor, float]:
    """Frequencies and the factor of q and k of the rule that a config names, as transformers asks for them."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    longest = config.max_position_embeddings
    found = options(config.rope_parameters, head_dim=head_dim, max_position_embeddings=longest, layer_type=layer_type)
    width, rule = found.get("rotary_dim", head_dim), parse(found["extension"])
    assert rule is not None
    plain = spectra.geometric(width // 2, found["base"])
    frequency, factor = rule(plain, base=found["base"], rotary_dim=width, length=longest if rule.needs_length else None)
    return frequency.to(device=device or torch.get_default_device(), dtype=torch.float32), factor


def replaced(
    config: Any, device: Any = None, seq_len: int | None = None, layer_type: str | None = None
) -> tuple[Tensor, float]:
    """Frequencies of a rotary embedding that is about to be replaced by the encoding that the config names."""
    if getattr(config, NAME, None) is None:
        raise ValueError(f"this rope_type is for a config that has an encoding under {NAME!r}, got one without")
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return torch.full((head_dim // 2,), float("nan"), device=device), 1.0  # seen, should nothing take its place


class RopeParametersError(KeyError, ValueError):
    """A config's dictionary of RoPE lacks a key, or has a wrong one: transformers raises `KeyError` then."""

    __str__ = Exception.__str__  # a sentence, where `KeyError` would show its quotes


def check(self: Any, rope_parameters: dict[str, Any], ignore_keys: set[str] | None = None) -> None:
    """Refuse a dictionary that is no rule, when a config is made."""
    try:
        options(rope_parameters, head_dim=2, max_position_embeddings=getattr(self, "max_position_embeddings", None))
    except ValueError as error:
        raise RopeParametersError(str(error)) from error


def accept(self: Any, rope_parameters: dict[str, Any], ignore_keys: set[str] | None = None) -> None:
    """Let a dictionary be where the config describes an encoding elsewhere."""
    if REPLACES not in rope_parameters and getattr(self, NAME, None) is None:
        raise RopeParametersError(f"this rope_type is for a config that has an encoding under {NAME!r}, got one without")


def register() -> list[str]:
    """Enter the rules that transformers lacks, and the type that stands for an encoding. Returns what it entered."""
    ours = {name: (frequencies, check) for name in RULES} | {NAME: (replaced, accept), KIND: (replaced, accept)}
    missing = [name for name in ours if name not in ROPE_INIT_FUNCTIONS]
    for name in missing:
        ROPE_INIT_FUNCTIONS[name], checker = ours[name]
        setattr(RotaryEmbeddingConfigMixin, f"_validate_{name}_rope_parameters", checker)
    return missing

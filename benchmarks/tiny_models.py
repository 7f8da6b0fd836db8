"""The tiny model of each family, with weights that make attention sharp."""

from typing import Any

import torch
from host_families import choose_class
from tiny_configs import make_tiny
from torch import nn
from transformers import PreTrainedModel


def build_model(family: str, seed: int = 0, **options: Any) -> PreTrainedModel:
    """The tiny model of a family, in evaluation mode: the same for the same seed."""
    chosen = choose_class(family)
    torch.manual_seed(seed)
    model = chosen(make_tiny(chosen.config_class, **options))
    _draw_weights(model, seed)
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.eos_token_id = None  # so that no answer ends early
    return model.eval()


@torch.no_grad()
def _draw_weights(model: nn.Module, seed: int) -> None:
    """Weights of size 1 / sqrt(inputs), codebooks of size 1: with 0.02, as in transformers, attention hides positions."""
    source = torch.Generator().manual_seed(seed)
    done: set[int] = set()
    for name, buffer in model.named_buffers():
        if name.endswith("embed_sum"):
            buffer.copy_(torch.randn(buffer.shape, generator=source))
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if id(weight) in done or not weight.is_floating_point():
                continue
            done.add(id(weight))
            if weight.ndim > 1 and weight.numel():
                convolution = isinstance(module, nn.modules.conv._ConvNd)
                inputs = weight[0].numel() if convolution else weight.shape[-1]
                width = 1.0 if isinstance(module, nn.Embedding) else inputs**-0.5
                weight.copy_(torch.randn(weight.shape, generator=source) * width)
            elif name == "bias":
                weight.add_(torch.randn(weight.shape, generator=source) * 0.1)
            elif weight.numel() and weight.abs().max() < 0.5 and weight.ndim <= 1 and _is_gate(name):
                weight.fill_(0.5)


def _is_gate(name: str) -> bool:
    """Whether a parameter is one of those that models start near zero to switch a branch on slowly."""
    return any(word in name for word in ("gate", "alpha", "scale", "lambda", "gamma", "temp"))

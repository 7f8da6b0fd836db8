"""Tiny models of transformers with weights that make attention sharp, and the inputs of a forward pass through them."""

import inspect
from typing import Any

import torch
from host_families import choose_class
from tiny_configs import VOCABULARY, make_tiny
from torch import Tensor, nn
from transformers import PreTrainedModel

BATCH, TOKENS, ORDINARY = 2, 11, 50  # ids from ORDINARY on are never those of special tokens
Inputs = dict[str, Any]


def build_model(family: str, seed: int = 0, **options: Any) -> PreTrainedModel:
    """The tiny model of a family, in evaluation mode: the same for the same seed."""
    chosen = choose_class(family)
    torch.manual_seed(seed)
    model = chosen(make_tiny(chosen.config_class, **options))
    _draw_weights(model, seed)
    return model.eval()


@torch.no_grad()
def _draw_weights(model: nn.Module, seed: int) -> None:
    """Weights of size 1 / sqrt(inputs): with those of transformers (0.02) attention is uniform and hides its positions."""
    source = torch.Generator().manual_seed(seed)
    done: set[int] = set()
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
    return any(word in name for word in ("gate", "alpha", "scale", "lambda", "gamma"))


def make_inputs(model: PreTrainedModel, seed: int = 0) -> Inputs:
    """What a forward pass takes."""
    source = torch.Generator().manual_seed(seed)
    takes = inspect.signature(model.forward).parameters
    name = model.main_input_name
    if name == "input_ids":
        inputs: Inputs = {"input_ids": draw_tokens(source)}
        if "attention_mask" in takes:
            inputs["attention_mask"] = _left_padded(inputs["input_ids"])
        return inputs
    raise LookupError(f"no rule for inputs {name} of {type(model).__name__}")


def draw_tokens(source: torch.Generator) -> Tensor:
    """Ids of ordinary tokens (B, N)."""
    return torch.randint(ORDINARY, VOCABULARY, (BATCH, TOKENS), generator=source)


def _left_padded(tokens: Tensor) -> Tensor:
    """A mask (B, N) that leaves out two tokens at the beginning of the first sequence."""
    mask = torch.ones_like(tokens)
    mask[0, :2] = 0
    return mask

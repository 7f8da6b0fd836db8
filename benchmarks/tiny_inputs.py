"""What a forward pass through the tiny model of a family takes, and parts of the model besides."""

import inspect

import torch
from tiny_draws import PARTS, RULES, Inputs
from tiny_otherwise import OTHERWISE
from transformers import PreTrainedModel


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

"""Optimizers and the learning rate of each step, and how the state of an optimizer is stored in a checkpoint."""

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ropewalk.lab.config import Config
from ropewalk.lab.errors import CommandError
from ropewalk.lab.init_from import TrainableModel

_EXECUTION_OPTIONS = ("params", "foreach", "fused", "capturable", "differentiable")
"""Fields of parameter groups that belong to the machine and the model, not to the run."""
RATE_FACTOR = "rate_factor"
"""Field of a parameter group: its learning rate over that of the run."""


def compute_learning_rate(step: int, *, highest: float, warmup: int, steps: int) -> float:
    """Linear warm-up, highest · (step + 1) / warmup, then cosine decay to zero; steps count from 0."""
    if step < warmup:
        return highest * (step + 1) / warmup
    return highest * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1))) / 2


def build_optimizer(config: Config, model: TrainableModel) -> torch.optim.Optimizer:
    """AdamW or LAMB, with weight decay for all parameters but those of `no_weight_decay`.

    With an encoding rate, the encoding's parameters are in groups of their own, with this factor on the learning rate.
    """
    own = set() if config.encoding_rate is None else {id(weight) for weight in model.encoding.parameters()}
    spared, named = model.no_weight_decay(), list(model.named_parameters())
    groups = _split_by_decay(config, [each for each in named if id(each[1]) not in own], spared)
    if own:
        added = _split_by_decay(config, [each for each in named if id(each[1]) in own], spared)
        groups += [{**group, RATE_FACTOR: config.encoding_rate} for group in added]
    if config.optimiser == "lamb":
        return _build_lamb(groups, config.learning_rate)
    return torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)


def _split_by_decay(config: Config, named: Sequence[tuple[str, Tensor]], spared: set[str]) -> list[dict[str, Any]]:
    return [
        {"params": [weight for name, weight in named if name not in spared], "weight_decay": config.weight_decay},
        {"params": [weight for name, weight in named if name in spared], "weight_decay": 0.0},
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of a step, in each group with the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(RATE_FACTOR, 1.0)


def _build_lamb(groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
    """timm's LAMB. The training loop clips gradients, hence not the optimizer."""
    try:
        timm = importlib.import_module("timm.optim")  # takes a second, and AdamW does without
    except ImportError as error:
        raise CommandError(f"the optimiser lamb needs timm: pip install 'ropewalk[lab]' ({error})") from error
    built: torch.optim.Optimizer = timm.Lamb(groups, lr=learning_rate, max_grad_norm=None)
    return built


def describe_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Tensors by name, as "0/exp_avg" of parameter 0, and the hyperparameters of each group as plain JSON values."""
    state = optimizer.state_dict()
    tensors = {
        f"{number}/{name}": torch.as_tensor(value)
        for number, values in state["state"].items()
        for name, value in values.items()
    }
    groups = [
        {name: _to_plain(value) for name, value in group.items() if name not in _EXECUTION_OPTIONS}
        for group in state["param_groups"]
    ]
    return tensors, groups


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], groups: Sequence[Mapping[str, Any]] | None
) -> None:
    """Load what `describe_optimizer` returned. Checkpoints of the format "ropewalk run 1" have no groups."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, rest = name.partition("/")
        state.setdefault(int(number), {})[rest] = value
    current = optimizer.state_dict()["param_groups"]
    if groups is None:
        groups = _recover_groups(optimizer, state, current)
    restored = [_restore_group(now, held) for now, held in zip(current, groups, strict=True)]
    optimizer.load_state_dict({"state": state, "param_groups": restored})


def _recover_groups(
    optimizer: torch.optim.Optimizer, state: dict[int, dict[str, Tensor]], groups: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """LAMB counted its steps by parameter then, and counts them by group now."""
    if isinstance(optimizer, torch.optim.AdamW):
        return [{} for _ in groups]
    counts = [[state[number].pop("step").item() for number in group["params"] if number in state] for group in groups]
    return [{"step": max(steps)} if steps else {} for steps in counts]


def _restore_group(now: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    lists = {name: tuple(value) if isinstance(value, list) else value for name, value in held.items()}
    return {**now, **lists}


def _to_plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else list(value) if isinstance(value, tuple) else value

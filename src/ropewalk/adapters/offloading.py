"""Modules that accelerate has hooked, to keep their weights elsewhere: a change of their class, and where they compute.

A hooked module has a `forward` of its own, which calls the method that the module had when it was hooked.
"""

from types import MethodType
from typing import Any

import torch
from torch import nn

HOOKED = "_old_forward"  # where accelerate keeps the forward method of a module that it has hooked


def change_class(module: nn.Module, kind: Any) -> None:
    """Give a module another class, whose forward method its hook is to call."""
    module.__class__ = kind
    if HOOKED in vars(module):
        setattr(module, HOOKED, MethodType(kind.forward, module))


def computing_device(module: nn.Module) -> torch.device:
    """Where a module computes: where its weights lie, or where accelerate brings those that it keeps elsewhere."""
    hooks = [hook for each in module.modules() if (hook := getattr(each, "_hf_hook", None)) is not None]
    for each in [one for hook in hooks for one in getattr(hook, "hooks", (hook,))]:
        if (device := getattr(each, "execution_device", None)) is not None:
            return torch.device(device)
    return next((weight.device for weight in module.parameters()), torch.device("cpu"))


def is_offloaded(model: nn.Module) -> bool:
    """Whether accelerate keeps some weights elsewhere."""
    hooked = any(hasattr(each, HOOKED) for each in model.modules())
    return hooked and any(weight.is_meta for weight in model.parameters())

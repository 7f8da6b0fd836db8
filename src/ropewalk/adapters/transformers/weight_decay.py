"""Trainers of transformers leave the parameters of encodings out of weight decay, which would slow rotations down.

`Trainer.get_decay_parameter_names` goes by the names of layers and parameters. It is followed once a model has an encoding
with parameters; importing the trainer takes a second, so not before.
"""

import functools
import importlib
from typing import Any

from torch import nn

from ropewalk.encoding import Encoding

FOLLOWED = "_ropewalk_followed"


def list_encoding_parameters(model: nn.Module) -> set[str]:
    """The names of the parameters of all encodings in a model."""
    names = set()
    for path, module in model.named_modules():
        if isinstance(module, Encoding):
            names |= {f"{path}.{name}" if path else name for name, _ in module.named_parameters()}
    return names


def spare_encodings() -> None:
    """Let trainers spare encodings, once; without transformers' trainer there is nothing to do."""
    try:
        trainer: Any = importlib.import_module("transformers.trainer").Trainer
    except ImportError:
        return
    host = trainer.get_decay_parameter_names
    if hasattr(host, FOLLOWED):
        return

    @functools.wraps(host)
    def get_decay_parameter_names(self: Any, model: nn.Module) -> list[str]:
        spared = list_encoding_parameters(model)
        return [name for name in host(self, model) if name not in spared]

    setattr(get_decay_parameter_names, FOLLOWED, True)
    trainer.get_decay_parameter_names = get_decay_parameter_names

"""What stands in a model of transformers: its rotary functions, the calls of them, and all that could be a trace."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, ModuleType
from typing import Any

from host_families import WORDS
from torch import nn
from transformers import PreTrainedModel

# Functions with a rotary name that only count positions or run once, when frequencies are made.
NOT_ROTATING = re.compile(r"get_rope_index|compute_\w+_parameters|dynamic_rope_update|__init__")


def modelling_files(model: nn.Module) -> list[ModuleType]:
    """The files that the classes of a model are written in, transformers' own models alone."""
    names = {type(module).__module__ for module in model.modules()}
    return [sys.modules[name] for name in sorted(names) if name.startswith("transformers.models.")]


def find_rotary(model: nn.Module) -> dict[CodeType, str]:
    """The code of every rotary function and method in the files of a model, with its name."""
    found: dict[CodeType, str] = {}
    for file in modelling_files(model):
        for name, value in vars(file).items():
            if inspect.isclass(value) and value.__module__ == file.__name__:
                rotary = WORDS.search(name) is not None and "Attention" not in name
                for method, function in vars(value).items():
                    _enter_code(found, function, f"{name}.{method}", rotary and method == "forward")
            else:
                _enter_code(found, value, name, False)
    return found


def _enter_code(found: dict[CodeType, str], function: Any, name: str, rotary: bool) -> None:
    function = getattr(function, "__func__", function)  # of a static or class method
    last = name.rsplit(".", 1)[-1]
    if callable(function) and not NOT_ROTATING.fullmatch(last) and (rotary or WORDS.search(last)):
        plain = inspect.unwrap(function)
        if inspect.isfunction(plain):
            found[plain.__code__] = name


@contextmanager
def recorded_calls() -> Iterator[set[CodeType]]:
    """The code of all Python functions that are called meanwhile: also of those that were replaced, or kept elsewhere."""
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    before: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(before)


def collect_traces(model: PreTrainedModel) -> dict[str, set[Any]]:
    """All that `install` might change and `uninstall` forget, as sets that can be compared."""
    modules = list(model.named_modules())
    files = modelling_files(model)
    classes = {type(module) for _, module in modules}
    return {
        "names in the state_dict": {(name, tuple(value.shape)) for name, value in model.state_dict().items()},
        "modules": {(name, type(module)) for name, module in modules},
        "attributes of modules": {(name, key) for name, module in modules for key in vars(module)},
        "hooks": {
            (name, key, hook)
            for name, module in modules
            for key, value in vars(module).items()
            if key.endswith("_hooks")
            for hook in value.values()
        },
        "the config": {
            (name, repr(getattr(module, "config", None))) for name, module in modules if hasattr(module, "config")
        },
        "globals of modelling files": {
            (file.__name__, key, id(value)) for file in files for key, value in vars(file).items()
        },
        "attributes of classes": {
            (one, key, id(value)) for one in classes for key, value in vars(one).items() if not key.endswith("_cached_value")
        },
    }

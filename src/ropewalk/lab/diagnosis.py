"""Where a model goes wrong: which layer gives the first number that is not finite, and whether it is the compiler."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def looking(model: nn.Module) -> Iterator[list[str]]:
    """The names of modules whose outputs are not finite, in the order in which they run. It waits for the device."""
    seen: list[str] = []

    def hook(name: str) -> Callable[..., None]:
        def look(module: nn.Module, given: Any, out: Any) -> None:
            if isinstance(out, Tensor) and not out.isfinite().all():
                seen.append(name)

        return look

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules() if name]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def broken(model: nn.Module) -> list[str]:
    """The names of weights that are not finite."""
    return [name for name, weight in model.named_parameters() if not weight.isfinite().all()]


@contextmanager
def uncompiled(model: nn.Module) -> Iterator[None]:
    """A model that was compiled in place computes as it is written, for a while."""
    compiled, model._compiled_call_impl = model._compiled_call_impl, None
    try:
        yield
    finally:
        model._compiled_call_impl = compiled


def doubt(compiled: float, plain: float) -> None:
    """Warn if a compiled model had another loss than the same model uncompiled, beyond what rounding explains."""
    if abs(compiled - plain) > 0.02 * max(plain, 0.1):
        told = f"compiled, the model had a validation loss of {compiled:.4f}, and uncompiled of {plain:.4f}"
        warnings.warn(f"{told}: the result is the latter, and scores of epochs are not to be trusted", stacklevel=2)

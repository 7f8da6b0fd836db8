"""Which layer of a model gives the first number that is not finite."""

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

"""Where a model goes wrong: which layer gives the first number that is not finite, and whether it is the compiler."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.lab.vision_heads.backbone import DenseModel
from ropewalk.models import ViT
from ropewalk.models.vit import Block

MAX_COMPILE_ERROR = 0.1
"""How far a compiled model may be from the same uncompiled: rounding to bfloat16 is worth a tenth of that."""


@contextmanager
def record_nonfinite_layers(model: nn.Module) -> Iterator[list[str]]:
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


def find_nonfinite_weights(model: nn.Module) -> list[str]:
    """The names of weights that are not finite."""
    return [name for name, weight in model.named_parameters() if not weight.isfinite().all()]


@contextmanager
def disable_compilation(model: nn.Module) -> Iterator[None]:
    """A model that was compiled in place computes as it is written, for a while."""
    compiled, model._compiled_call_impl = model._compiled_call_impl, None
    try:
        yield
    finally:
        model._compiled_call_impl = compiled


def warn_compiled_loss(compiled: float, plain: float) -> None:
    """Warn if a compiled model had another loss than the same model uncompiled, beyond what rounding explains."""
    if abs(compiled - plain) > 0.02 * max(plain, 0.1):
        told = f"compiled, the model had a validation loss of {compiled:.4f}, and uncompiled of {plain:.4f}"
        warnings.warn(f"{told}: the result is the latter, and scores of epochs are not to be trusted", stacklevel=2)


def warn_compiled_features(model: DenseModel, images: Tensor) -> None:
    """Warn if what is compiled of a dense model, that is all but its evaluation, is far from the same uncompiled."""
    if (share := measure_compile_error(model, images)) > MAX_COMPILE_ERROR:
        told = f"compiled, what the model makes of images is {share:.0%} off what it makes of them uncompiled"
        warnings.warn(f"{told}: it was trained by that, and its result is not to be trusted", stacklevel=2)


def measure_compile_error(model: DenseModel, images: Tensor) -> float:
    """The difference of what is compiled from the same uncompiled, in shares of the latter. Nothing is dropped.

    Forward and backward go as in training, so that nothing is compiled anew.
    """
    model.train()
    with disable_dropout(model.backbone):
        found = model.compiled_outputs(images)
        torch.autograd.grad(_sum_all(found), list(model.parameters()), allow_unused=True)
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            wanted = model.compiled_outputs(images)
        lost = [one.detach().float() - other.float() for one, other in zip(found, wanted, strict=True)]
    return float((_sum_all(map(torch.square, lost)) / _sum_all(each.float().square() for each in wanted)).sqrt())


def _sum_all(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack([part.float().sum() for part in parts]).sum()


@contextmanager
def disable_dropout(model: ViT) -> Iterator[None]:
    """A ViT that is trained drops nothing, for a while. What drop-path keeps is data to the compiler, and dropout is not."""
    blocks = [block for block in model.blocks if isinstance(block, Block)]
    if model.dropout.p:
        model.eval()
    for block in blocks:
        block.keep.fill_(1)
    try:
        yield
    finally:
        for block in blocks:
            block.keep.fill_(1 - block.drop_path)

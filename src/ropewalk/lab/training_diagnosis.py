"""Diagnosis of trainings: the first layer or weight that is not finite, and whether a compiled model computes correctly."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.lab.vision_heads.backbone import DenseModel
from ropewalk.models import ViT
from ropewalk.models.vit import Block

# Largest relative error of a compiled model's outputs; rounding to bfloat16 causes a tenth of it.
MAX_COMPILE_ERROR = 0.1


@contextmanager
def record_nonfinite_layers(model: nn.Module) -> Iterator[list[str]]:
    """Collect the names of modules whose outputs are not finite, in the order in which they run. Synchronises the device."""
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
    """The names of parameters that have values that are not finite."""
    return [name for name, weight in model.named_parameters() if not weight.isfinite().all()]


@contextmanager
def disable_compilation(model: nn.Module) -> Iterator[None]:
    """Run a model that was compiled in place uncompiled inside the context."""
    compiled, model._compiled_call_impl = model._compiled_call_impl, None
    try:
        yield
    finally:
        model._compiled_call_impl = compiled


def warn_compiled_loss(compiled: float, plain: float) -> None:
    """Warn if the loss of a compiled model differs from that of the same model uncompiled by more than rounding."""
    if differs_compiled(compiled, plain):
        losses = f"the validation loss is {compiled:.4f} with the compiled model and {plain:.4f} with the uncompiled one"
        warnings.warn(f"{losses}: the result has the latter, and scores of epochs are not to be trusted", stacklevel=2)


def differs_compiled(compiled: float, plain: float) -> bool:
    """Whether two losses, with and without compilation, differ by more than rounding."""
    return abs(compiled - plain) > 0.02 * max(plain, 0.1)


def warn_compiled_features(model: DenseModel, images: Tensor) -> None:
    """Warn if what is compiled of a dense model, all but its evaluation, differs from the same uncompiled."""
    if (share := measure_compile_error(model, images)) > MAX_COMPILE_ERROR:
        error = f"the outputs of the compiled model differ from those of the uncompiled one by {share:.0%}"
        warnings.warn(f"{error}: it was trained with the former, and its result is not to be trusted", stacklevel=2)


def measure_compile_error(model: DenseModel, images: Tensor) -> float:
    """The relative error of the compiled outputs, without dropout and drop-path.

    Forward and backward pass are those of training, so that nothing is compiled anew.
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
    """Disable dropout and drop-path of a ViT inside the context, without a new compilation for drop-path."""
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

"""Models of `ropewalk.models` as programs of `torch.export` and ONNX.

    program(vit)  # images of the size in training, any batch
    onnx(lm, length=2048).save("lm.onnx")  # texts of up to 2048 tokens, any batch

Where tokens stand does not depend on what they are. So all that an encoding computes from positions can be computed before:
a ViT's code is a constant at one size; of a decoder, what comes from matrix exponentials and linear solves, for which ONNX
has no operators, is a table with a row for each place, and a basis. Parameters of encodings are constants in these.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from ropewalk.arguments import positive, positives
from ropewalk.code import Basis, Chain, Code, Turn
from ropewalk.encoding import Encoding
from ropewalk.image_sizes import place_patches, settle_size
from ropewalk.models import LM, ViT
from ropewalk.positions import Resolution


def program(
    model: ViT | LM,
    *,
    size: Sequence[int] | None = None,
    resolution: Resolution | None = None,
    length: int | None = None,
) -> ExportedProgram:
    """The program of a model in evaluation mode, for any batch.

    size        Of the images of a ViT; by default that in training.
    resolution  How patches of another size are positioned, as the ViT takes it.
    length      Of the texts of an LM, at most. Without it they may be of any length, if its encoding needs no table.

    An LM takes whole texts: tokens alone, no positions, cache or mask.
    """
    given, shapes = _images(model, size) if isinstance(model, ViT) else _texts(length)
    still = fixed(model, size=size, resolution=resolution, length=length)
    with torch.no_grad():
        made = torch.export.export(still, (given,), dynamic_shapes=(shapes,))
    made.graph.eliminate_dead_code()  # of what `_filled` replaced: ONNX would want an operator for it
    made.graph_module.recompile()
    return made


def onnx(
    model: ViT | LM | ExportedProgram,
    *,
    size: Sequence[int] | None = None,
    resolution: Resolution | None = None,
    length: int | None = None,
    **options: Any,
) -> Any:
    """The same, or a program that there is already, as an `ONNXProgram`, with options of `torch.onnx.export`.

    It needs onnxscript.
    """
    made = model if isinstance(model, ExportedProgram) else program(model, size=size, resolution=resolution, length=length)
    with torch.no_grad():  # as for the program: attention is taken apart in another way where something may learn
        return torch.onnx.export(made, **{"dynamo": True, "verbose": False, "output_names": ["logits"], **options})


def fixed(
    model: ViT | LM,
    *,
    size: Sequence[int] | None = None,
    resolution: Resolution | None = None,
    length: int | None = None,
) -> nn.Module:
    """The model in evaluation mode, sharing all weights but those of its encoding, which become constants.

    One that is in training is copied with its weights: those will not be the ones of these constants for long.
    """
    shared = [] if model.training else [*model.parameters(), *model.buffers()]
    other = copy.deepcopy(model, {id(tensor): tensor for tensor in shared})
    encoding: nn.Module = other.encoding
    if isinstance(model, ViT):
        encoding = Still(other.encoding, _grid(model, size), known=model.grid, resolution=resolution)
    elif _parts(other.encoding(torch.arange(1))):
        encoding = Rows(other.encoding, length)
    other._modules = {**other._modules, "encoding": encoding}
    return other.eval()


class Still(nn.Module):
    """An encoding at one grid, its code made beforehand."""

    waiting = False
    extension = None

    def __init__(
        self, encoding: Encoding, sizes: tuple[int, ...], *, known: tuple[int, ...], resolution: Resolution | None
    ) -> None:
        super().__init__()
        self.axes, self.size = encoding.axes, sizes
        positions = place_patches(encoding, sizes, known=known, resolution=resolution)
        leaves, self.structure = pytree.tree_flatten(settle_size(encoding, sizes)(positions))
        self.names = _keep(self, positions, *leaves)

    def grid(self, *sizes: int, **options: Any) -> Tensor:
        if sizes != self.size:
            raise ValueError(f"this model is fixed for a grid of {self.size}, got {sizes}")
        return getattr(self, self.names[0])

    def forward(self, positions: Tensor) -> Code:
        return pytree.tree_unflatten([getattr(self, name) for name in self.names[1:]], self.structure)


class Rows(nn.Module):
    """An encoding of sequences, its bases and the matrices of each place made beforehand."""

    def __init__(self, encoding: Encoding, length: int | None) -> None:
        super().__init__()
        if length is None and any(isinstance(part, Turn) for part in _parts(encoding(torch.arange(1)))):
            raise ValueError(f"{encoding.name} needs a table of the matrices of all places: give length, got None")
        self.encoding = encoding
        found = _parts(encoding(torch.arange(1 if length is None else positive("length", length))))
        self.names = _keep(self, *(part.basis if isinstance(part, Basis) else part.q_matrix for part in found))

    def forward(self, positions: Tensor) -> Code:
        return _filled(self.encoding(positions), positions, iter([getattr(self, name) for name in self.names]))


def _keep(module: nn.Module, *tensors: Tensor) -> list[str]:
    """Make tensors buffers, which are not saved, and name them."""
    for i, tensor in enumerate(tensors):
        module.register_buffer(f"table{i}", tensor.detach(), persistent=False)
    return [f"table{i}" for i in range(len(tensors))]


def _parts(code: Code) -> list[Basis | Turn]:
    """What in a code is made of matrix exponentials or linear solves."""
    if isinstance(code, Chain):
        return [part for each in code.codes for part in _parts(each)]
    return [code] if isinstance(code, Basis | Turn) else []


def _filled(code: Code, positions: Tensor, tables: Iterator[Tensor]) -> Code:
    """A code with such parts from tables. What computed them is used by nobody."""
    if isinstance(code, Chain):
        return replace(code, codes=tuple(_filled(each, positions, tables) for each in code.codes))
    if isinstance(code, Basis):
        return replace(code, basis=next(tables))
    return replace(code, q_matrix=next(tables).index_select(-4, positions)) if isinstance(code, Turn) else code


def _grid(model: ViT, size: Sequence[int] | None) -> tuple[int, ...]:
    trained = model.encoding.size
    if size is None and trained is not None:
        return trained
    sides = positives("size", tuple(size or ()))
    if len(sides) != model.axes or any(n % p for n, p in zip(sides, model.patch, strict=True)):
        raise ValueError(f"size must be {model.axes} multiples of the patch {model.patch}, got {size}")
    return tuple(n // p for n, p in zip(sides, model.patch, strict=True))


def _images(model: ViT, size: Sequence[int] | None) -> tuple[Tensor, dict[int, Any]]:
    channels, weight = model.embed.in_features // math.prod(model.patch), model.embed.weight
    sides = [n * p for n, p in zip(_grid(model, size), model.patch, strict=True)]
    return weight.new_zeros(2, channels, *sides), {0: Dim("batch", min=1)}


def _texts(length: int | None) -> tuple[Tensor, dict[int, Any]]:
    return torch.zeros(2, min(length or 4, 4), dtype=torch.long), {
        0: Dim("batch", min=1),
        1: Dim("length", min=1, max=length),
    }

"""Models of `ropewalk.models`, timm and transformers as programs of `torch.export` and ONNX, the latter two after `install`.

    program(vit)  # images of the size in training, any batch
    onnx(lm, length=2048).save("lm.onnx")  # texts of up to 2048 tokens, any batch

Where tokens stand does not depend on what they are. So all that an encoding computes from positions can be computed before:
a ViT's code is a constant at one size; of a decoder, what comes from matrix exponentials and linear solves, for which ONNX
has no operators, is a table with a row for each place, and a basis. Parameters of encodings are constants in these.
"""

import copy
import math
import re
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

MATRICES = re.compile(r"expm|matrix_exp|linalg_solve")  # operators that ONNX does not have


def program(
    model: nn.Module,
    *,
    size: Sequence[int] | None = None,
    resolution: Resolution | None = None,
    length: int | None = None,
) -> ExportedProgram:
    """The program of a model in evaluation mode, for any batch.

    size        Of the images; by default that in training. Models of timm take others if made with dynamic_img_size=True.
    resolution  How patches of another size are positioned, as the ViT takes it; a model of timm keeps its own way.
    length      Of the texts of a decoder, at most. Without it they may be of any length, if its encoding needs no table.

    A decoder, an LM or a model of transformers, takes whole texts: tokens alone, no positions, cache or mask.
    """
    reads = isinstance(model, LM) or _installed_decoder(model) is not None
    given, shapes = _texts(length, next(model.parameters()).device) if reads else _images(model, size)
    still = fixed(model, size=size, resolution=resolution, length=length)
    with torch.no_grad():
        made = torch.export.export(still, (given,), dynamic_shapes=(shapes,))
    made.graph.eliminate_dead_code()  # of what `_filled` replaced: ONNX would want an operator for it
    made.graph_module.recompile()
    return made


def onnx(
    model: nn.Module | ExportedProgram,
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
    _refuse_matrices(made)
    with torch.no_grad():  # as for the program: attention is taken apart in another way where something may learn
        return torch.onnx.export(made, **{"dynamo": True, "verbose": False, "output_names": ["logits"], **options})


def fixed(
    model: nn.Module,
    *,
    size: Sequence[int] | None = None,
    resolution: Resolution | None = None,
    length: int | None = None,
) -> nn.Module:
    """The model in evaluation mode, sharing all weights but those of its encoding, which become constants.

    One that is in training is copied with its weights: those will not be the ones of these constants for long.
    """
    model = _check_model(model)
    shared = [] if model.training else [*model.parameters(), *model.buffers()]
    other = copy.deepcopy(model, {id(tensor): tensor for tensor in shared})
    if (positions := _installed_decoder(other)) is not None:
        for encoding in _encodings_of(positions):
            _fill_beforehand(encoding, length)
        return Logits(other).eval()
    if isinstance(other, LM):
        _fill_beforehand(other.encoding, length)
        return other.eval()
    holder: Any = other if isinstance(other, ViT) else other.rope
    grid = _grid(other, size)
    still = Still(holder.encoding, grid, _place(other, grid, resolution))
    holder._modules = {**holder._modules, "encoding": still}
    return other.eval()


def _place(model: Any, grid: tuple[int, ...], resolution: Resolution | None) -> Tensor:
    """Positions of the patches of an image."""
    if isinstance(model, ViT):
        return place_patches(model.encoding, grid, known=model.grid, resolution=resolution)
    if resolution is not None:
        raise ValueError(f"a model of timm gets its resolution from install(…, resolution=…), got {resolution!r}")
    positions: Tensor = model.rope.rule(model.rope.encoding, grid, next(model.parameters()).device)
    return positions


def _check_model(model: Any) -> Any:
    """The model, if its positions are known here: a model of timm is one with a place for an encoding."""
    if isinstance(model, ViT | LM) or _installed_decoder(model) is not None:
        return model
    if not hasattr(model, "patch_embed") or not isinstance(
        getattr(getattr(model, "rope", None), "encoding", None), Encoding
    ):
        wanted = "a ViT or LM of ropewalk, or a plain ViT or Eva of timm or a decoder of transformers after install"
        raise TypeError(f"model must be {wanted}, got {type(model).__name__}; torch.export.export takes any other model")
    return model


class Still(nn.Module):
    """An encoding at one grid, its code made beforehand."""

    waiting = False
    extension = None

    def __init__(self, encoding: Encoding, sizes: tuple[int, ...], positions: Tensor) -> None:
        super().__init__()
        self.axes, self.size = encoding.axes, sizes
        leaves, self.structure = pytree.tree_flatten(settle_size(encoding, sizes)(positions))
        self.names = _keep(self, positions, *leaves)

    def grid(self, *sizes: int, **options: Any) -> Tensor:
        if sizes != self.size:
            raise ValueError(f"this model is fixed for a grid of {self.size}, got {sizes}")
        return getattr(self, self.names[0])

    def forward(self, positions: Tensor) -> Code:
        return pytree.tree_unflatten([getattr(self, name) for name in self.names[1:]], self.structure)


class Logits(nn.Module):
    """A decoder of transformers that takes tokens alone and returns one tensor: logits, or the last hidden state."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        out = self.model(tokens, use_cache=False)
        found: Tensor = out["logits" if "logits" in out else "last_hidden_state"]
        return found


def _installed_decoder(model: Any) -> Any:
    """What holds the encoding of a decoder of transformers; None where there is none, or several."""
    found = [each for each in model.modules() if hasattr(each, "host_config") and _encodings_of(each)]
    return found[0] if len(found) == 1 and found[0].use.ids == "tokens" else None


def _encodings_of(positions: Any) -> list[Encoding]:
    """The encoding of all layers, or those of types of layers."""
    own = positions.encoding
    several = own.values() if isinstance(own, nn.ModuleDict) else [own]
    return [each for each in several if isinstance(each, Encoding)]


class Filled:
    """What an encoding of sequences inherits from whose bases and matrices of each place are made beforehand."""

    names: list[str]

    def forward(self, positions: Tensor, key_positions: Tensor | None = None) -> Code:
        code = super().forward(positions, key_positions)  # type: ignore[misc]
        return _filled(code, positions, iter([getattr(self, name) for name in self.names]))


def _fill_beforehand(encoding: Encoding, length: int | None) -> None:
    """Give an encoding, in place, a table for what ONNX cannot compute, if there is something."""
    device = next((tensor.device for tensor in (*encoding.parameters(), *encoding.buffers())), None)
    found = _parts(encoding(torch.arange(1, device=device)))
    if not found:
        return
    if length is None and any(isinstance(part, Turn) for part in found):
        raise ValueError(f"{encoding.name} needs a table of the matrices of all places: give length, got None")
    if length is not None:
        found = _parts(encoding(torch.arange(positive("length", length), device=device)))
    names = _keep(encoding, *(part.basis if isinstance(part, Basis) else part.q_matrix for part in found))
    encoding.__class__ = type(type(encoding).__name__, (Filled, type(encoding)), {"names": names})


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
    if not isinstance(code, Turn):
        return code
    rows = next(tables).index_select(-4, positions.flatten())
    if positions.ndim == 2:  # (B N): the batch stands before heads
        rows = rows.unflatten(-4, positions.shape).movedim(-5, -6)
    return replace(code, q_matrix=rows)


def _refuse_matrices(made: ExportedProgram) -> None:
    """Say what to do about operators that ONNX does not have, before many lines of errors do."""
    left = sorted({str(node.target) for node in made.graph.nodes if MATRICES.search(str(node.target))})
    if left:
        beforehand = "pass the model itself, or its ropewalk.export.program, which compute it beforehand for fixed positions"
        raise ValueError(
            f"ONNX has no operator for {', '.join(left)}, which an encoding of this program uses: {beforehand}; "
            "an encoding that commutes can be folded first (fold_into)"
        )


def _grid(model: Any, size: Sequence[int] | None) -> tuple[int, ...]:
    """The grid of patches of images of this size, by default of those in training."""
    own, patch = isinstance(model, ViT), _patch(model)
    trained = model.grid if own else tuple(model.patch_embed.grid_size)
    if size is None:
        return trained
    sides = positives("size", size)
    if len(sides) != len(patch) or any(n % p for n, p in zip(sides, patch, strict=True)):
        raise ValueError(f"size must be {len(patch)} multiples of the patch {patch}, got {size}")
    return tuple(n // p for n, p in zip(sides, patch, strict=True))


def _patch(model: Any) -> tuple[int, ...]:
    return model.patch if isinstance(model, ViT) else tuple(model.patch_embed.patch_size)


def _images(model: Any, size: Sequence[int] | None) -> tuple[Tensor, dict[int, Any]]:
    if isinstance(_check_model(model), ViT):
        weight = model.embed.weight
        channels = model.embed.in_features // math.prod(model.patch)
    else:
        weight = model.patch_embed.proj.weight
        channels = weight.shape[1]
    sides = [n * p for n, p in zip(_grid(model, size), _patch(model), strict=True)]
    return weight.new_zeros(2, channels, *sides), {0: Dim("batch", min=1)}


def _texts(length: int | None, device: torch.device) -> tuple[Tensor, dict[int, Any]]:
    return torch.zeros(2, min(length or 4, 4), dtype=torch.long, device=device), {
        0: Dim("batch", min=1),
        1: Dim("length", min=1, max=length),
    }

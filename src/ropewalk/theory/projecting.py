"""The basis of a folded encoding goes into the query and key projections: at inference, it costs nothing.

With q = A x + a and k = B y + b, replace A, a, B, b of every head by UᵀA, Uᵀa, UᵀB, Uᵀb, and the encoding by RoPE-Mixed.
Scores stay, those of tokens without a position as well. Uᵀ must meet q and k where they leave the projections: what they
pass before they are turned has to commute with U. A root-mean-square norm over a head does; a LayerNorm, which takes away
the mean, does not, nor do gains of single channels.

**Protocol.** `fold_into` takes any module with `encoding` and a method `projections()`, which gives a pair of `Projection`
for each layer, of queries and of keys.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from ropewalk.encoding import Encoding
from ropewalk.theory.between import check_commutes, check_plain
from ropewalk.theory.folding import folded_parts
from ropewalk.theory.waves import TOLERANCE


class Projection(NamedTuple):
    """Rows of a linear layer that make q or k, head after head; and what they pass before they are turned."""

    linear: nn.Linear
    rows: slice = slice(None)
    between: tuple[nn.Module, ...] = ()


class Foldable(Protocol):
    """What `fold_into` takes: a module with these."""

    @property
    def encoding(self) -> Encoding:
        """The encoding of all layers."""

    def projections(self) -> Sequence[tuple[Projection, Projection]]:
        """Where queries and keys of each layer come from."""


Model = TypeVar("Model", bound=nn.Module)


@torch.no_grad()
def fold_into(model: Model, *, tolerance: float = TOLERANCE) -> Model:
    """Fold the encoding of a model: rewrite its q and k projections in place, and give it RoPE-Mixed. Returns the model.

    It is for inference: what an optimiser knows of the old weights is of no use for the new ones. Fold weights of full
    precision and cast afterwards: what is rewritten in bfloat16 is rounded once more. A model that cannot be folded is
    refused and left as it was.
    """
    encoding = getattr(model, "encoding", None)
    if not (
        isinstance(model, nn.Module) and isinstance(encoding, Encoding) and callable(getattr(model, "projections", None))
    ):
        wanted = "a module with an encoding of ropewalk as `encoding` and a method `projections`"
        raise TypeError(f"fold_into takes {wanted}, got {type(model).__name__}")
    folded, basis = folded_parts(encoding, tolerance)
    places = [(m, name) for m in model.modules() for name, child in m._modules.items() if child is encoding]
    if not places:
        raise ValueError("the encoding must be a child of the model or of one of its modules, and it is of none")
    layers = list(cast(Foldable, model).projections())
    bases = [basis] * len(layers) if encoding.layers is None else list(basis)
    if not layers or len(bases) != len(layers):
        raise ValueError(f"projections must be given for {encoding.layers or 'one or more'} layers, got {len(layers)}")
    jobs = [
        (projection, _of_heads(projection, own, f"{side} of layer {layer}"))
        for layer, (sides, own) in enumerate(zip(layers, bases, strict=True))
        for side, projection in zip(("q", "k"), sides, strict=True)
    ]
    written = [_rewritten(projection, own) for projection, own in _once(jobs, model)]
    for parts in written:
        for value, rows, new in parts:
            value[rows] = new
    for module, name in places:
        setattr(module, name, folded)
    return model


def _of_heads(projection: Projection, basis: Tensor, where: str) -> Tensor:
    """The basis of each head of a projection, (H D D), from those of the encoding, (h D D). Checked."""
    linear, rows, between = projection
    check_plain(linear, where)
    own, depth = basis.shape[:2]
    count = len(range(linear.weight.shape[0])[rows])
    heads, rest = divmod(count, depth)
    if rest or not heads or rows.step not in (None, 1):
        raise ValueError(f"{where} must have rows for heads of {depth} channels, in their order, got {count} in {rows}")
    if own > heads or heads % own:
        advice = f"make the encoding with kv_heads={heads}" if own > heads else "heads must be a multiple of bases"
        raise ValueError(f"{where} has {heads} heads, and the encoding {own} bases, of which each head needs one: {advice}")
    basis = basis.repeat_interleave(heads // own, 0)
    for module in between:
        check_commutes(module, basis, where)
    return basis


def _once(jobs: Sequence[tuple[Projection, Tensor]], model: nn.Module) -> list[tuple[Projection, Tensor]]:
    """Each row once, though it serve several layers or q and k: they must need the same basis, and nobody else the row."""
    found: dict[tuple[int, int, int], tuple[Projection, Tensor]] = {}
    for projection, basis in jobs:
        rows = range(projection.linear.weight.shape[0])[projection.rows]
        key = (_memory(projection.linear.weight), rows.start, rows.stop)
        for (memory, start, stop), (_, other) in found.items():
            same = (start, stop) == key[1:] and torch.equal(other, basis)
            if memory == key[0] and max(start, rows.start) < min(stop, rows.stop) and not same:
                shared = min(stop, rows.stop) - max(start, rows.start)
                raise ValueError(f"{shared} rows of {projection.linear} make q or k twice, and would need two bases")
        found.setdefault(key, (projection, basis))
    ours = {id(linear) for (linear, *_), _ in jobs}
    memories = {memory for memory, *_ in found}
    for name, module in model.named_modules():
        for each, weight in module.named_parameters(recurse=False):
            if id(module) not in ours and not weight.is_meta and _memory(weight) in memories:
                raise ValueError(f"{name}.{each} shares its numbers with a projection of q or k: it would change with it")
    return list(found.values())


def _memory(weight: Tensor) -> int:
    return weight.untyped_storage().data_ptr()


def _rewritten(projection: Projection, basis: Tensor) -> list[tuple[Tensor, slice, Tensor]]:
    """What is to be written where: Uᵀ of the rows of weight and bias, head by head."""
    found = []
    for value in (projection.linear.weight, projection.linear.bias):
        if value is not None:
            heads = value[projection.rows].detach().cpu().double().unflatten(0, basis.shape[:2])
            new = torch.einsum("hij,hi...->hj...", basis, heads).flatten(0, 1)
            found.append((value, projection.rows, new.to(value)))
    return found

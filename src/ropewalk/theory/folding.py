"""A commuting encoding costs nothing extra at inference: its basis folds into the query and key projections.

Let R(p) = U W(p) Uᵀ, where W turns pairs. Then qᵀ R(x)ᵀ R(y) k = (Uᵀq)ᵀ W(x)ᵀ W(y) (Uᵀk): with q = A x + a and k = B y + b,
replace A, a, B, b of every head by UᵀA, Uᵀa, UᵀB, Uᵀb, and the encoding by RoPE-Mixed. Scores stay; tokens without a
position, which are not turned, go through the same projections and keep theirs as well.

Uᵀ must meet q and k right where they leave the projections. What stands between projection and rotation has to commute with
every orthonormal basis: a root-mean-square norm over a head without gains, or with equal ones, does. A LayerNorm, which
takes away the mean, does not, nor do gains of single channels.

**Protocol.** `fold_into` takes any module with `encoding` and a method `projections()`, which gives a pair of `Projection`
for each layer, of queries and of keys.
"""

import copy
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from ropewalk.encoding import Encoding
from ropewalk.encodings.mixed import Mixed
from ropewalk.factory import Chained
from ropewalk.theory.commuting import turning
from ropewalk.theory.waves import commuting_planes


class Projection(NamedTuple):
    """Rows of a linear layer that make q or k, head after head; and what they pass before they are turned."""

    linear: nn.Linear
    rows: slice = slice(None)
    between: tuple[nn.Module, ...] = ()


class Foldable(Protocol):
    """What `fold_into` takes."""

    encoding: Encoding

    def projections(self) -> Sequence[tuple[Projection, Projection]]:
        """Where queries and keys of each layer come from."""


Model = TypeVar("Model", bound=Foldable)


def fold(encoding: Encoding, *, tolerance: float = 1e-6) -> tuple[Encoding, Tensor]:
    """RoPE-Mixed and a basis U ([L] h D D) of a commuting encoding: its scores of q and k are those of Uᵀ q and Uᵀ k there.

    Of a chain, the member that turns is folded and the others stay as they are. Generators whose commutators, as
    `theory.commutators` measures them, exceed the tolerance are refused.
    """
    folded, basis = _folded(encoding, tolerance)
    return copy.deepcopy(folded), basis.to(next(folded.parameters()))


@torch.no_grad()
def fold_into(model: Model, *, tolerance: float = 1e-6) -> Model:
    """Fold the encoding of a model: rewrite its q and k projections in place, and give it RoPE-Mixed. Returns the model.

    Fold weights of full precision and cast afterwards: what is rewritten in bfloat16 is rounded once more. A model that
    cannot be folded is refused and left as it was.
    """
    if not (isinstance(getattr(model, "encoding", None), Encoding) and callable(getattr(model, "projections", None))):
        wanted = "a module with an encoding of ropewalk as `encoding` and a method `projections`"
        raise TypeError(f"fold_into takes {wanted}, got {type(model).__name__}")
    encoding, layers = model.encoding, list(model.projections())
    folded, basis = _folded(encoding, tolerance)
    bases = [basis] * len(layers) if encoding.layers is None else list(basis)
    if len(bases) != len(layers):
        raise ValueError(f"the encoding has {len(bases)} layers, but the model has projections of {len(layers)}")
    jobs = [
        (projection, _of_heads(projection, own, f"{side} of layer {layer}"))
        for layer, (sides, own) in enumerate(zip(layers, bases, strict=True))
        for side, projection in zip(("q", "k"), sides, strict=True)
    ]
    _refuse_shared([projection for projection, _ in jobs])
    for projection, own in jobs:
        for value in (projection.linear.weight, projection.linear.bias):
            if value is not None:
                value[projection.rows] = _changed(value[projection.rows], own)
    model.encoding = folded
    return model


def _folded(encoding: Encoding, tolerance: float) -> tuple[Encoding, Tensor]:
    """RoPE-Mixed, or the chain with that in the place of what turned, and the basis in float64 on the CPU."""
    part = turning(encoding)
    found = commuting_planes(part, tolerance)
    mixed = _mixed(part, found.waves)
    if not isinstance(encoding, Chained):
        return mixed, found.basis
    members = [mixed if member is part else member for member in encoding.members]
    return Chained(parts=[member for member in members if isinstance(member, Encoding)]), found.basis


def _mixed(encoding: Encoding, waves: Tensor) -> Mixed:
    """RoPE-Mixed with these waves, in the precision and on the device of an encoding."""
    names = ("head_dim", "heads", "kv_heads", "axes", "layers", "size", "coordinates")
    shared = waves.shape[-3] == 1 < encoding.own_heads
    with torch.random.fork_rng(devices=[]):  # what it draws at its start is overwritten
        mixed = Mixed(**{name: getattr(encoding, name) for name in names}, shared=shared)
    mixed = mixed.to(next(tensor for tensor in (*encoding.parameters(), *encoding.buffers())))
    with torch.no_grad():
        mixed.wave.copy_(waves)
    return mixed


def _of_heads(projection: Projection, basis: Tensor, where: str) -> Tensor:
    """The basis of each head of a projection, (H D D), from those of the encoding, (h D D). Checked."""
    linear, rows, between = projection
    if not isinstance(linear, nn.Linear) or not linear.weight.is_floating_point() or is_parametrized(linear):
        raise TypeError(f"{where} must come from a plain linear layer of floating numbers, got {linear}")
    own, depth = basis.shape[:2]
    count = len(range(linear.weight.shape[0])[rows])
    heads, rest = divmod(count, depth)
    if rest or not heads:
        raise ValueError(f"{where} must have rows for heads of {depth} channels, got {count} rows")
    if own > heads or heads % own:
        several = f"a head would need {own / heads:.3g} of them; make the encoding with kv_heads={heads}"
        raise ValueError(f"{where} has {heads} heads, and the encoding {own} bases: {several}")
    for module in between:
        _refuse_uneven(module, depth, where)
    return basis.repeat_interleave(heads // own, 0)


def _refuse_uneven(module: nn.Module, depth: int, where: str) -> None:
    """Refuse what does not commute with every orthonormal basis of a head."""
    if isinstance(module, nn.Identity):
        return
    name, gains = type(module).__name__, getattr(module, "weight", None)
    if not name.lower().endswith("rmsnorm"):
        raise ValueError(f"{where} passes {name} before it is turned, which does not commute with a change of basis")
    if gains is None:
        return
    if gains.numel() % depth:
        raise ValueError(f"{where} passes {name} over {gains.numel()} channels, no multiple of a head's {depth}")
    by_head = gains.detach().double().reshape(-1, depth)
    if (by_head.amax(-1) - by_head.amin(-1)).max() > 1e-6 * by_head.abs().max():
        spread = f"from {by_head.min():.3g} to {by_head.max():.3g}"
        raise ValueError(f"{where} passes {name}, whose gains differ inside a head, {spread}: no change of basis commutes")


def _refuse_shared(projections: Sequence[Projection]) -> None:
    """Refuse rows that serve twice: they cannot be written in two bases."""
    seen: dict[int, set[int]] = {}
    for linear, rows, _ in projections:
        own, before = set(range(linear.weight.shape[0])[rows]), seen.setdefault(id(linear.weight), set())
        if own & before:
            raise ValueError(
                f"{len(own & before)} rows of {linear} make q or k more than once: they would need several bases"
            )
        before |= own


def _changed(value: Tensor, basis: Tensor) -> Tensor:
    """Rows of a weight or bias, head by head, in the basis: Uᵀ of them."""
    heads = value.detach().cpu().double().unflatten(0, basis.shape[:2])
    return torch.einsum("hij,hi...->hj...", basis, heads).flatten(0, 1).to(value)

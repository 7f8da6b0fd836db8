"""A commuting encoding is RoPE-Mixed in another basis.

Let R(p) = U W(p) Uᵀ, where W turns pairs. Then qᵀ R(x)ᵀ R(y) k = (Uᵀq)ᵀ W(x)ᵀ W(y) (Uᵀk): scores of q and k with the
encoding are those of Uᵀq and Uᵀk with RoPE-Mixed, whose waves are those of U's planes. Tokens without a position, which are
not turned, keep their scores in the new basis as well.
"""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.encodings.mixed import Mixed
from ropewalk.factory import Chained
from ropewalk.rotary import BasedWaves, Waves
from ropewalk.theory.commuting import Planes, exact, turning
from ropewalk.theory.waves import TOLERANCE, commuting_planes


def fold(encoding: Encoding, *, tolerance: float = TOLERANCE) -> tuple[Encoding, Tensor]:
    """RoPE-Mixed and a basis U ([L] h D D) of a commuting encoding: its scores of q and k are those of Uᵀ q and Uᵀ k there.

    Of a chain, the member that turns is folded and the others stay as they are. What turns pairs already has the basis 1.
    Scores of unit q and k are off by no more than the tolerance for each radian turned, or the encoding is refused.
    """
    folded, basis = folded_parts(encoding, tolerance)
    mixed = turning(folded)
    assert isinstance(mixed, Mixed)
    return copy.deepcopy(folded), basis.to(mixed.wave)


def folded_parts(encoding: Encoding, tolerance: float) -> tuple[Encoding, Tensor]:
    """RoPE-Mixed, or the chain with that in the place of what turned, and the basis in float64 on the CPU."""
    part = turning(encoding)
    found = commuting_planes(part, tolerance)
    if not part.traits.isometric:
        raise ValueError(f"{part.name} stretches q and k, which RoPE-Mixed does not: {part!r}")
    plain = _pairs(part)
    mixed = _mixed(part, found, interleaved=True) if plain is None else _mixed(part, plain, **_layout(part, plain))
    basis = (found if plain is None else plain).basis
    if not isinstance(encoding, Chained):
        return mixed, basis
    members = [mixed if member is part else member for member in encoding.members]
    return Chained(parts=[member for member in members if isinstance(member, Encoding)]), basis


def _pairs(encoding: Encoding) -> Planes | None:
    """The waves of an encoding that turns pairs of channels as they lie in RoPE-Mixed, and the basis 1."""
    if not isinstance(encoding, Waves) or isinstance(encoding, BasedWaves):
        return None
    made = exact(encoding)
    assert isinstance(made, Waves)
    waves, depth = made.waves().detach(), encoding.head_dim
    if not encoding.interleaved and encoding.parts is None and waves.shape[-2] < depth // 2:
        return None
    waves = F.pad(waves, (0, 0, 0, depth // 2 - waves.shape[-2]))
    waves = waves if encoding.layers is None or waves.ndim == 4 else encoding.per_layer(waves)
    basis = torch.eye(depth, dtype=torch.float64, device="cpu").expand(*waves.shape[:-2], depth, depth)
    return Planes(basis, waves, 0.0)


def _layout(encoding: Encoding, planes: Planes) -> dict[str, Any]:
    """The options of RoPE-Mixed for pairs that lie as in an encoding; what is left of its sections makes one more."""
    assert isinstance(encoding, Waves)
    parts = encoding.parts
    if parts is None:
        return {"interleaved": encoding.interleaved}
    left = planes.waves.shape[-2] - sum(parts)
    return {"interleaved": False, "sections": (*parts, left) if left else parts}


def _mixed(encoding: Encoding, planes: Planes, **layout: Any) -> Mixed:
    """RoPE-Mixed with these waves, in the precision and on the device of an encoding, and learned if that is."""
    names = ("head_dim", "heads", "kv_heads", "axes", "layers", "size", "coordinates")
    shape = {name: getattr(encoding, name) for name in names}
    shared = planes.waves.shape[-3] == 1 < encoding.own_heads
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # what it draws at its start is overwritten
        mixed = Mixed(**shape, shared=shared, **layout)
    mixed = mixed.to(next(tensor for tensor in (*encoding.parameters(), *encoding.buffers())))
    with torch.no_grad():
        mixed.wave.copy_(planes.waves)
    return mixed.requires_grad_(any(weight.requires_grad for weight in encoding.parameters()))

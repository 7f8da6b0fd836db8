"""Turn blocks of channels by a matrix."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.ops.fused import declare, fits, fuse
from ropewalk.ops.turn.reference import turn_reference

torch.library.define("ropewalk::turn", "(Tensor[] xs, Tensor[] matrices, SymInt[] prefixes) -> Tensor[]")
declare("turn", "SymInt[] prefixes")


def _turn(xs: list[Tensor], matrices: list[Tensor], prefixes: list[int]) -> list[Tensor]:
    if fits(xs, matrices) and len({m.shape[-3:] for m in matrices}) == 1 and xs[0].shape[-1] <= 128:
        return fuse("turn", xs, matrices, prefixes)
    return turn_reference(xs, matrices, prefixes)


torch.library.impl("ropewalk::turn", "CompositeImplicitAutograd", _turn)
torch.library.impl("ropewalk::turn", "FuncTorchBatched", turn_reference)


def turn(xs: Sequence[Tensor], matrices: Sequence[Tensor], *, prefixes: Sequence[int]) -> list[Tensor]:
    """Multiply the blocks of each x (B H N D) by its matrices ([B] h n G b b).

    Block g is channels gb to gb + b - 1. Channels from Gb on and the first `prefix` tokens stay as they are. The kernel's
    gradients hold for orthogonal matrices.
    """
    if torch.compiler.is_compiling():
        return torch.ops.ropewalk.turn(list(xs), list(matrices), list(prefixes))
    return _turn(list(xs), list(matrices), list(prefixes))

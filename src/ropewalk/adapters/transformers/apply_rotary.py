"""The function by which attention layers turn q and k, taught to take a code in place of cosines and sines."""

import functools
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ropewalk.code import Code, Rotation, Sealed, unseal
from ropewalk.ops.rotate.reference import made, whole_halves

NAME = "apply_rotary_pos_emb"
FEW = 1 << 16
"""Entries of hidden states that are few: to launch what turns them takes longer than to turn them."""


class Few:
    """Turns q and k of few tokens, (B H N D), in few calls: (cos, cos) and (-sin, sin) times gain, each (B 1 N D).

    It is no dataclass: see `ropewalk.code.sealed`.
    """

    def __init__(self, along: Tensor, across: Tensor) -> None:
        self.along, self.across = along, across

    def qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Both together, but for a compiler, which makes one kernel of each."""
        if torch.compiler.is_compiling():
            return whole_halves(q, self.along, self.across), whole_halves(k, self.along, self.across)
        both = whole_halves(torch.cat([q, k], dim=1), self.along, self.across)
        q, k = both.split_with_sizes([q.shape[1], k.shape[1]], dim=1)
        return q, k


def lighter(code: Code, hidden: Tensor) -> Code | Few:
    """What turns as a code does, and for few tokens in less time if it can; `hidden` is (B N C)."""
    if hidden.numel() > FEW or not isinstance(code, Rotation) or code.interleaved or code.k_angle is not None:
        return code
    angle, gain = code.q_angle, code.q_gain
    if code.k_gain is not gain or 2 * angle.shape[-1] != code.head_dim or angle.shape[-3] != 1 or code.q_prefix:
        return code
    return Few(*made(angle).stretched(gain).spread())


def teach(modelling: ModuleType) -> None:
    """Let `apply_rotary_pos_emb` of a modelling file take codes. With cosines and sines it does what it did."""
    host = getattr(modelling, NAME)
    if getattr(host, "takes_codes", False):
        return

    @functools.wraps(host)
    def turn(q: Tensor, k: Tensor, cos: Any, sin: Any, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        if isinstance(cos, Few):
            return cos.qk(q, k)
        if isinstance(cos, Code | Sealed):
            return unseal(cos).qk(q, k)
        return host(q, k, cos, sin, *args, **options)

    turn.takes_codes = True  # type: ignore[attr-defined]
    setattr(modelling, NAME, turn)

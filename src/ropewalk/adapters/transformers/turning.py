"""The function by which attention layers turn q and k, taught to take a code in place of cosines and sines."""

import functools
from types import ModuleType
from typing import Any

from torch import Tensor

from ropewalk.code import Code

NAME = "apply_rotary_pos_emb"


def teach(modelling: ModuleType) -> None:
    """Let `apply_rotary_pos_emb` of a modelling file take codes. With cosines and sines it does what it did."""
    host = getattr(modelling, NAME)
    if getattr(host, "takes_codes", False):
        return

    @functools.wraps(host)
    def turn(q: Tensor, k: Tensor, cos: Any, sin: Any, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        return cos.qk(q, k) if isinstance(cos, Code) else host(q, k, cos, sin, *args, **options)

    turn.takes_codes = True  # type: ignore[attr-defined]
    setattr(modelling, NAME, turn)

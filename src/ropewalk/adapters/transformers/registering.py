"""Rotary embeddings and rotation functions of models that are not in transformers."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from ropewalk.adapters.transformers import hosts, rebinding
from ropewalk.adapters.transformers.probing import COSINES
from ropewalk.arguments import describe


def register(*, rotary: type[nn.Module] | None = None, rotation: Callable[..., Any] | None = None) -> None:
    """Register a rotary embedding or rotation function that `install` does not recognize by name.

    rotary    The class of a rotary embedding, whose forward method takes (x, position_ids) and returns cosines and sines.
              Not needed if its name is like `MyRotaryEmbedding`.
    rotation  The module-level function that attention calls with these tables, (q, k, cos, sin) or (x, cos, sin).
              Not needed if its name is like `apply_rotary_pos_emb`.
    """
    if rotary is not None:
        if not (isinstance(rotary, type) and issubclass(rotary, nn.Module)):
            raise TypeError(f"rotary must be a class of modules, got {describe(rotary)}")
        hosts.REGISTERED.add(rotary)
    if rotation is not None:
        if not callable(rotation):
            raise TypeError(f"rotation must be a function, got {describe(rotation)}")
        names = list(inspect.signature(rotation).parameters)
        if not any(name in COSINES for name in names[1:3]):
            wanted = f"(q, k, cos, sin) or (x, cos, sin), the tables named as one of {', '.join(COSINES)}"
            raise ValueError(f"rotation must take {wanted}, got ({', '.join(names)})")
        rebinding.REGISTERED.add(rotation)
        rebinding.find_rotations.cache_clear()

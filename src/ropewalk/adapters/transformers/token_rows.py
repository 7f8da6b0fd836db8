"""What hosts do to cosines and sines on their way to attention: they reorder rows, and drop some in training.

What goes through a host in place of these tables keeps such steps, and plays them on the numbers of the rows when attention
rotates with it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.code import Code, Rotary, Sealed, unseal


class TableLike:
    """Has those methods of a table (N W) or (1 N W) that hosts use."""

    flat = False  # whether the table that it stands for is (N W)

    def reshape(self, *shape: int) -> "Rows":
        """As of a tensor; the last size is that of channels."""
        return Rows(self, (lambda rows: rows.reshape(*shape[:-1], 1),))

    view = reshape

    def __getitem__(self, key: Any) -> "Rows":
        channels = key[-1] if isinstance(key, tuple) and len(key) > 1 else slice(None)
        if channels not in (slice(None), Ellipsis):
            raise TypeError("this model takes some channels of its cosines: no encoding here can stand in their place")
        return Rows(self, (lambda rows: rows[key],))

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), options: Any = None) -> Any:
        options = options or {}
        if function is F.dropout:
            share = options.get("p", args[1] if len(args) > 1 else 0.5)
            if not options.get("training", args[2] if len(args) > 2 else True) or share == 0:
                return args[0]
        name = getattr(function, "__name__", str(function))
        raise TypeError(f"this model calls {name} on its cosines: no encoding here can stand in their place")


class Rows(TableLike):
    """Rows of what stands for a table, after some steps."""

    def __init__(self, carried: Any, steps: tuple[Callable[[Tensor], Tensor], ...]) -> None:
        before = carried.steps if isinstance(carried, Rows) else ()
        self.carried: Any = carried.carried if isinstance(carried, Rows) else carried
        self.steps: tuple[Callable[[Tensor], Tensor], ...] = (*before, *steps)
        self.flat = self.carried.flat

    def to(self, *args: Any, **options: Any) -> "Rows":
        """The same, on another device."""
        return Rows(self.carried.to(*args, **options), self.steps)

    def code(self) -> Code:
        """The code of these rows."""
        whole = unseal(self.carried)
        if not isinstance(whole, Rotary):
            raise TypeError(f"this model reorders its tokens: it takes an encoding that rotates, got {type(whole).__name__}")
        count = count_tokens(whole)
        rows = torch.arange(count, device=whole._table("q").device).view((-1, 1) if self.flat else (1, -1, 1))
        for step in self.steps:
            rows = step(rows)
        return select_tokens(whole, rows.flatten())


class SealedTable(TableLike, Sealed):
    """A sealed code that hosts may treat as a table."""

    def __init__(self, code: Code, *, flat: bool = False) -> None:
        super().__init__(code)
        self.flat = flat

    def to(self, device: Any = None, **options: Any) -> "SealedTable":
        return SealedTable(super().to(device).code, flat=self.flat)


def count_tokens(code: Rotary) -> int:
    """How many tokens a code has positions for."""
    return int(code._table("q").shape[-1 - code.trailing])


def select_tokens(code: Rotary, index: Tensor | slice) -> Rotary:
    """The code of some of its tokens."""
    changes: dict[str, Any] = {}
    for name, table in code.tables.items():
        axis = table.ndim - 1 - (1 if name.endswith("gain") else code.trailing)
        changes[name] = table[(slice(None),) * axis + (index,)]
    return replace(code, **changes)

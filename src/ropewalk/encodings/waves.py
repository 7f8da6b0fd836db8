from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self, Unpack

import torch
from torch import Tensor

from ropewalk import positions, spectra
from ropewalk.arguments import describe, flag, number, positive_number
from ropewalk.encoding import Traits, shares
from ropewalk.rotary import GridShape, GridWaves, along_axes

SHORT = 16
"""Numbers of a table up to which `repr` shows them."""


class Waves(GridWaves):
    """RoPE by an explicit table of wave vectors, one for each pair: for all heads, per head, or per layer and head.

        angle of pair t at p = w_t · p = w_t1 p_1 + w_t2 p_2 + …,    w_t = table[t]

    Every rotation of pairs by positions is one of these: RoPE of any width, axial and mixed RoPE, M-RoPE, frequencies taken
    from a checkpoint. Pairs with a wave vector of zeros are not rotated, and channels beyond the pairs are left alone.

    Beware: the table is in radians per unit of position, so it is valid only with its coordinates and its channel layout:
    set `coordinates` and `interleaved` as in the model that it comes from.

    table    Wave vectors as nested numbers or a tensor: (P, A) for P pairs, at most half of head_dim, and A axes; (h, P, A)
             per head, with grouped queries per key head; (L, h, P, A) per layer and head, h or 1, with layers=L. `axes` is
             taken from it. Without a table, that of axial RoPE with base 10,000.
    learned  The table is the initial value of parameters, one set per head (or `shared`) and layer.
    factor   Multiplies the rotated channels of q and k, and so their part of the logits by its square, as the attention
             scaling of YaRN does. It is not the length factor of an extension rule.
    """

    name = "waves"
    paper = "arXiv:2403.13298"
    default_axes = 2
    far = True

    wave: Tensor

    def __init__(
        self,
        *,
        table: Sequence[Any] | Tensor | None = None,
        learned: bool = False,
        shared: bool = False,
        factor: float = 1.0,
        **shape: Unpack[GridShape],
    ) -> None:
        given = None if table is None else _read_table(table)
        if given is not None:
            axes = shape.get("axes")
            shape["axes"] = given.shape[-1] if axes is None else axes
        super().__init__(**shape)
        self._given = given
        self.learned, self.shared = flag("learned", learned), shares(shared, learned)
        self.factor = positive_number("factor", factor)
        self._check_table()
        self.build(learned=self.learned)

    @property
    def table(self) -> list[Any] | None:
        """The table that it was made with, as nested lists of numbers."""
        return None if self._given is None else self._given.tolist()

    def _check_table(self) -> None:
        if self._given is None:
            if self.head_dim < 2 * self.axes:
                least = f"head_dim of {2 * self.axes} or more"
                raise ValueError(f"waves without a table needs 2 channels an axis, {least}, got {self.head_dim}")
            return
        *lead, pairs, axes = shape = tuple(self._given.shape)
        if axes != self.axes:
            raise ValueError(f"table must have a number for each of axes={self.axes} in the last dimension, got {shape}")
        if 2 * pairs > self.head_dim:
            raise ValueError(f"table must have at most head_dim / 2 = {self.head_dim // 2} pairs, got {shape}")
        if lead and lead[-1] not in (1, self.own_heads):
            kind = "heads" if self.kv_heads is None else "kv_heads"
            raise ValueError(f"a table by head must be for 1 or {kind}={self.own_heads}, (h, P, A), got {shape}")
        if len(lead) == 2 and lead[0] != self.layers:
            raise ValueError(f"a table (L, h, P, A) needs layers=L, got {shape} and layers={self.layers}")
        if self.shared and lead and lead[-1] > 1:
            raise ValueError(f"shared=True needs a table for all heads, (P, A) or (L, 1, P, A), got {shape}")

    def initial(self) -> dict[str, Tensor]:
        if self._given is None:
            frequency = spectra.geometric(self.head_dim // (2 * self.axes), 1e4)
            table = along_axes(frequency.expand(1, self.axes, -1))
        else:
            table = self._given if self._given.ndim > 2 else self._given.unsqueeze(0)
        lead = self.lead(shared=self.shared) if self.learned else table.shape[:-2]
        return {"wave": table.expand(*lead, *table.shape[-2:]).clone()}

    def vectors(self) -> Tensor:
        return self.wave

    @property
    def pinned(self) -> tuple[str, ...]:
        lead = () if self._given is None else self._given.shape[:-2]
        return (*(["layers"] if len(lead) == 2 else []), *(["heads"] if lead and lead[-1] > 1 else []))

    @property
    def traits(self) -> Traits:
        traits = super().traits
        mixed = self._given is not None and bool((self._given != 0).sum(-1).gt(1).any())
        oblique = self.axes > 1 if self.learned else mixed
        return replace(traits, oblique=oblique, rounding=max(traits.rounding, self.axes / 2))

    def shown(self, name: str) -> str:
        """A long table would fill the screen: `config()` has it."""
        return "..." if name == "table" and self._given is not None and self._given.numel() > SHORT else super().shown(name)

    def summary(self) -> str:
        given = "" if self._given is None else f", table {tuple(self._given.shape)}"
        return super().summary() + given

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=12, heads=2, table=[[1.0, 0.0], [0.5, -0.5], [0.0, 0.0], [0.0, 0.3], [0.2, 0.1]])
        yield cls(head_dim=12, heads=4, kv_heads=2, layers=2, axes=3, learned=True, interleaved=False, sections=(4, 2))
        by_head = [[[0.9, 0.1], [0.3, 0.0]], [[-0.2, 0.7], [0.0, 0.4]]]
        yield cls(head_dim=7, heads=2, table=by_head, factor=1.25, size=(3, 5), extension="yarn", length=(6, 9))
        yield cls(head_dim=6, heads=2, layers=2, table=torch.tensor([[[[1.0], [0.1]]], [[[2.0], [0.2]]]]), scale=0.5)


def _read_table(table: Sequence[Any] | Tensor) -> Tensor:
    """The table as float64 on the CPU, a copy."""
    if isinstance(table, Tensor):
        if table.is_meta:
            raise ValueError(f"table must have values: one on the meta device has none, got {describe(table)}")
        if table.is_complex() or table.dtype is torch.bool:
            raise ValueError(f"table must be of real numbers, got {describe(table)}")
        found = table.detach().to("cpu", torch.float64, copy=True)
        if positions.readable(found) and not found.isfinite().all():
            raise ValueError(f"table must be of finite numbers, got {int((~found.isfinite()).sum())} that are not")
    else:
        _check_nested("table", table, _measure(table))
        found = torch.tensor(table, dtype=torch.float64, device="cpu")
    if found.ndim not in (2, 3, 4) or 0 in found.shape:
        wanted = "(P, A), (h, P, A) by head or (L, h, P, A) by layer and head"
        raise ValueError(f"table must be wave vectors {wanted}, none of them 0, got {tuple(found.shape)}")
    return found


def _measure(table: Any) -> tuple[int, ...]:
    """The shape of nested lists, by the first entry of each."""
    shape: list[int] = []
    while isinstance(table, list | tuple) and len(shape) < 5:
        shape.append(len(table))
        table = table[0] if len(table) else None
    return tuple(shape)


def _check_nested(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Refuse nested lists that have not this shape, and what are no finite numbers in them."""
    if not shape and name != "table":
        number(name, value)
    elif not isinstance(value, list | tuple):
        wanted = "nested lists of numbers or a tensor" if name == "table" else f"a list of {shape[0]}, as its neighbours are"
        raise ValueError(f"{name} must be {wanted}, got {describe(value)}")
    elif len(value) != shape[0]:
        raise ValueError(f"{name} must have {shape[0]} entries, as its neighbours have, got {len(value)}")
    else:
        for i, each in enumerate(value):
            _check_nested(f"{name}[{i}]", each, shape[1:])

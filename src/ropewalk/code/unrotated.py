"""Tokens without a position among those that have one: in front, behind, or wherever a mask says.

Tokens in front cost no row of a table: kernels skip them. Tokens behind get rows, and masked tokens keep theirs, which say
that nothing is to be done: an angle of zero, a matrix that is the identity, a vector of zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.arguments import describe, integer

Tokens = int | Sequence[int] | Tensor
"""So many tokens in front; so many in front and behind; or a mask ([B] N) of all tokens, True where there is no position."""


@dataclass(frozen=True, eq=False)
class Unrotated:
    """Such tokens of one side: `front` more before all others, `back` more behind them, or a mask ([B] n) of rows."""

    front: int = 0
    back: int = 0
    mask: Tensor | None = None

    @property
    def changes_rows(self) -> bool:
        """Whether tables are to be changed: they have no rows for tokens in front."""
        return bool(self.back) or self.mask is not None

    def is_like(self, other: "Unrotated") -> bool:
        """Whether the same is done to queries and keys, so that they may go on sharing a table."""
        return self.back == other.back and self.mask is other.mask

    def mark_rows(self, table: Tensor, value: Tensor | float, *, layered: bool, heads: bool, trailing: int) -> Tensor:
        """A table ([L] [B] [h] n *trailing), with L if `layered` and h if `heads`, that has this value for such tokens."""
        value = value if isinstance(value, Tensor) else table.new_tensor(value)
        dims = layered + heads + 1 + trailing
        if self.mask is not None:
            mask = self.mask[(..., *[None] * trailing)]
            if self.mask.ndim == 2:
                table = table.unsqueeze(int(layered)) if table.ndim == dims else table
                mask = mask.unsqueeze(1) if heads else mask
            table = torch.where(mask, value, table)
        if self.back:
            row = table.ndim - trailing - 1
            rows = value.expand(*table.shape[:row], self.back, *table.shape[row + 1 :])
            table = torch.cat([table, rows], dim=row)
        return table

    def mark_mask(self, mask: Tensor | None, rows: int, device: torch.device) -> Tensor:
        """Which of so many rows, and of those behind them, have no position, ([B] n); `mask` says which had none before."""
        found = torch.zeros(rows, dtype=torch.bool, device=device) if mask is None else mask
        found = found if self.mask is None else found | self.mask
        return torch.cat([found, found.new_ones(*found.shape[:-1], self.back)], dim=-1) if self.back else found


def parse_tokens(name: str, tokens: Tokens, prefix: int, rows: int | None, batch: int | None) -> Unrotated:
    """Tokens without a position of the side `name`, whose code has a prefix and so many rows, or None for any number."""
    if isinstance(tokens, Tensor):
        wanted = "N" if rows is None else str(prefix + rows)
        fits = tokens.ndim in (1, 2) and (rows is None or tokens.shape[-1] == prefix + rows)
        fits = fits and (tokens.ndim == 1 or batch is None or len(tokens) in (1, batch))
        if tokens.dtype is not torch.bool or not fits:
            shape = f"({wanted},) or ({'B' if batch is None else batch}, {wanted})"
            raise ValueError(f"{name} must be a boolean mask of all tokens, {shape}, got {describe(tokens)}")
        return Unrotated(mask=tokens[..., prefix:])
    if isinstance(tokens, list | tuple):
        if len(tokens) != 2:
            raise ValueError(f"{name} must be numbers of tokens in front and behind, two, got {describe(tokens)}")
        front, back = (integer(name, count, least=0) for count in tokens)
        return Unrotated(front, back)
    return Unrotated(integer(name, tokens, least=0))

"""Codes that add to the logits: by position alone, and by position and content."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk import ops
from ropewalk.code.base import Code, batch_of, or_any
from ropewalk.code.unrotated import Unrotated
from ropewalk.tree import STATIC


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Added(Code, ABC):
    """Adds to the logits. It leaves q and k alone, but wants them at their places.

    `q_unplaced` and `k_unplaced` say which queries and keys after the prefix have no position.
    """

    placed: ClassVar[str]  # what a side has for each token after the prefix, ([L] [B] n ...)

    q_unplaced: Tensor | None = None  # ([B] n), True where there is no position
    k_unplaced: Tensor | None = None  # ([B] m)

    @property
    def biased(self) -> bool:
        return True

    def qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        self._check(q=q, k=k)
        return q, k

    def q(self, q: Tensor) -> Tensor:
        self._check(q=q)
        return q

    def k(self, k: Tensor) -> Tensor:
        self._check(k=k)
        return k

    @property
    def batched(self) -> bool:
        found = [self._rows(side)[1] for side in ("q", "k")]
        return any(batch is not None for batch in found)

    def _rows(self, side: str) -> tuple[int | None, int | None]:
        placed, mask = getattr(self, f"{side}_{self.placed}"), getattr(self, f"{side}_unplaced")
        batch = batch_of(placed.shape[0 if self.layers is None or self.placed == "positions" else 1 : -2])
        return placed.shape[-2], batch if batch is not None or mask is None else batch_of(mask.shape[:-1])

    def _marked(self, q: Unrotated, k: Unrotated) -> dict[str, Any]:
        """Tokens behind stand where the first one stands: what a rule computes from them is not used, but must be finite."""
        changes: dict[str, Any] = {}
        for side, tokens in (("q", q), ("k", k)):
            placed, mask = getattr(self, f"{side}_{self.placed}"), getattr(self, f"{side}_unplaced")
            if tokens.changes_rows:
                changes[f"{side}_unplaced"] = tokens.mark_mask(mask, placed.shape[-2], placed.device)
            if tokens.back:
                first = placed[..., :1, :] if placed.shape[-2] else placed.new_zeros(*placed.shape[:-2], 1, placed.shape[-1])
                rows = first.expand(*placed.shape[:-2], tokens.back, -1)
                changes[f"{side}_{self.placed}"] = torch.cat([placed, rows], dim=-2)
        return changes

    def _unplaced(self, side: str, tokens: int, device: torch.device) -> Tensor:
        """Which of all tokens of a side have no position, prefix included, ([B] N)."""
        prefix, mask = getattr(self, f"{side}_prefix"), getattr(self, f"{side}_unplaced")
        if mask is None:
            return torch.arange(tokens, device=device) < prefix
        return F.pad(mask, (prefix, 0), value=True)

    @property
    def _all_placed(self) -> bool:
        """Whether nothing but the prefix lacks a position."""
        return self.q_unplaced is None and self.k_unplaced is None

    @abstractmethod
    def _check(self, **xs: Tensor) -> None:
        """Refuse a q or k that does not fit."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Bias(Added):
    """Adds rule(table, head, query, key) to the logits.

    The rule works element by element: it gets the index of a head and the coordinates of a query and of a key, one
    tensor an axis, all broadcastable. So the same rule fills a dense bias and serves flex attention, which never
    builds one; unless it reads the table more than once, which flex attention cannot: then it is not `flexible`.

    Where the query or the key is of the prefix, or has no position elsewhere, `prefix` is added instead: its entry 0 if only
    the query is, 1 if only the key is, 2 if both are; without it, nothing.
    """

    placed = "positions"

    rule: Callable[[Tensor, Tensor, list[Tensor], list[Tensor]], Tensor] = field(metadata=STATIC)
    table: Tensor  # ([L] h ...)
    q_positions: Tensor  # ([B] n A)
    k_positions: Tensor  # ([B] m A)
    prefix: Tensor | None = None  # ([L] h 3)
    flexible: bool = field(default=True, metadata=STATIC)

    def _facts(self) -> dict[str, Any]:
        rule = self.rule if hasattr(self.rule, "__name__") else type(self.rule)
        sizes = self._sizes(self.q_positions.unsqueeze(-3), self.k_positions.unsqueeze(-3), 1)
        heads = self.table.shape[0 if self.layers is None else 1]
        return {"rule": rule.__name__, **sizes, "heads": heads, "axes": self.q_positions.shape[-1]}

    @property
    def sparing(self) -> bool:
        return self.flexible

    @property
    def learning(self) -> bool:
        return self.table.requires_grad and torch.is_grad_enabled()

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        self._check(q=q, k=k)
        head = torch.arange(q.shape[1], device=self.table.device) // (q.shape[1] // self.table.shape[0])
        queries = list(self.q_positions[..., None, :, None, :].unbind(-1))  # ([B] 1 n 1)
        keys = list(self.k_positions[..., None, None, :, :].unbind(-1))  # ([B] 1 1 m)
        bias = self.rule(self.table, head[:, None, None], queries, keys)
        bias = _padded(bias, self.q_prefix, self.k_prefix)
        if self._all_placed and (self.prefix is None or not (self.q_prefix or self.k_prefix)):
            return bias
        query, key = (self._unplaced(side, x.shape[2], bias.device) for side, x in (("q", q), ("k", k)))
        return self._around_prefix(bias, head[:, None, None], query[..., None, :, None], key[..., None, None, :])

    def score_mod(self, q: Tensor, k: Tensor) -> Callable[..., Tensor] | None:
        self._check(q=q, k=k)
        empty = 0 in (self.q_positions.shape[-2], self.k_positions.shape[-2])
        if empty and self.prefix is None:
            return None
        if empty or not self.flexible:
            return _indexed(self.scores(q, k))
        group = q.shape[1] // self.table.shape[0]
        both = (p[0] if p.shape[:-2] == (1,) else p for p in (self.q_positions, self.k_positions))
        # Flex attention takes plain tensors and no index but tensors: one line of coordinates an axis.
        queries, keys = ([line.contiguous() for line in p.unbind(-1)] for p in both)
        masks = [
            None if mask is None else (mask[0] if len(mask) == 1 < mask.ndim else mask).contiguous()
            for mask in (self.q_unplaced, self.k_unplaced)
        ]

        def place(lines: list[Tensor], batch: Tensor, token: Tensor) -> list[Tensor]:
            return [line[batch, token] if line.ndim == 2 else line[token] for line in lines]

        def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            i, j = i - self.q_prefix, j - self.k_prefix
            query, key = place(queries, batch, i.clamp(min=0)), place(keys, batch, j.clamp(min=0))
            bias = self.rule(self.table, head // group, query, key)
            none = [token < 0 for token in (i, j)]
            for side, (mask, token) in enumerate(zip(masks, (i, j), strict=True)):
                if mask is not None:
                    none[side] = none[side] | place([mask], batch, token.clamp(min=0))[0]
            return score + self._around_prefix(bias, head // group, *none).to(score.dtype)

        return modify

    def _around_prefix(self, bias: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """The bias where both query and key have a position, and elsewhere what the prefix gets."""
        if self.prefix is None:
            return torch.where(query | key, torch.zeros_like(bias), bias)
        entry = key.long() + (query & key).long()
        return torch.where(query | key, self.prefix[head, entry], bias)

    def _layered(self) -> dict[str, Tensor]:
        return {"table": self.table} if self.prefix is None else {"table": self.table, "prefix": self.prefix}

    def _check(self, **xs: Tensor) -> None:
        self._check_use(**xs)
        for side, x in xs.items():
            rows, batch = self._rows(side)
            tokens = getattr(self, f"{side}_prefix") + rows
            if x.ndim != 4 or x.shape[2] != tokens or (batch is not None and x.shape[0] != batch):
                raise ValueError(f"{side} must be ({or_any(batch)}, heads, {tokens}, channels), got {tuple(x.shape)}")
        rows = self.table.shape[0]
        if "q" in xs and not self._fits("q", rows, xs["q"].shape[1]):
            raise ValueError(f"q must have {self._wanted('q', rows)}, got {xs['q'].shape[1]}")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ContentBias(Added):
    """Adds the terms of Transformer-XL to the logits: of a query q at angles x and a key k at angles y,

        (u · k + (q + v) · (S sin(x - y) + C cos(x - y))) / √D.

    Tokens of the prefix, and others without a position, get 0.
    """

    placed = "angle"

    u: Tensor  # ([L] h D)
    v: Tensor  # ([L] h D)
    sine: Tensor  # ([L] h D F)
    cosine: Tensor  # ([L] h D F)
    q_angle: Tensor  # ([L] [B] n F)
    k_angle: Tensor  # ([L] [B] m F)

    def _facts(self) -> dict[str, Any]:
        heads, width = self.u.shape[-2:]
        sizes = self._sizes(self.q_angle.unsqueeze(-3), self.k_angle.unsqueeze(-3), 1)
        return {"frequencies": self.q_angle.shape[-1], **sizes, "heads": heads, "head_dim": width}

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        self._check(q=q, k=k)
        if q.shape[0] != k.shape[0]:
            raise ValueError(f"q and k must have one batch, got {tuple(q.shape)} and {tuple(k.shape)}")
        q, k = q[:, :, self.q_prefix :], k[:, :, self.k_prefix :]
        terms = ops.relate(q, k, self.u, self.v, self.sine, self.cosine, self.q_angle, self.k_angle)
        for side, lines in (("q", (..., None, slice(None), None)), ("k", (..., None, None, slice(None)))):
            mask = getattr(self, f"{side}_unplaced")
            terms = terms if mask is None else torch.where(mask[lines], 0.0, terms)
        return _padded(terms * q.shape[-1] ** -0.5, self.q_prefix, self.k_prefix)

    def score_mod(self, q: Tensor, k: Tensor) -> Callable[..., Tensor]:
        return _indexed(self.scores(q, k))

    def _layered(self) -> dict[str, Tensor]:
        return {name: table for name, table in self.tables.items() if table.is_floating_point()}  # masks serve all layers

    def _check(self, **xs: Tensor) -> None:
        self._check_use(**xs)
        rows, width = self.u.shape
        for side, x in xs.items():
            count, batch = self._rows(side)
            tokens = getattr(self, f"{side}_prefix") + count
            right = x.ndim == 4 and x.shape[-2:] == (tokens, width) and self._fits(side, rows, x.shape[1])
            if not (right and (batch is None or x.shape[0] == batch)):
                shape = f"({or_any(batch)}, {self._wanted(side, rows)}, {tokens}, {width})"
                raise ValueError(f"{side} must be {shape}, got {tuple(x.shape)}")


def _padded(bias: Tensor, q_prefix: int, k_prefix: int) -> Tensor:
    """A bias with nothing for tokens of the prefix before it."""
    if 0 in bias.shape[-2:]:  # which some releases of PyTorch do not pad
        return bias.new_zeros(*bias.shape[:-2], q_prefix + bias.shape[-2], k_prefix + bias.shape[-1])
    return F.pad(bias, (k_prefix, 0, q_prefix, 0))


def _indexed(dense: Tensor) -> Callable[..., Tensor]:
    """A dense bias ([B] H N M) as flex attention asks for it."""

    def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + (dense[batch, head, i, j] if dense.ndim == 4 else dense[head, i, j]).to(score.dtype)

    return modify

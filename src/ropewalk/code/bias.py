"""Codes that add to the logits: by position alone, and by position and content."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk import ops
from ropewalk.code.base import Code, batch_of, or_any
from ropewalk.tree import STATIC


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Added(Code, ABC):
    """Adds to the logits. It leaves q and k alone, but wants them at their places."""

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

    @abstractmethod
    def _check(self, **xs: Tensor) -> None:
        """Refuse a q or k that does not fit."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Bias(Added):
    """Adds rule(table, head, query, key) to the logits.

    The rule works element by element: it gets the index of a head and the coordinates of a query and of a key, one
    tensor an axis, all broadcastable. So the same rule fills a dense bias and serves flex attention, which never
    builds one; unless it reads the table more than once, which flex attention cannot: then it is not `flexible`.

    Where the query or the key is of the prefix, `prefix` is added instead: its entry 0 if only the query is, 1 if only the
    key is, 2 if both are; without it, nothing.
    """

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

    @property
    def batched(self) -> bool:
        return any(positions.shape[:-2].numel() > 1 for positions in (self.q_positions, self.k_positions))

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        self._check(q=q, k=k)
        head = torch.arange(q.shape[1], device=self.table.device) // (q.shape[1] // self.table.shape[0])
        queries = list(self.q_positions[..., None, :, None, :].unbind(-1))  # ([B] 1 n 1)
        keys = list(self.k_positions[..., None, None, :, :].unbind(-1))  # ([B] 1 1 m)
        bias = self.rule(self.table, head[:, None, None], queries, keys)
        bias = _padded(bias, self.q_prefix, self.k_prefix)
        if self.prefix is None or not (self.q_prefix or self.k_prefix):
            return bias
        i, j = (torch.arange(x.shape[2], device=self.table.device) for x in (q, k))
        return self._around_prefix(bias, head[:, None, None], i[:, None] < self.q_prefix, j < self.k_prefix)

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

        def place(lines: list[Tensor], batch: Tensor, token: Tensor) -> list[Tensor]:
            return [line[batch, token] if line.ndim == 2 else line[token] for line in lines]

        def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            i, j = i - self.q_prefix, j - self.k_prefix
            query, key = place(queries, batch, i.clamp(min=0)), place(keys, batch, j.clamp(min=0))
            bias = self.rule(self.table, head // group, query, key)
            return score + self._around_prefix(bias, head // group, i < 0, j < 0).to(score.dtype)

        return modify

    def _around_prefix(self, bias: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """The bias where neither query nor key is of the prefix, and elsewhere what the prefix gets."""
        if self.prefix is None:
            return torch.where(query | key, torch.zeros_like(bias), bias)
        entry = key.long() + (query & key).long()
        return torch.where(query | key, self.prefix[head, entry], bias)

    def _layered(self) -> dict[str, Tensor]:
        return {"table": self.table} if self.prefix is None else {"table": self.table, "prefix": self.prefix}

    def _check(self, **xs: Tensor) -> None:
        self._check_use(**xs)
        for side, x in xs.items():
            positions = getattr(self, f"{side}_positions")
            batch, tokens = batch_of(positions.shape[:-2]), getattr(self, f"{side}_prefix") + positions.shape[-2]
            if x.ndim != 4 or x.shape[2] != tokens or (batch is not None and x.shape[0] != batch):
                raise ValueError(f"{side} must be ({or_any(batch)}, heads, {tokens}, channels), got {tuple(x.shape)}")
        rows = self.table.shape[0]
        if "q" in xs and not self._fits("q", rows, xs["q"].shape[1]):
            raise ValueError(f"q must have {self._wanted('q', rows)}, got {xs['q'].shape[1]}")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ContentBias(Added):
    """Adds the terms of Transformer-XL to the logits: of a query q at angles x and a key k at angles y,

        (u · k + (q + v) · (S sin(x - y) + C cos(x - y))) / √D.

    Tokens of the prefix get 0.
    """

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
        return _padded(terms * q.shape[-1] ** -0.5, self.q_prefix, self.k_prefix)

    def score_mod(self, q: Tensor, k: Tensor) -> Callable[..., Tensor]:
        return _indexed(self.scores(q, k))

    def _check(self, **xs: Tensor) -> None:
        self._check_use(**xs)
        rows, width = self.u.shape
        for side, x in xs.items():
            angle, prefix = getattr(self, f"{side}_angle"), getattr(self, f"{side}_prefix")
            batch, tokens = batch_of(angle.shape[:-2]), prefix + angle.shape[-2]
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

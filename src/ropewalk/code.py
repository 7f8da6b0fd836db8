"""Codes: what happens to a transformer because of the positions of its tokens.

Letters in the shape comments:

    B batch   H query heads   h heads of a table, dividing H   N queries   M keys   n tokens without the prefix
    D channels a head   C width of the model   P pairs   T triplets   G blocks   b block size   A axes   L layers

A code is immutable and knows three moments of a forward pass: `tokens(x)` once, before the first block; `qk(q, k)` in
every block; `scores(q, k)` in every block, with q and k as `qk` returned them. Each does nothing unless the code says so.
Of an encoding made with `layers=`, the code carries all layers and `code[i]` is the code of layer i.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk import ops, tree
from ropewalk.tree import STATIC


@dataclass(frozen=True, eq=False, kw_only=True)
class Code:
    """Does nothing: the code of a model without positions, and the base of all others.

    Every kind of code is a pytree whose leaves are its tensors. `q_heads` and `k_heads`, where given, are the numbers of
    heads that tables with rows for several heads insist on.
    """

    layers: int | None = field(default=None, metadata=STATIC)
    q_prefix: int = field(default=0, metadata=STATIC)
    k_prefix: int = field(default=0, metadata=STATIC)
    q_heads: int | None = field(default=None, metadata=STATIC)
    k_heads: int | None = field(default=None, metadata=STATIC)

    def __init_subclass__(cls) -> None:
        tree.register(cls)

    def tokens(self, x: Tensor) -> Tensor:
        """Act on the tokens (B N C) before the first block."""
        return x

    def qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Act on queries (B H N D) and keys (B h M D)."""
        return self.q(q), self.k(k)

    def q(self, q: Tensor) -> Tensor:
        """Act on queries (B H N D) alone."""
        self._one_layer()
        return q

    def k(self, k: Tensor) -> Tensor:
        """Act on keys (B h M D) alone."""
        self._one_layer()
        return k

    def scores(self, q: Tensor, k: Tensor) -> Tensor | None:
        """What is added to the logits after their scaling, (B H N M) or broadcastable to it; None adds nothing."""
        self._one_layer()
        return None

    def score_mod(self, heads: int) -> Callable[..., Tensor] | None:
        """The same as `scores`, one element at a time, for flex attention with `heads` query heads; None adds nothing."""
        self._one_layer()
        return None

    def prefixed(self, q: int = 0, k: int = 0) -> Self:
        """The code for q and k leading tokens more that have no position: class tokens, registers."""
        if q < 0 or k < 0:
            raise ValueError(f"a prefix has at least 0 tokens, got q={q}, k={k}")
        return replace(self, q_prefix=self.q_prefix + q, k_prefix=self.k_prefix + k)

    def __getitem__(self, layer: int) -> "Code":
        """The code of one layer. Its `tokens` is the identity, so that no offset is added twice."""
        layer = self._layer_index(layer)
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        changes: dict[str, Any] = {name: value[layer] for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, layers=None, **changes)

    def _layer_index(self, layer: int) -> int:
        if self.layers is None:
            raise TypeError("this code has no layers to choose from: its encoding was made without layers=")
        if not -self.layers <= layer < self.layers:
            raise IndexError(f"layer {layer} of a code of {self.layers} layers")
        return layer % self.layers

    def _fits(self, side: str, rows: int, heads: int) -> bool:
        """Whether a table with rows for so many heads serves `heads` heads; keys may come repeated for each query."""
        counts = (self.q_heads,) if side == "q" else (self.k_heads, self.q_heads)
        return heads in counts if rows > 1 and counts[0] is not None else heads % rows == 0

    def _wanted(self, side: str, rows: int) -> str:
        count = self.q_heads if side == "q" else self.k_heads
        return "heads" if rows == 1 else f"a multiple of {rows} heads" if count is None else f"{count} heads"

    def _one_layer(self) -> None:
        if self.layers is not None:
            raise TypeError(f"this code holds {self.layers} layers: use code[i] in block i")


@dataclass(frozen=True, eq=False, kw_only=True)
class Offset(Code):
    """Adds a vector to every token, once."""

    offset: Tensor  # ([B] n C)

    def tokens(self, x: Tensor) -> Tensor:
        batch = _batch(self.offset.shape[:-2])
        wanted = (self.q_prefix + self.offset.shape[-2], self.offset.shape[-1])
        if x.ndim != 3 or x.shape[1:] != wanted or (batch is not None and x.shape[0] != batch):
            raise ValueError(f"tokens must be ({_any(batch)}, {wanted[0]}, {wanted[1]}), got {tuple(x.shape)}")
        return (x + F.pad(self.offset, (0, 0, self.q_prefix, 0))).to(x.dtype)

    def __getitem__(self, layer: int) -> Code:
        self._layer_index(layer)
        return Code(q_prefix=self.q_prefix, k_prefix=self.k_prefix)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rotary(Code, ABC):
    """Turns q and k by matrices that depend on the position. Without key tables, keys stand where the queries stand."""

    kind: ClassVar[str]
    trailing: ClassVar[int]

    head_dim: int = field(metadata=STATIC)

    @abstractmethod
    def _turn(self, xs: dict[str, Tensor]) -> list[Tensor]:
        """Apply the op to the tensors named "q" and "k"."""

    @abstractmethod
    def _turns(self, side: str) -> Tensor:
        """The matrices of one side, ([L] [B] h n D D), built in the open."""

    def _table(self, side: str) -> Tensor:
        """The angles or matrices of one side, ([L] [B] h n ...) with `trailing` dimensions after n."""
        own = getattr(self, f"{side}_{self.kind}")
        return getattr(self, f"q_{self.kind}") if own is None else own

    def _prefixes(self, xs: dict[str, Tensor]) -> list[int]:
        return [getattr(self, f"{side}_prefix") for side in xs]

    def qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = self._checked(q=q, k=k)
        return q, k

    def q(self, q: Tensor) -> Tensor:
        return self._checked(q=q)[0]

    def k(self, k: Tensor) -> Tensor:
        return self._checked(k=k)[0]

    def _checked(self, **xs: Tensor) -> list[Tensor]:
        self._one_layer()
        for side, x in xs.items():
            *lead, heads, tokens = self._table(side).shape[: -self.trailing]
            batch, tokens = _batch(lead), tokens + getattr(self, f"{side}_prefix")
            right = x.ndim == 4 and x.shape[-2:] == (tokens, self.head_dim)
            right = right and (batch is None or x.shape[0] == batch) and self._fits(side, heads, x.shape[1])
            if not right:
                shape = f"({_any(batch)}, {self._wanted(side, heads)}, {tokens}, {self.head_dim})"
                raise ValueError(f"{side} must be {shape}, got {tuple(x.shape)}")
        return self._turn(xs)

    def matrices(self) -> Tensor:
        """The D x D matrix that meets each query, ([L] [B] h N D D), prefix included. Slow and obvious: for tests."""
        return self._with_prefix(self._turns("q"), self.q_prefix)

    def key_matrices(self) -> Tensor:
        """The D x D matrix that meets each key, ([L] [B] h M D D), prefix included."""
        return self._with_prefix(self._turns("k"), self.k_prefix)

    def _with_prefix(self, turns: Tensor, prefix: int) -> Tensor:
        identity = torch.eye(self.head_dim, dtype=turns.dtype, device=turns.device)
        still = identity.expand(*turns.shape[:-3], prefix, -1, -1)
        return torch.cat([still, turns], dim=-3)

    def _still(self, like: Tensor, lead: int) -> Tensor:
        """Identities to write rotations into, one for each entry of the first `lead` dimensions of `like`."""
        identity = torch.eye(self.head_dim, dtype=like.dtype, device=like.device)
        return identity.repeat(*like.shape[:lead], 1, 1)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rotation(Rotary):
    """Turns pairs of channels by an angle; a gain stretches them. Pair i is channels (2i, 2i + 1) or (i, i + P)."""

    kind = "angle"
    trailing = 1

    q_angle: Tensor  # ([L] [B] h n P)
    k_angle: Tensor | None = None
    q_gain: Tensor | None = None
    k_gain: Tensor | None = None
    interleaved: bool = field(metadata=STATIC)

    def _turn(self, xs: dict[str, Tensor]) -> list[Tensor]:
        angles = [self._table(side) for side in xs]
        gains = [getattr(self, f"{side}_gain") for side in xs]
        prefixes = self._prefixes(xs)
        return ops.rotate(list(xs.values()), angles, gains, interleaved=self.interleaved, prefixes=prefixes)

    def _turns(self, side: str) -> Tensor:
        angle, gain = self._table(side), getattr(self, f"{side}_gain")
        cos, sin = angle.cos(), angle.sin()
        if gain is not None:
            cos, sin = cos * gain, sin * gain
        turns, pairs = self._still(angle, angle.ndim - 1), angle.shape[-1]
        for pair in range(pairs):
            i, j = (2 * pair, 2 * pair + 1) if self.interleaved else (pair, pair + pairs)
            turns[..., i, i] = turns[..., j, j] = cos[..., pair]
            turns[..., i, j], turns[..., j, i] = -sin[..., pair], sin[..., pair]
        return turns


@dataclass(frozen=True, eq=False, kw_only=True)
class Sphere(Rotary):
    """Turns triplets of channels by one angle an axis, axis 0 first: on a sphere, the order matters."""

    kind = "angle"
    trailing = 2

    q_angle: Tensor  # ([L] [B] h n T A)
    k_angle: Tensor | None = None

    def _turn(self, xs: dict[str, Tensor]) -> list[Tensor]:
        angles = [self._table(side) for side in xs]
        return ops.sphere(list(xs.values()), angles, prefixes=self._prefixes(xs))

    def _turns(self, side: str) -> Tensor:
        angle = self._table(side)
        total = self._still(angle, angle.ndim - 2)
        for axis, (first, second) in enumerate(((0, 2), (1, 2), (0, 1))[: angle.shape[-1]]):
            step = self._still(angle, angle.ndim - 2)
            for triplet in range(angle.shape[-2]):
                cos, sin = angle[..., triplet, axis].cos(), angle[..., triplet, axis].sin()
                i, j = 3 * triplet + first, 3 * triplet + second
                step[..., i, i] = step[..., j, j] = cos
                step[..., i, j], step[..., j, i] = -sin, sin
            total = step @ total
        return total


@dataclass(frozen=True, eq=False, kw_only=True)
class Turn(Rotary):
    """Turns blocks of b channels by a rotation matrix."""

    kind = "matrix"
    trailing = 3

    q_matrix: Tensor  # ([L] [B] h n G b b)
    k_matrix: Tensor | None = None

    def _turn(self, xs: dict[str, Tensor]) -> list[Tensor]:
        matrices = [self._table(side) for side in xs]
        return ops.turn(list(xs.values()), matrices, prefixes=self._prefixes(xs))

    def _turns(self, side: str) -> Tensor:
        matrix = self._table(side)
        turns, size = self._still(matrix, matrix.ndim - 3), matrix.shape[-1]
        for block in range(matrix.shape[-3]):
            channels = slice(block * size, (block + 1) * size)
            turns[..., channels, channels] = matrix[..., block, :, :]
        return turns


@dataclass(frozen=True, eq=False, kw_only=True)
class Bias(Code):
    """Adds rule(table, head, query, key) to the logits.

    The rule works element by element: it gets the index of a head and the coordinates of a query and of a key, one
    tensor an axis, all broadcastable. So the same rule fills a dense bias and serves flex attention, which never
    builds one. Tokens of the prefix get 0.
    """

    rule: Callable[[Tensor, Tensor, list[Tensor], list[Tensor]], Tensor] = field(metadata=STATIC)
    table: Tensor  # ([L] h ...)
    q_positions: Tensor  # ([B] n A)
    k_positions: Tensor  # ([B] m A)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        self._one_layer()
        self._check(q.shape, k.shape)
        rows = torch.arange(q.shape[1], device=self.table.device) // (q.shape[1] // self.table.shape[0])
        queries = list(self.q_positions[..., None, :, None, :].unbind(-1))  # ([B] 1 n 1)
        keys = list(self.k_positions[..., None, None, :, :].unbind(-1))  # ([B] 1 1 m)
        bias = self.rule(self.table, rows[:, None, None], queries, keys)
        return F.pad(bias, (self.k_prefix, 0, self.q_prefix, 0))

    def qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        self._one_layer()
        self._check(q.shape, k.shape)
        return q, k

    def score_mod(self, heads: int) -> Callable[..., Tensor] | None:
        self._one_layer()
        if 0 in (self.q_positions.shape[-2], self.k_positions.shape[-2]):
            return None  # nothing but prefix
        group = heads // self.table.shape[0]
        both = (p[0] if p.shape[:-2] == (1,) else p for p in (self.q_positions, self.k_positions))
        # Flex attention takes plain tensors and no index but tensors: one line of coordinates an axis.
        queries, keys = ([line.contiguous() for line in p.unbind(-1)] for p in both)

        def place(lines: list[Tensor], batch: Tensor, token: Tensor) -> list[Tensor]:
            return [line[batch, token] if line.ndim == 2 else line[token] for line in lines]

        def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            i, j = i - self.q_prefix, j - self.k_prefix
            query, key = place(queries, batch, i.clamp(min=0)), place(keys, batch, j.clamp(min=0))
            bias = self.rule(self.table, head // group, query, key)
            return score + torch.where((i >= 0) & (j >= 0), bias, torch.zeros_like(bias)).to(score.dtype)

        return modify

    def __getitem__(self, layer: int) -> Code:
        return replace(self, layers=None, table=self.table[self._layer_index(layer)])

    def _check(self, q: torch.Size, k: torch.Size) -> None:
        for name, shape, positions in (("q", q, self.q_positions), ("k", k, self.k_positions)):
            batch, tokens = _batch(positions.shape[:-2]), getattr(self, f"{name}_prefix") + positions.shape[-2]
            if len(shape) != 4 or shape[2] != tokens or (batch is not None and shape[0] != batch):
                raise ValueError(f"{name} must be ({_any(batch)}, heads, {tokens}, channels), got {tuple(shape)}")
        if not self._fits("q", self.table.shape[0], q[1]):
            raise ValueError(f"q must have {self._wanted('q', self.table.shape[0])}, got {q[1]}")


def _batch(lead: Sequence[int]) -> int | None:
    """The batch that a table with these leading dimensions insists on, if any."""
    return lead[0] if len(lead) and lead[0] != 1 else None


def _any(batch: int | None) -> int | str:
    return "B" if batch is None else batch


tree.register(Code)

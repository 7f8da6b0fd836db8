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
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from ropewalk import ops

STATIC = frozenset({"layers", "q_prefix", "k_prefix", "head_dim", "interleaved", "rule"})


@dataclass(frozen=True, eq=False, kw_only=True)
class Code:
    """Does nothing: the code of a model without positions, and the base of all others."""

    layers: int | None = None
    q_prefix: int = 0
    k_prefix: int = 0

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
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changes: dict[str, Any] = {name: value[layer] for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, layers=None, **changes)

    def _layer_index(self, layer: int) -> int:
        if self.layers is None:
            raise TypeError("this code has no layers to choose from: its encoding was made without layers=")
        if not -self.layers <= layer < self.layers:
            raise IndexError(f"layer {layer} of a code of {self.layers} layers")
        return layer % self.layers

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

    head_dim: int

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
            right = x.ndim == 4 and x.shape[-2:] == (tokens, self.head_dim) and not x.shape[1] % heads
            if not right or (batch is not None and x.shape[0] != batch):
                shape = f"({_any(batch)}, heads, {tokens}, {self.head_dim}) with heads a multiple of {heads}"
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
    interleaved: bool

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

    rule: Callable[[Tensor, Tensor, list[Tensor], list[Tensor]], Tensor]
    table: Tensor  # ([L] h ...)
    q_positions: Tensor  # ([B] n A)
    k_positions: Tensor  # ([B] m A)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        self._one_layer()
        self._check(q.shape, k.shape)
        heads = torch.arange(self.table.shape[0], device=self.table.device)[:, None, None]
        queries = list(self.q_positions[..., None, :, None, :].unbind(-1))  # ([B] 1 n 1)
        keys = list(self.k_positions[..., None, None, :, :].unbind(-1))  # ([B] 1 1 m)
        bias = self.rule(self.table, heads, queries, keys)
        bias = bias.repeat_interleave(q.shape[1] // bias.shape[-3], dim=-3)
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
        queries, keys = (p[0] if p.shape[:-2] == (1,) else p for p in (self.q_positions, self.k_positions))
        axes = tuple(range(self.q_positions.shape[-1]))  # a range would be traced as a number that changes

        def place(positions: Tensor, batch: Tensor, token: Tensor) -> list[Tensor]:
            return [positions[batch, token, axis] if positions.ndim == 3 else positions[token, axis] for axis in axes]

        def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            i, j = i - self.q_prefix, j - self.k_prefix
            query, key = place(queries, batch, i.clamp(min=0)), place(keys, batch, j.clamp(min=0))
            bias = self.rule(self.table, head // group, query, key)
            return score + torch.where((i >= 0) & (j >= 0), bias, torch.zeros_like(bias)).to(score.dtype)

        return modify

    def __getitem__(self, layer: int) -> Code:
        return replace(self, layers=None, table=self.table[self._layer_index(layer)])

    def _check(self, q: torch.Size, k: torch.Size) -> None:
        counts = (self.q_prefix + self.q_positions.shape[-2], self.k_prefix + self.k_positions.shape[-2])
        if (q[-2], k[-2]) != counts:
            raise ValueError(f"q and k must have {counts[0]} and {counts[1]} tokens, got {q[-2]} and {k[-2]}")
        for name, positions in (("q", self.q_positions), ("k", self.k_positions)):
            batch = _batch(positions.shape[:-2])
            if batch is not None and q[0] != batch:
                raise ValueError(f"{name} has positions for a batch of {batch}, got a batch of {q[0]}")
        if q[-3] % self.table.shape[0]:
            raise ValueError(f"q must have a multiple of {self.table.shape[0]} heads, got {q[-3]}")


def _batch(lead: Sequence[int]) -> int | None:
    """The batch that a table with these leading dimensions insists on, if any."""
    return lead[0] if len(lead) and lead[0] != 1 else None


def _any(batch: int | None) -> int | str:
    return "B" if batch is None else batch


def _register(kind: type[Code]) -> None:
    """Make a code a pytree: its tensors are leaves, everything else is structure."""
    leaves = [field.name for field in fields(kind) if field.name not in STATIC]
    static = [field.name for field in fields(kind) if field.name in STATIC]

    def flatten(code: Code) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(code, name) for name in leaves], tuple(getattr(code, name) for name in static)

    def unflatten(values: Any, context: tuple[Any, ...]) -> Code:
        return kind(**dict(zip(leaves, values, strict=True)), **dict(zip(static, context, strict=True)))

    pytree.register_pytree_node(kind, flatten, unflatten, serialized_type_name=f"ropewalk.{kind.__name__}")


for _kind in (Code, Offset, Rotation, Sphere, Turn, Bias):
    _register(_kind)

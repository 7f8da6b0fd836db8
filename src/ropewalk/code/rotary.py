"""Codes that turn q and k by matrices that depend on the position."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ropewalk import ops
from ropewalk.code.base import Code, batch_of, kv_heads, or_any
from ropewalk.code.unrotated import Unrotated
from ropewalk.ops.layout import describe_layout, pair_channels
from ropewalk.tree import STATIC


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Rotary(Code, ABC):
    """Turns q and k by matrices that depend on the position. Without key tables, keys stand where the queries stand."""

    kind: ClassVar[str]
    trailing: ClassVar[int]

    head_dim: int = field(metadata=STATIC)

    @property
    def rotary(self) -> bool:
        return True

    @abstractmethod
    def _turn(self, xs: dict[str, Tensor], *, in_place: bool = False) -> list[Tensor]:
        """Apply the op to the tensors named "q" and "k"."""

    @abstractmethod
    def _turn_qkv(self, x: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """Apply the op to q and k of a projection."""

    @abstractmethod
    def _turns(self, side: str) -> Tensor:
        """The matrices of one side, ([L] [B] h n D D), built in the open."""

    def _table(self, side: str) -> Tensor:
        """The angles or matrices of one side, ([L] [B] h n ...) with `trailing` dimensions after n."""
        own = getattr(self, f"{side}_{self.kind}")
        return getattr(self, f"q_{self.kind}") if own is None else own

    def _facts(self) -> dict[str, Any]:
        q, k = getattr(self, f"q_{self.kind}"), getattr(self, f"k_{self.kind}")
        return self._sizes(q, k, self.trailing)

    def _rows(self, side: str) -> tuple[int | None, int | None]:
        table = self._table(side)
        return table.shape[-1 - self.trailing], batch_of(self._lead(table))

    def _lead(self, table: Tensor) -> Sequence[int]:
        """The batch of a table ([L] [B] h n ...), if it has one."""
        return table.shape[0 if self.layers is None else 1 : -2 - self.trailing]

    @property
    def _still_row(self) -> Tensor | float:
        """What a table has for a token that is not turned."""
        return 0.0

    def _marked(self, q: Unrotated, k: Unrotated) -> dict[str, Any]:
        return self._marked_tables(self.kind, q, k, self._still_row, shared=True)

    def _marked_tables(
        self, name: str, q: Unrotated, k: Unrotated, value: Tensor | float, *, shared: bool
    ) -> dict[str, Any]:
        """Tables of both sides with this value for such tokens; one for both stays one if the same is done to them.

        `shared`: keys without a table have that of queries.
        """
        q_table, k_table = getattr(self, f"q_{name}"), getattr(self, f"k_{name}")
        alike = q.is_like(k) and (k_table is q_table or (k_table is None and shared))
        layout: dict[str, Any] = {"layered": self.layers is not None, "heads": True, "trailing": self.trailing}
        marked = None if q_table is None else q.mark_rows(q_table, value, **layout)
        if alike:
            return {f"q_{name}": marked, f"k_{name}": None if k_table is None else marked}
        k_table = q_table if k_table is None and shared else k_table
        return {f"q_{name}": marked, f"k_{name}": None if k_table is None else k.mark_rows(k_table, value, **layout)}

    def _prefixes(self, xs: dict[str, Tensor]) -> list[int]:
        return [getattr(self, f"{side}_prefix") for side in xs]

    def qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = self._checked(q=q, k=k)
        return q, k

    def qk_(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        self._check_use(q=q, k=k)
        self._check_shapes(q=q.shape, k=k.shape)
        self._turn({"q": q, "k": k}, in_place=True)
        return q, k

    def qkv(self, x: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        rest = kv_heads(x, heads)
        batch, tokens, _, depth = x.shape
        self._check_use(projection=x)
        self._check_shapes(q=(batch, heads, tokens, depth), k=(batch, rest, tokens, depth))
        return self._turn_qkv(x, heads)

    def q(self, q: Tensor) -> Tensor:
        return self._checked(q=q)[0]

    def k(self, k: Tensor) -> Tensor:
        return self._checked(k=k)[0]

    def _checked(self, **xs: Tensor) -> list[Tensor]:
        self._check_use(**xs)
        self._check_shapes(**{side: x.shape for side, x in xs.items()})
        return self._turn(xs)

    def _check_shapes(self, **shapes: Sequence[int]) -> None:
        for side, shape in shapes.items():
            *lead, heads, tokens = self._table(side).shape[: -self.trailing]
            batch, tokens = batch_of(lead), tokens + (self.q_prefix if side == "q" else self.k_prefix)
            right = len(shape) == 4 and shape[2] == tokens and shape[3] == self.head_dim
            if not (right and (batch is None or shape[0] == batch) and self._fits(side, heads, shape[1])):
                wanted = f"({or_any(batch)}, {self._wanted(side, heads)}, {tokens}, {self.head_dim})"
                raise ValueError(f"{side} must be {wanted}, got {tuple(shape)}")

    def matrices(self) -> Tensor:
        """The D x D matrix that meets each query, ([L] [B] h N D D), prefix included. Slow and obvious: for tests."""
        self._check_precision()
        return self._with_prefix(self._turns("q"), self.q_prefix)

    def key_matrices(self) -> Tensor:
        """The D x D matrix that meets each key, ([L] [B] h M D D), prefix included."""
        self._check_precision()
        return self._with_prefix(self._turns("k"), self.k_prefix)

    def _with_prefix(self, turns: Tensor, prefix: int) -> Tensor:
        still = self._of_prefix(turns).expand(*turns.shape[:-3], prefix, -1, -1)
        return torch.cat([still, turns], dim=-3)

    def _of_prefix(self, like: Tensor) -> Tensor:
        """The matrix (D D) that meets tokens without a position."""
        return torch.eye(self.head_dim, dtype=like.dtype, device=like.device)

    def _still(self, like: Tensor, lead: int) -> Tensor:
        """Identities to write rotations into, one for each entry of the first `lead` dimensions of `like`."""
        identity = torch.eye(self.head_dim, dtype=like.dtype, device=like.device)
        return identity.repeat(*like.shape[:lead], 1, 1)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Rotation(Rotary):
    """Turns pairs of channels by an angle; a gain stretches them. Pair i is channels (2i, 2i + 1) or (i, i + P).

    `sections` are numbers of pairs that make P: channels are cut into parts of twice so many, each half-split by itself.

    Tokens of the prefix turn by nothing and are stretched by `prefix_gain`: a gain that all positions have in common is
    theirs too, so that all logits are sharpened or none.
    """

    kind = "angle"
    trailing = 1

    q_angle: Tensor  # ([L] [B] h n P)
    k_angle: Tensor | None = None
    q_gain: Tensor | None = None
    k_gain: Tensor | None = None
    prefix_gain: float = field(default=1.0, metadata=STATIC)
    interleaved: bool = field(metadata=STATIC)
    sections: tuple[int, ...] | None = field(default=None, metadata=STATIC)

    def _facts(self) -> dict[str, Any]:
        gain = None if self.q_gain is None and self.k_gain is None else True
        layout = describe_layout(self.interleaved, self.sections)
        return {"pairs": self.q_angle.shape[-1], **super()._facts(), "layout": layout, "gain": gain}

    def stretched(self, factor: float) -> "Rotation":
        """The same with what turns of q, and of k as well, multiplied by a factor: logits get its square."""
        if factor == 1.0:
            return self
        q_gain = _times(self.q_angle, self.q_gain, factor)
        shared = self.k_angle is None and self.q_gain is None and self.k_gain is None
        k_gain = q_gain if shared else _times(self._table("k"), self.k_gain, factor)
        return replace(self, q_gain=q_gain, k_gain=k_gain, prefix_gain=factor * self.prefix_gain)

    def _marked(self, q: Unrotated, k: Unrotated) -> dict[str, Any]:
        gains = self._marked_tables("gain", q, k, self.prefix_gain, shared=False)
        return super()._marked(q, k) | gains

    def _turn(self, xs: dict[str, Tensor], *, in_place: bool = False) -> list[Tensor]:
        given, (angles, gains, prefixes) = list(xs.values()), self._given(xs)
        if not in_place:
            return ops.rotate(given, angles, gains, prefixes=prefixes, **self._layout)
        ops.rotate_(given, angles, gains, prefixes=prefixes, **self._layout)
        return given

    def _turn_qkv(self, x: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        angles, gains, prefixes = self._given(("q", "k"))
        return ops.rotate_qkv(x, heads, angles, gains, prefixes=prefixes, **self._layout)

    @property
    def _layout(self) -> dict[str, Any]:
        return {"interleaved": self.interleaved, "sections": self.sections}

    def _given(self, sides: Iterable[str]) -> tuple[list[Tensor], list[Tensor | None], list[int]]:
        """Angles, gains and prefixes of these sides. A prefix that is stretched is as tokens that turn by nothing."""
        angles = [self._table(side) for side in sides]
        gains = [self.q_gain if side == "q" else self.k_gain for side in sides]
        prefixes = [self.q_prefix if side == "q" else self.k_prefix for side in sides]
        if self.prefix_gain == 1.0 or not any(prefixes):
            return angles, gains, prefixes
        angles = [_after(angle, prefix, 0.0) for angle, prefix in zip(angles, prefixes, strict=True)]
        stretched = [None if g is None else _after(g, n, self.prefix_gain) for g, n in zip(gains, prefixes, strict=True)]
        return angles, stretched, [0] * len(prefixes)

    def _of_prefix(self, like: Tensor) -> Tensor:
        channels = torch.ones(self.head_dim, dtype=like.dtype, device=like.device)
        channels[: 2 * self.q_angle.shape[-1]] = self.prefix_gain
        return torch.diag(channels)

    def _turns(self, side: str) -> Tensor:
        angle, gain = self._table(side), getattr(self, f"{side}_gain")
        cos, sin = angle.cos(), angle.sin()
        if gain is not None:
            cos, sin = cos * gain, sin * gain
        turns = self._still(angle, angle.ndim - 1)
        for pair, (i, j) in enumerate(pair_channels(angle.shape[-1], **self._layout)):
            turns[..., i, i] = turns[..., j, j] = cos[..., pair]
            turns[..., i, j], turns[..., j, i] = -sin[..., pair], sin[..., pair]
        return turns


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Sphere(Rotary):
    """Turns triplets of channels by one angle an axis, axis 0 first: on a sphere, the order matters."""

    kind = "angle"
    trailing = 2

    q_angle: Tensor  # ([L] [B] h n T A)
    k_angle: Tensor | None = None

    def _facts(self) -> dict[str, Any]:
        return {"triplets": self.q_angle.shape[-2], "axes": self.q_angle.shape[-1], **super()._facts()}

    def turn(self) -> "Turn":
        """The same as a turn by matrices, of all layers in one go."""
        self._check_precision()  # or the op would widen what a cast has left
        k_matrix = None if self.k_angle is None else ops.sphere(self.k_angle)
        return Turn(
            layers=self.layers,
            q_prefix=self.q_prefix,
            k_prefix=self.k_prefix,
            q_heads=self.q_heads,
            k_heads=self.k_heads,
            head_dim=self.head_dim,
            q_matrix=ops.sphere(self.q_angle),
            k_matrix=k_matrix,
        )

    def unbind(self) -> tuple[Code, ...]:
        return self.turn().unbind()

    def _turn(self, xs: dict[str, Tensor], *, in_place: bool = False) -> list[Tensor]:
        return self.turn()._turn(xs, in_place=in_place)

    def _turn_qkv(self, x: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.turn()._turn_qkv(x, heads)

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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Turn(Rotary):
    """Turns blocks of b channels by a rotation matrix."""

    kind = "matrix"
    trailing = 3

    q_matrix: Tensor  # ([L] [B] h n G b b)
    k_matrix: Tensor | None = None

    def _facts(self) -> dict[str, Any]:
        return {"blocks": self.q_matrix.shape[-3], "size": self.q_matrix.shape[-1], **super()._facts()}

    @property
    def _still_row(self) -> Tensor:
        return torch.eye(self.q_matrix.shape[-1], dtype=self.q_matrix.dtype, device=self.q_matrix.device)

    def _turn(self, xs: dict[str, Tensor], *, in_place: bool = False) -> list[Tensor]:
        given, matrices, prefixes = list(xs.values()), [self._table(side) for side in xs], self._prefixes(xs)
        if not in_place:
            return ops.turn(given, matrices, prefixes=prefixes)
        ops.turn_(given, matrices, prefixes=prefixes)
        return given

    def _turn_qkv(self, x: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        matrices = [self._table("q"), self._table("k")]
        return ops.turn_qkv(x, heads, matrices, prefixes=[self.q_prefix, self.k_prefix])

    def _turns(self, side: str) -> Tensor:
        matrix = self._table(side)
        turns, size = self._still(matrix, matrix.ndim - 3), matrix.shape[-1]
        for block in range(matrix.shape[-3]):
            channels = slice(block * size, (block + 1) * size)
            turns[..., channels, channels] = matrix[..., block, :, :]
        return turns


def _after(table: Tensor, prefix: int, value: float) -> Tensor:
    """A table ([B] h n P) with so many rows of one value before it."""
    rows = table.new_full((*table.shape[:-2], prefix, table.shape[-1]), value)
    return torch.cat([rows, table], dim=-2)


def _times(angle: Tensor, gain: Tensor | None, factor: float) -> Tensor:
    """A gain, or none, times a factor, in the shape of the angles."""
    return torch.full_like(angle, factor) if gain is None else factor * gain

"""The base of all codes, and the one that adds vectors to the tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from ropewalk import tree
from ropewalk.arguments import floating, integer, positive, tensor
from ropewalk.code.unrotated import Tokens, Unrotated, parse_tokens
from ropewalk.ops.fused import split
from ropewalk.tree import STATIC
from ropewalk.validation import describe_cast

WIDE = (torch.float32, torch.float64)
"""What tables may be in. Narrower ones were exact once: whoever reads them would compute with what a cast has left."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
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

    def __repr__(self) -> str:
        try:
            facts = self._facts()
        except (AttributeError, IndexError, TypeError, ValueError):  # pytrees may hold anything in the place of tensors
            facts = {"leaves": f"[{', '.join(type(leaf).__name__ for leaf in pytree.tree_leaves(self))}]"}
        prefixes = {"q_prefix": self.q_prefix or None, "k_prefix": self.k_prefix or None}
        if self.q_prefix == self.k_prefix:
            prefixes = {"prefix": self.q_prefix or None}
        shown = {**facts, **prefixes, "layers": self.layers}
        words = [f"{name}={value}" for name, value in shown.items() if value is not None]
        return f"{type(self).__name__}({', '.join(words)})"

    def _facts(self) -> dict[str, Any]:
        """What `repr` shows, by name; None is left out. Sizes alone: tensors may be large, on a GPU, or fake."""
        return {}

    def _sizes(self, q: Tensor, k: Tensor | None, trailing: int) -> dict[str, Any]:
        """Heads, positions and batch of tables ([L] [B] h n ...) with `trailing` dimensions after n."""
        *lead, heads, positions = q.shape[: q.ndim - trailing]
        keys = positions if k is None else k.shape[-1 - trailing]
        batch = lead[0 if self.layers is None else 1 :]
        own = {"heads": heads, "positions": positions, "keys": None if keys == positions else keys}
        return own | {"batch": batch[0] if batch else None}

    @property
    def tables(self) -> dict[str, Tensor]:
        """The tensors that it holds, by name; a chain's are those of its codes."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def tokens(self, x: Tensor) -> Tensor:
        """Act on the tokens (B N C) before the first block."""
        return tensor("tokens", x)

    def qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Act on queries (B H N D) and keys (B h M D)."""
        return self.q(q), self.k(k)

    def qk_(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """`qk` in place, for inference; with a kernel, without extra memory."""
        for x, turned in zip((q, k), self.qk(q, k), strict=True):
            if turned.requires_grad and torch.is_grad_enabled():
                raise RuntimeError("q and k cannot be rotated in place where gradients are needed: use torch.no_grad()")
            if turned is not x:
                x.copy_(turned)
        return q, k

    def q(self, q: Tensor) -> Tensor:
        """Act on queries (B H N D) alone."""
        self._check_use(q=q)
        return q

    def k(self, k: Tensor) -> Tensor:
        """Act on keys (B h M D) alone."""
        self._check_use(k=k)
        return k

    def qkv(self, x: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """Act on q (B H N D) and k (B h N D) of one projection x (B N H+h+h D) with H = `heads`; v (B h N D) comes as it is.

        As splitting x and `qk`, in one pass where there is a kernel for it.
        """
        kv_heads(x, heads)  # or an error in words
        q, k, v = split(x, heads)
        return *self.qk(q, k), v

    def scores(self, q: Tensor, k: Tensor) -> Tensor | None:
        """What is added to the logits after their scaling, (B H N M) or broadcastable to it; None adds nothing."""
        self._one_layer()
        tensor("q", q), tensor("k", k)
        return None

    def score_mod(self, q: Tensor, k: Tensor) -> Callable[..., Tensor] | None:
        """The same as `scores`, one element at a time, for flex attention; None adds nothing."""
        self._one_layer()
        return None

    @property
    def rotary(self) -> bool:
        """Whether all that it does is to turn q and k. Such codes have `matrices()` and `key_matrices()`."""
        return False

    @property
    def biased(self) -> bool:
        """Whether it adds to the logits."""
        return False

    @property
    def sparing(self) -> bool:
        """Whether `score_mod` adds to the logits without the dense (B H N M) of `scores`."""
        return False

    @property
    def learning(self) -> bool:
        """Whether a table that is added to the logits wants a gradient."""
        return False

    @property
    def batched(self) -> bool:
        """Whether what is added to the logits differs within a batch."""
        return False

    def prefixed(self, q: int = 0, k: int = 0) -> Self:
        """The code with this many more leading tokens of q and k that have no position: class tokens, registers."""
        return self.with_unrotated(q=integer("q", q, least=0), k=integer("k", k, least=0))

    def with_unrotated(self, *, q: Tokens = 0, k: Tokens = 0) -> Self:
        """The code where some queries and keys have no position: they are not rotated, get nothing added and no bias.

        q, k  A number: additional leading tokens, as in `prefixed`. Two numbers: additional tokens in front and behind. A
              boolean mask (N,) or (B, N) of all N tokens of the code, True where a token has no position; positions
              given for these are ignored.

        They are treated like prefix tokens, for example by the gain of YaRN or learned biases.
        """
        found = {"q": self._unrotated("q", q), "k": self._unrotated("k", k)}
        if k is q and self.q_prefix == self.k_prefix:
            found["k"] = found["q"]  # of one mask, so that queries and keys may go on sharing a table
        prefixes = {f"{side}_prefix": getattr(self, f"{side}_prefix") + tokens.front for side, tokens in found.items()}
        changes = self._marked(**found) if any(tokens.changes_rows for tokens in found.values()) else {}
        return replace(self, **prefixes, **changes)

    def _unrotated(self, side: str, tokens: Tokens) -> Unrotated:
        return parse_tokens(side, tokens, getattr(self, f"{side}_prefix"), *self._rows(side))

    def _rows(self, side: str) -> tuple[int | None, int | None]:
        """How many tokens without the prefix the tables of one side are for, and of what batch; None where any will do."""
        return None, None

    def _marked(self, q: Unrotated, k: Unrotated) -> dict[str, Any]:
        """The fields that differ where such tokens have no position."""
        return {}

    def serving(self, q_heads: int, k_heads: int) -> Self:
        """The code for so many heads of queries and keys: other numbers are refused where heads differ."""
        return replace(self, q_heads=q_heads, k_heads=k_heads)

    def __getitem__(self, layer: int) -> "Code":
        """The code of one layer. Its `tokens` is the identity, so that no offset is added twice."""
        layer = self._layer_index(layer)
        changes: dict[str, Any] = {name: table[layer] for name, table in self._layered().items()}
        return replace(self, layers=None, **changes)

    def unbind(self) -> "tuple[Code, ...]":
        """The codes of all layers, each doing what code[i] does; going back, their gradients are put together in one pass.

        What all layers need is computed at once: of a `Sphere`, the matrices, so that its layers are a `Turn` each.
        """
        self._check_precision()
        parts = {name: table.unbind(0) for name, table in self._layered().items()}
        every: list[dict[str, Any]] = [{name: part[i] for name, part in parts.items()} for i in range(self._count())]
        return tuple(replace(self, layers=None, **changes) for changes in every)

    def _layered(self) -> dict[str, Tensor]:
        """Tensors that have an axis for layers."""
        return self.tables

    def _count(self) -> int:
        if self.layers is None:
            raise TypeError("this code has no layers to choose from: its encoding was made without layers=")
        return self.layers

    def _layer_index(self, layer: int) -> int:
        count = self._count()
        if not -count <= integer("layer", layer) < count:
            raise IndexError(f"layer must be from {-count} to {count - 1} for a code of {count} layers, got {layer}")
        return layer % count

    def _fits(self, side: str, rows: int, heads: int) -> bool:
        """Whether a table with rows for so many heads serves `heads` heads; keys may come repeated for each query."""
        counts = (self.q_heads,) if side == "q" else (self.k_heads, self.q_heads)
        return heads in counts if rows > 1 and counts[0] is not None else heads % rows == 0

    def _wanted(self, side: str, rows: int) -> str:
        count = self.q_heads if side == "q" else self.k_heads
        return "heads" if rows == 1 else f"a multiple of {rows} heads" if count is None else f"{count} heads"

    def _check_use(self, **xs: Tensor) -> None:
        """Refuse a code of several layers, tables that were cast, and tensors that are not floating."""
        self._one_layer()
        device = self._check_precision()
        for name, x in xs.items():
            floating(name, x)
            if device is not None and x.device != device:
                raise ValueError(f"{name} and its code must be on one device, got {x.device} and {device}")

    def _check_precision(self) -> torch.device | None:
        """Refuse tables below float32, and return their device."""
        device = None
        for entry in fields(self):
            table = getattr(self, entry.name)
            if isinstance(table, Tensor):
                device = table.device
                if table.dtype not in WIDE and table.is_floating_point():
                    raise ValueError(describe_cast(f"{entry.name} of a code ({type(self).__name__})", table.dtype))
        return device

    def _one_layer(self) -> None:
        if self.layers is not None:
            raise TypeError(f"this code holds {self.layers} layers: use code[i] in block i")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Offset(Code):
    """Adds a vector to every token, once."""

    offset: Tensor  # ([B] n C)

    def _rows(self, side: str) -> tuple[int | None, int | None]:
        return (self.offset.shape[-2], batch_of(self.offset.shape[:-2])) if side == "q" else (None, None)

    def _marked(self, q: Unrotated, k: Unrotated) -> dict[str, Any]:
        return {"offset": q.mark_rows(self.offset, 0.0, layered=False, heads=False, trailing=1)}

    def tokens(self, x: Tensor) -> Tensor:
        floating("tokens", x)
        batch = batch_of(self.offset.shape[:-2])
        wanted = (self.q_prefix + self.offset.shape[-2], self.offset.shape[-1])
        if x.ndim != 3 or x.shape[1:] != wanted or (batch is not None and x.shape[0] != batch):
            raise ValueError(f"tokens must be ({or_any(batch)}, {wanted[0]}, {wanted[1]}), got {tuple(x.shape)}")
        self._check_precision()
        return (x + F.pad(self.offset, (0, 0, self.q_prefix, 0))).to(x.dtype)

    def _facts(self) -> dict[str, Any]:
        *lead, positions, width = self.offset.shape
        return {"width": width, "positions": positions, "batch": lead[0] if lead else None}

    def __getitem__(self, layer: int) -> Code:
        self._layer_index(layer)
        return Code(q_prefix=self.q_prefix, k_prefix=self.k_prefix)

    def unbind(self) -> tuple[Code, ...]:
        return tuple(self[layer] for layer in range(self._count()))


def kv_heads(x: Tensor, heads: int) -> int:
    """h of a projection (B N H+h+h D) with H = `heads`."""
    if floating("x", x).ndim != 4 or not positive("heads", heads) < x.shape[2] or (x.shape[2] - heads) % 2:
        raise ValueError(f"a projection must be (B, N, H + 2 h, D) with H = {heads}, got {tuple(x.shape)}")
    return (x.shape[2] - heads) // 2


def batch_of(lead: Sequence[int]) -> int | None:
    """The batch that a table with these leading dimensions insists on, if any."""
    return lead[0] if len(lead) and lead[0] != 1 else None


def or_any(batch: int | None) -> int | str:
    """The batch as an error writes it."""
    return "B" if batch is None else batch


tree.register(Code)

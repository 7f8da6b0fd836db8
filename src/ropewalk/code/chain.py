"""Codes of codes: a change of basis, and several codes in turn."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from ropewalk import ops
from ropewalk.code.base import Code
from ropewalk.code.unrotated import Tokens
from ropewalk.tree import STATIC


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Basis(Code):
    """Writes q and k of all tokens, prefix included, in a basis: x becomes Uᵀ x.

    The columns of U are the basis vectors. They are orthonormal, so a basis alone changes no score; before a rotation, it
    says which planes are turned. A token of the prefix is not turned, but meets tokens that are: it needs the basis too.
    """

    head_dim: int = field(metadata=STATIC)
    basis: Tensor  # ([L] h D D)

    @property
    def rotary(self) -> bool:
        return True

    def _facts(self) -> dict[str, Any]:
        return {"head_dim": self.head_dim, "heads": self.basis.shape[-3]}

    def qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.q(q), self.k(k)

    def q(self, q: Tensor) -> Tensor:
        return self._change("q", q)

    def k(self, k: Tensor) -> Tensor:
        return self._change("k", k)

    def _change(self, side: str, x: Tensor) -> Tensor:
        self._check_use(**{side: x})
        rows = self.basis.shape[0]
        if x.ndim != 4 or x.shape[-1] != self.head_dim or not self._fits(side, rows, x.shape[1]):
            shape = f"(B, {self._wanted(side, rows)}, tokens, {self.head_dim})"
            raise ValueError(f"{side} must be {shape}, got {tuple(x.shape)}")
        return ops.change(x, self.basis)

    def matrices(self) -> Tensor:
        """The D x D matrix that meets every query, ([L] h 1 D D)."""
        self._check_precision()
        return self.basis.mT.unsqueeze(-3)

    def key_matrices(self) -> Tensor:
        """The D x D matrix that meets every key, ([L] h 1 D D)."""
        return self.matrices()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Chain(Code):
    """Several codes in turn: each gets what the one before it made of tokens, q and k, and what they add is summed."""

    codes: tuple[Code, ...]

    def _facts(self) -> dict[str, Any]:
        return {"codes": f"[{', '.join(map(repr, self.codes))}]"}

    @property
    def tables(self) -> dict[str, Tensor]:
        each = [(i, name, table) for i, code in enumerate(self.codes) for name, table in code.tables.items()]
        return {f"codes[{i}].{name}": table for i, name, table in each}

    def _check_precision(self) -> torch.device | None:
        found = [code._check_precision() for code in self.codes]
        return next((device for device in found if device is not None), None)

    def tokens(self, x: Tensor) -> Tensor:
        for code in self.codes:
            x = code.tokens(x)
        return x

    def qk(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        self._one_layer()
        for code in self.codes:
            q, k = code.qk(q, k)
        return q, k

    def qk_(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        self._one_layer()
        for code in self.codes:
            code.qk_(q, k)
        return q, k

    def q(self, q: Tensor) -> Tensor:
        self._one_layer()
        for code in self.codes:
            q = code.q(q)
        return q

    def k(self, k: Tensor) -> Tensor:
        self._one_layer()
        for code in self.codes:
            k = code.k(k)
        return k

    def scores(self, q: Tensor, k: Tensor) -> Tensor | None:
        self._one_layer()
        total: Tensor | None = None
        for code in self.codes:
            added = code.scores(q, k)
            total = added if total is None else total if added is None else total + added
        return total

    def score_mod(self, q: Tensor, k: Tensor) -> Callable[..., Tensor] | None:
        self._one_layer()
        steps = [step for step in (code.score_mod(q, k) for code in self.codes) if step is not None]

        def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            for step in steps:
                score = step(score, batch, head, i, j)
            return score

        return modify if steps else None

    @property
    def rotary(self) -> bool:
        return all(code.rotary for code in self.codes)

    @property
    def biased(self) -> bool:
        return any(code.biased for code in self.codes)

    @property
    def sparing(self) -> bool:
        return self.biased and all(code.sparing for code in self.codes if code.biased)

    @property
    def learning(self) -> bool:
        return any(code.learning for code in self.codes)

    @property
    def batched(self) -> bool:
        return any(code.batched for code in self.codes)

    def with_unrotated(self, *, q: Tokens = 0, k: Tokens = 0) -> Self:
        codes = tuple(code.with_unrotated(q=q, k=k) for code in self.codes)
        prefixes = {"q_prefix": self._unrotated("q", q).front, "k_prefix": self._unrotated("k", k).front}
        return replace(self, **{name: getattr(self, name) + more for name, more in prefixes.items()}, codes=codes)

    def serving(self, q_heads: int, k_heads: int) -> Self:
        codes = tuple(code.serving(q_heads, k_heads) for code in self.codes)
        return replace(self, q_heads=q_heads, k_heads=k_heads, codes=codes)

    def __getitem__(self, layer: int) -> Code:
        layer = self._layer_index(layer)
        return replace(self, layers=None, codes=tuple(code[layer] for code in self.codes))

    def unbind(self) -> tuple[Code, ...]:
        every = [code.unbind() for code in self.codes]
        return tuple(replace(self, layers=None, codes=tuple(code[i] for code in every)) for i in range(self._count()))

    def matrices(self) -> Tensor:
        """The D x D matrix that meets each query, ([L] [B] h N D D), prefix included, if the chain does nothing but turn."""
        return self._product("matrices")

    def key_matrices(self) -> Tensor:
        """The D x D matrix that meets each key, ([L] [B] h M D D), prefix included, if the chain does nothing but turn."""
        return self._product("key_matrices")

    def _product(self, name: str) -> Tensor:
        if not self.rotary or not self.codes:
            kinds = ", ".join(type(code).__name__ for code in self.codes)
            raise TypeError(f"only a chain of codes that turn has matrices, got one of {kinds or 'nothing'}")
        parts: list[Tensor] = [getattr(code, name)() for code in self.codes]
        dtype = functools.reduce(torch.promote_types, (part.dtype for part in parts))  # float64 positions, float32 bases
        parts = [part.to(dtype) for part in parts]
        most = max(part.ndim for part in parts)
        total = _with_batch(parts[0], most, self.layers)
        for part in parts[1:]:
            total = _with_batch(part, most, self.layers) @ total
        return total


def _with_batch(matrices: Tensor, dimensions: int, layers: int | None) -> Tensor:
    """Matrices ([L] h N D D) with a batch of one where another code of the chain has a batch."""
    missing = dimensions - matrices.ndim
    return matrices if not missing else matrices.unsqueeze(0 if layers is None else 1)

"""Ops that turn q and k by tables, declared to PyTorch: from q and k themselves, or from one projection of q, k and v."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ropewalk.ops.fused import apart, at_once, bare, declare, fits, fuse, fuse_projection, learning, once, split


class Turning:
    """An op with its reference, and with its kernel where that fits.

    name       `ropewalk::NAME` takes xs (B H N D), tables ([B] h n …), and `options`, the last of which is the prefixes;
               `ropewalk::NAME_qkv` takes a projection x (B N H+h+h D) and H instead of xs, and gives q, k and v.
    trailing   The dimensions of a table after n.
    suits      Whether the kernel knows such tables and options.
    """

    def __init__(
        self, name: str, trailing: int, options: str, reference: Callable[..., list[Tensor]], suits: Callable[..., bool]
    ) -> None:
        self.name, self.trailing, self.reference, self.suits = name, trailing, reference, suits
        declare(name, options)
        views = "(Tensor(a) x, SymInt heads, Tensor[] tables, {}) -> (Tensor, Tensor, Tensor(a))"
        torch.library.define(f"ropewalk::{name}", f"(Tensor[] xs, Tensor[] tables, {options}) -> Tensor[]")
        torch.library.define(f"ropewalk::{name}_qkv", views.format(options))
        torch.library.impl(f"ropewalk::{name}", "CompositeImplicitAutograd", self._turn)
        torch.library.impl(f"ropewalk::{name}", "FuncTorchBatched", reference)
        torch.library.impl(f"ropewalk::{name}_qkv", "CompositeImplicitAutograd", self._turn_projection)
        torch.library.impl(f"ropewalk::{name}_qkv", "FuncTorchBatched", self._refer)

    def __call__(self, xs: Sequence[Tensor], tables: Sequence[Tensor], *options: Any) -> list[Tensor]:
        if torch.compiler.is_compiling():
            return getattr(torch.ops.ropewalk, self.name)(list(xs), list(tables), *options)
        return self._turn(list(xs), list(tables), *options)

    def qkv(self, x: Tensor, heads: int, tables: Sequence[Tensor], *options: Any) -> tuple[Tensor, Tensor, Tensor]:
        if torch.compiler.is_compiling():
            return getattr(torch.ops.ropewalk, f"{self.name}_qkv")(x, heads, list(tables), *options)
        return self._turn_projection(x, heads, list(tables), *options)

    def in_place(self, xs: Sequence[Tensor], tables: Sequence[Tensor], *options: Any) -> None:
        """Turn xs where they lie, for inference."""
        if learning(*xs, *tables):
            raise RuntimeError("q and k cannot be turned in place where gradients are asked for: use torch.no_grad()")
        eager = not torch.compiler.is_compiling() and bare(*xs, *tables) and apart(xs)
        if eager and fits(xs, tables) and self._suits(xs, tables, *options):
            at_once(f"{self.name}_into", list(xs), once(tables), *options)
            torch.autograd.graph.increment_version(list(xs))
            return
        for x, y in zip(xs, self(xs, tables, *options), strict=True):
            x.copy_(y)

    def _turn(self, xs: list[Tensor], tables: list[Tensor], *options: Any) -> list[Tensor]:
        if fits(xs, tables) and self._suits(xs, tables, *options):
            return fuse(self.name, xs, tables, *options)
        return self.reference(xs, tables, *options)

    def _turn_projection(self, x: Tensor, heads: int, tables: list[Tensor], *options: Any) -> tuple[Tensor, Tensor, Tensor]:
        batch, tokens, both, _ = x.shape
        sizes = (batch, heads, tokens), (batch, (both - heads) // 2, tokens)
        right = fits([x], tables) and all(map(self._made_for, sizes, tables, options[-1]))
        if right and self.suits(x, tables, *options):
            return fuse_projection(self.name, x, heads, tables, *options)
        return self._refer(x, heads, tables, *options)

    def _refer(self, x: Tensor, heads: int, tables: list[Tensor], *options: Any) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = split(x, heads)
        q, k = self.reference([q, k], tables, *options)
        return q, k, v

    def _suits(self, xs: Sequence[Tensor], tables: Sequence[Tensor], *options: Any) -> bool:
        right = all(map(self._made_for, [x.shape[:3] for x in xs], tables, options[-1]))
        return right and self.suits(xs[0], tables, *options)

    def _made_for(self, sizes: Sequence[int], table: Tensor, prefix: int) -> bool:
        """Whether a table is made for so many samples, heads and tokens: what is not, the reference refuses."""
        batch, heads, tokens = sizes
        *lead, rows, places = table.shape[: -self.trailing]
        return places + prefix == tokens and heads % rows == 0 and (not lead or lead[0] in (1, batch))

"""How a kernel takes the place of a reference: on CUDA, for dtypes it knows, with a backward pass of its own.

An op stays composite: compilers, exporters and transforms see what it does. Where a kernel can do it, what it does is one
opaque op, `ropewalk::NAME_fused`, and on the way back another, `ropewalk::NAME_back`.
"""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TRITON = importlib.util.find_spec("triton") is not None


def declare(name: str, options: str) -> None:
    """Declare the opaque ops of `name`, whose tables (one for each of xs, or one for all) and options follow xs."""
    for op, seen in ((f"{name}_fused", ""), (f"{name}_back", ", Tensor[] ys")):
        torch.library.define(f"ropewalk::{op}", f"(Tensor[] xs{seen}, Tensor[] tables, {options}) -> Tensor[]")
        torch.library.impl(f"ropewalk::{op}", "CUDA", late(name, op))
    torch.library.register_fake(f"ropewalk::{name}_fused", lambda xs, *rest: [room(x) for x in xs])
    torch.library.register_fake(f"ropewalk::{name}_back", _fake_back)


def late(name: str, op: str) -> Callable[..., Any]:
    """The kernel's function, looked for when it is first called: importing Triton takes time."""

    def run(*arguments: Any) -> Any:
        return getattr(importlib.import_module(f"ropewalk.ops.{name}.kernel"), op)(*arguments)

    return run


def _fake_back(dys: list[Tensor], ys: list[Tensor], tables: list[Tensor], *rest: Any) -> list[Tensor]:
    gradients = [table.new_empty(table.shape) for table in tables] if ys else []
    return [room(dy) for dy in dys] + gradients


def room(x: Tensor) -> Tensor:
    """Room for a result like x, in the order of its dimensions but with the channels of a row side by side."""
    out = torch.empty_like(x)
    return out if out.stride(-1) == 1 else torch.empty_like(x, memory_format=torch.contiguous_format)


def fits(xs: Sequence[Tensor], tables: Sequence[Tensor], fixed: Sequence[Tensor | None] = ()) -> bool:
    """Whether a kernel can do it: see the list of what it cannot."""
    every = [*xs, *tables, *(tensor for tensor in fixed if tensor is not None)]
    return (
        TRITON
        and all(tensor.is_cuda and tensor.dtype in DTYPES for tensor in every)
        and len({(x.dtype, x.shape[-1]) for x in xs}) == 1
        and not any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in every)
        and not any(tensor.requires_grad for tensor in fixed if tensor is not None)
    )


def fuse(name: str, xs: list[Tensor], tables: list[Tensor], *options: Any) -> list[Tensor]:
    """The opaque op with its backward pass. A table that q and k share is handed over once, and gets one gradient."""
    once = tables[:1] if all(table is tables[0] for table in tables) else tables
    return list(Fused.apply(name, len(xs), len(once), options, *xs, *once))


class Fused(torch.autograd.Function):
    """A fused op with its backward pass: `apply(name, number of xs, number of tables, options, *xs, *tables)`."""

    @staticmethod
    def forward(
        ctx: Any, name: str, count: int, tabled: int, options: tuple[Any, ...], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        xs, tables = list(tensors[:count]), list(tensors[count:])
        outs = getattr(torch.ops.ropewalk, f"{name}_fused")(xs, tables, *options)
        ctx.name, ctx.count, ctx.tabled, ctx.options = name, count, tabled, options
        learned = any(ctx.needs_input_grad[4 + count :])
        ctx.save_for_backward(*tables, *(outs if learned else ()))
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *dys: Tensor) -> tuple[Tensor | None, ...]:
        saved = list(ctx.saved_tensors)
        tables, ys = saved[: ctx.tabled], saved[ctx.tabled :]
        found = getattr(torch.ops.ropewalk, f"{ctx.name}_back")(list(dys), ys, tables, *ctx.options)
        found += [None] * (ctx.count + ctx.tabled - len(found))
        wanted = ctx.needs_input_grad[4:]
        return None, None, None, None, *(gradient if want else None for gradient, want in zip(found, wanted, strict=True))

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
PLAIN = (Tensor, torch.nn.Parameter)
KERNELS: dict[str, Callable[..., list[Tensor]]] = {}


def declare(name: str, options: str) -> None:
    """Declare the opaque ops of `name`, whose tables (one for each of xs, or one for all) and options follow xs."""
    for op, seen in ((f"{name}_fused", ""), (f"{name}_back", ", Tensor[] ys")):
        torch.library.define(f"ropewalk::{op}", f"(Tensor[] xs{seen}, Tensor[] tables, {options}) -> Tensor[]")
        torch.library.impl(f"ropewalk::{op}", "CUDA", late(op))
    torch.library.register_fake(f"ropewalk::{name}_fused", lambda xs, *rest: [room(x) for x in xs])
    torch.library.register_fake(f"ropewalk::{name}_back", _fake_back)


def late(op: str) -> Callable[..., Any]:
    """The kernel's function, looked for when it is first called: importing Triton takes time."""

    def run(*arguments: Any) -> Any:
        return _kernel(op)(*arguments)

    return run


def _kernel(op: str) -> Callable[..., Any]:
    return getattr(importlib.import_module(f"ropewalk.ops.{op.partition('_')[0]}.kernel"), op)


def _fake_back(dys: list[Tensor], ys: list[Tensor], tables: list[Tensor], *rest: Any) -> list[Tensor]:
    gradients = [table.new_empty(table.shape) for table in tables] if ys else []
    return [room(dy) for dy in dys] + gradients


def room(x: Tensor) -> Tensor:
    """Room for a result like x, in the order of its dimensions but with the channels of a row side by side."""
    out = torch.empty_like(x)
    return out if out.stride(-1) == 1 else torch.empty_like(x, memory_format=torch.contiguous_format)


def fits(xs: Sequence[Tensor], tables: Sequence[Tensor], fixed: Sequence[Tensor | None] = ()) -> bool:
    """Whether a kernel can do it: see the list of what it cannot."""
    if not TRITON or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    for tensor in (*xs, *tables, *fixed):
        if tensor is not None and (not tensor.is_cuda or tensor.dtype not in DTYPES):
            return False
    same = all(x.dtype is xs[0].dtype and x.shape[-1] == xs[0].shape[-1] for x in xs[1:])
    return same and not any(tensor is not None and tensor.requires_grad for tensor in fixed)


def fuse(name: str, xs: list[Tensor], tables: list[Tensor], *options: Any) -> list[Tensor]:
    """The opaque op with its backward pass. A table that q and k share is handed over once, and gets one gradient."""
    once = tables[:1] if tables[0] is tables[-1] else tables
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*xs, *once)):
        return list(Fused.apply(name, len(xs), options, *xs, *once))
    return run(f"{name}_fused", xs, once, *options)


def run(op: str, xs: list[Tensor], *rest: Any) -> list[Tensor]:
    """Run an opaque op: its kernel at once where nobody but eager PyTorch looks on, because dispatching takes time."""
    if torch._C._len_torch_dispatch_stack() or type(xs[0]) not in PLAIN:
        return getattr(torch.ops.ropewalk, op)(xs, *rest)
    if op not in KERNELS:
        KERNELS[op] = _kernel(op)
    return KERNELS[op](xs, *rest)


class Fused(torch.autograd.Function):
    """A fused op with its backward pass: `apply(name, number of xs, options, *xs, *tables)`."""

    @staticmethod
    def forward(ctx: Any, name: str, count: int, options: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        tables = list(tensors[count:])
        outs = run(f"{name}_fused", list(tensors[:count]), tables, *options)
        ctx.name, ctx.count, ctx.tabled, ctx.options = name, count, len(tables), options
        learned = any(ctx.needs_input_grad[3 + count :])
        ctx.save_for_backward(*tables, *(outs if learned else ()))
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *dys: Tensor) -> tuple[Tensor | None, ...]:
        saved = list(ctx.saved_tensors)
        tables, ys = saved[: ctx.tabled], saved[ctx.tabled :]
        found: list[Tensor | None] = [*run(f"{ctx.name}_back", list(dys), ys, tables, *ctx.options)]
        found += [None] * (ctx.count + ctx.tabled - len(found))
        wanted = ctx.needs_input_grad[3:]
        return None, None, None, *(gradient if want else None for gradient, want in zip(found, wanted, strict=True))

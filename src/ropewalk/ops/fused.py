"""How a kernel takes the place of a reference: on CUDA, for dtypes it knows, with a backward pass of its own.

An op stays composite: compilers, exporters and transforms see what it does. Where a kernel can do it, what it does is one
opaque op, `ropewalk::NAME_fused`, and in the backward pass another, `ropewalk::NAME_back`, or `ropewalk::NAME_join` where
q, k and v are views of one projection: it writes their gradients where that of the projection has them, which saves a
copy afterwards.
"""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TRITON = importlib.util.find_spec("triton") is not None and torch.version.hip is None
PLAIN = (Tensor, torch.nn.Parameter)
KERNELS: dict[str, Callable[..., list[Tensor]]] = {}


def declare(name: str, options: str) -> None:
    """Declare the opaque ops of `name`, whose tables (one for each of xs, or one for all) and options follow xs."""
    for op, seen in (("fused", ""), ("back", ", Tensor[] ys"), ("join", ", Tensor[] ys")):
        torch.library.define(f"ropewalk::{name}_{op}", f"(Tensor[] xs{seen}, Tensor[] tables, {options}) -> Tensor[]")
        torch.library.impl(f"ropewalk::{name}_{op}", "CUDA", late(f"{name}_{op}"))
    torch.library.register_fake(f"ropewalk::{name}_fused", lambda xs, *rest: [room(x) for x in xs])
    torch.library.register_fake(f"ropewalk::{name}_back", _fake_back)
    torch.library.register_fake(f"ropewalk::{name}_join", _fake_join)


def late(op: str) -> Callable[..., Any]:
    """The kernel's function, looked for when it is first called: importing Triton takes time."""
    return lambda *given: at_once(op, *given)


def _kernel(op: str) -> Callable[..., Any]:
    return getattr(importlib.import_module(f"ropewalk.ops.{op.partition('_')[0]}.kernel"), op)


def _fake_back(dys: list[Tensor], ys: list[Tensor], tables: list[Tensor], *rest: Any) -> list[Tensor]:
    return [room(dy) for dy in dys] + _fake_gradients(ys, tables)


def _fake_join(dys: list[Tensor], ys: list[Tensor], tables: list[Tensor], *rest: Any) -> list[Tensor]:
    batch, _, tokens, depth = dys[0].shape
    return [dys[0].new_empty(batch, tokens, sum(dy.shape[1] for dy in dys), depth), *_fake_gradients(ys, tables)]


def _fake_gradients(ys: list[Tensor], tables: list[Tensor]) -> list[Tensor]:
    return [table.new_empty(table.shape) for table in tables] if ys else []


def room(x: Tensor) -> Tensor:
    """Room for a result like x, in the order of its dimensions but with the channels of a row side by side."""
    out = torch.empty_like(x)
    return out if out.stride(-1) == 1 else torch.empty_like(x, memory_format=torch.contiguous_format)


def fits(xs: Sequence[Tensor], tables: Sequence[Tensor]) -> bool:
    """Whether a kernel can do it: on one NVIDIA GPU, in dtypes it knows, q like k, and no transform or tracer looking on."""
    if not TRITON or transformed() or torch._C._get_tracing_state() is not None:
        return False
    device = xs[0].device
    for tensor in (*xs, *tables):
        if not tensor.is_cuda or tensor.dtype not in DTYPES or tensor.device != device or not known(type(tensor)):
            return False
    return all(x.dtype is xs[0].dtype and x.shape[-1] == xs[0].shape[-1] for x in xs[1:])


def known(kind: type) -> bool:
    """Whether a type of tensors is plain, or stands for plain ones while a compiler looks at shapes."""
    return kind in PLAIN or kind.__module__.startswith("torch._subclasses.")


def transformed() -> bool:
    """Whether this runs inside `torch.func`, or in forward mode."""
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def split(x: Tensor, heads: int) -> list[Tensor]:
    """q (B H N D), k and v (B h N D) of a projection (B N H+h+h D), with H = `heads`."""
    rest = (x.shape[2] - heads) // 2
    return [part.transpose(1, 2) for part in x.split_with_sizes([heads, rest, rest], 2)]


def fuse(name: str, xs: list[Tensor], tables: list[Tensor], *options: Any) -> list[Tensor]:
    """The opaque op with its backward pass."""
    tables = once(tables)
    if learning(*xs, *tables):
        return list(Fused.apply(name, 0, options, *xs, *tables))
    return run(f"{name}_fused", xs, tables, *options)


def fuse_projection(name: str, x: Tensor, heads: int, tables: list[Tensor], *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The same for q and k of a projection x (B N H+h+h D), which comes as q, k and v."""
    if learning(x):
        return Fused.apply(name, heads, options, x, *once(tables))
    q, k, v = split(x, heads)
    q, k = fuse(name, [q, k], tables, *options)
    return q, k, v


def once(tables: Sequence[Tensor]) -> list[Tensor]:
    """A table that q and k share is handed over once, and gets one gradient."""
    return [tables[0]] if tables[0] is tables[-1] else list(tables)


def learning(*tensors: Tensor) -> bool:
    """Whether a gradient is asked for."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def run(op: str, xs: list[Tensor], *rest: Any) -> list[Tensor]:
    """Run an opaque op: its kernel at once where nobody but eager PyTorch looks on, because dispatching takes time."""
    return at_once(op, xs, *rest) if bare(*xs) else getattr(torch.ops.ropewalk, op)(xs, *rest)


def bare(*tensors: Tensor) -> bool:
    """Whether nobody but eager PyTorch looks on, and memory holds what tensors say."""
    if torch._C._len_torch_dispatch_stack() or transformed() or torch._C._get_tracing_state() is not None:
        return False
    return all(type(x) in PLAIN and not x.is_neg() and not x._is_zerotensor() for x in tensors)


def apart(xs: Sequence[Tensor]) -> bool:
    """Whether tensors can be written to where they lie, channel beside channel: no two entries share memory."""
    first, last = xs[0], xs[-1]
    shared = len(xs) > 1 and first.data_ptr() == last.data_ptr()
    whole = all(
        x.stride(-1) == 1 and all(step or size < 2 for size, step in zip(x.shape, x.stride(), strict=True)) for x in xs
    )
    return whole and not shared


def at_once(op: str, *given: Any) -> list[Tensor]:
    """Run the kernel of an opaque op."""
    if op not in KERNELS:
        KERNELS[op] = _kernel(op)
    return KERNELS[op](*given)


def one_at_a_time(dys: Sequence[Tensor]) -> None:
    """Refuse a batch of gradients."""
    if any(torch._C._functorch.is_legacy_batchedtensor(dy) for dy in dys):
        raise RuntimeError("kernels take one gradient at a time: is_grads_batched and vectorize are for torch.func.vjp")


class Fused(torch.autograd.Function):
    """A fused op with its backward pass: `apply(name, 0, options, *xs, *tables)` for as many tables as xs, or one.

    With heads instead of 0, the first tensor is a projection of q with so many heads, k and v, and so is its gradient. What
    tables need to learn is kept: outputs of rotations, which attention keeps anyway, and inputs of others.
    """

    @staticmethod
    def forward(ctx: Any, name: str, heads: int, options: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        turned = len(options[-1])
        count = 1 if heads else turned
        xs, tables = split(tensors[0], heads) if heads else list(tensors[:count]), list(tensors[count:])
        outs = run(f"{name}_fused", xs[:turned], tables, *options)
        learned = any(ctx.needs_input_grad[3 + count :])
        kept = () if not learned else outs if name == "rotate" else tensors[:count]
        gains = [gain for gain in options[0] if isinstance(gain, Tensor)]
        ctx.save_for_backward(*gains, *tables, *kept)
        ctx.name, ctx.heads, ctx.counts = name, heads, (len(gains), count, len(tables))
        ctx.options = ([None] * turned, *options[1:]) if gains else options
        return (*outs, *xs[2:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *dys: Tensor) -> tuple[Tensor | None, ...]:
        one_at_a_time(dys)
        (gained, count, tabled), saved = ctx.counts, list(ctx.saved_tensors)
        gains, tables, kept = saved[:gained], saved[gained : gained + tabled], saved[gained + tabled :]
        seen = split(kept[0], ctx.heads)[:2] if kept and ctx.heads and ctx.name != "rotate" else kept
        options = (gains, *ctx.options[1:]) if gains else ctx.options
        op = f"{ctx.name}_{'join' if ctx.heads else 'back'}"
        found: list[Tensor | None] = [*run(op, list(dys), seen, tables, *options)]
        found += [None] * (count + tabled - len(found))
        wanted = ctx.needs_input_grad[3:]
        return None, None, None, *(gradient if want else None for gradient, want in zip(found, wanted, strict=True))

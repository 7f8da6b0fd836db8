"""Turning q and k once, and back: bytes that must be moved a second, beside a plain copy in the same run.

Forward, q and k are read and written and the table is read. Back, the gradients of q and k are; gradients of the table
need q and k, or what has become of them, once more, and are written.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ropewalk.lab.bench import judge
from ropewalk.lab.bench.clock import Work, back, device, dispatched, replayed, replayed_back
from ropewalk.lab.bench.job import Job, Row
from ropewalk.lab.bench.ops import OPS, Op
from ropewalk.lab.bench.peers import Peer, installed

Pair = tuple[Tensor, Tensor]

LONG, IMAGE = "4 x 8192 tokens, 32 + 8 heads of 128", "256 x 196 tokens, 6 + 6 heads of 64"
SHAPES = {LONG: (4, 8192, 32, 8, 128), IMAGE: (256, 196, 6, 6, 64)}
SMALL = {"2 x 15 tokens, 4 + 2 heads of 64": (2, 15, 4, 2, 64)}


class Case:
    """One shape: its q and k, drawn when they are first asked for, and the speed of a plain copy."""

    def __init__(self, batch: int, tokens: int, heads: int, kv_heads: int, depth: int) -> None:
        self.batch, self.tokens, self.heads, self.kv_heads, self.depth = batch, tokens, heads, kv_heads, depth

    @functools.cached_property
    def views(self) -> Pair:
        """q and k as they come out of one projection, with v between one token and the next."""
        torch.manual_seed(0)
        counts = (self.heads, self.kv_heads, self.kv_heads)
        fused = torch.randn(self.batch, self.tokens, sum(counts), self.depth, device=device(), dtype=torch.bfloat16)
        q, k, _ = (x.transpose(1, 2) for x in fused.split(counts, dim=2))
        return q, k

    @functools.cached_property
    def pair(self) -> Pair:
        """The same in one piece each."""
        q, k = (x.contiguous() for x in self.views)
        return q, k

    @functools.cached_property
    def copy(self) -> float:
        """Gigabytes that a plain copy of q and k reads and writes in a second."""
        outs = [torch.empty_like(x) for x in self.pair]
        return moved(2, self.pair) / replayed(lambda: [out.copy_(x) for out, x in zip(outs, self.pair, strict=True)])

    def figures(self, size: float, ms: float, work: Work, error: float) -> Row:
        """What is told of work that moves so many megabytes."""
        return {"ms": ms, "GB/s": size / ms, "of copy": size / ms / self.copy, "eager ms": dispatched(work), "error": error}


def moved(times: int, pair: Sequence[Tensor], table: Tensor | None = None, table_times: int = 1) -> float:
    """Megabytes of q and k, so many times, and of the table."""
    size = times * sum(x.nbytes for x in pair) + (0 if table is None else table_times * table.nbytes)
    return size / 1e6


def forward(case: Case, op: Op, *, heads: int = 1, views: bool = False) -> Row:
    """Turning q and k by a table for so many heads."""
    table, pair = _drawn(case, op, heads), case.views if views else case.pair
    code = op.code(case.depth, table)
    error = judge.judged(code.qk(*pair), judge.expected(op.formula, pair, table), pair[0].dtype)
    work = functools.partial(code.qk, *pair)
    return case.figures(moved(2, pair, table), replayed(work), work, error)


def backward(case: Case, op: Op, *, heads: int = 1, learned: bool = False) -> Row:
    """The gradients of q and k, and of the table if it is learned."""
    table = _drawn(case, op, heads).requires_grad_(learned)
    pair = [x.detach().requires_grad_() for x in case.pair]
    inputs = [*pair, table] if learned else pair
    gradients = [torch.randn_like(x) for x in pair]

    def there() -> Sequence[Tensor]:
        return op.code(case.depth, table).qk(pair[0], pair[1])

    found = torch.autograd.grad(there(), inputs, gradients)
    right = judge.expected_back(op.formula, pair, table, gradients)[: len(inputs)]
    error = judge.judged(found, right, pair[0].dtype)
    size = moved(3, pair, table, 2) if learned else moved(2, pair, table)
    return case.figures(size, replayed_back(there, inputs, gradients), back(there, inputs, gradients), error)


def rival(case: Case, peer: Peer) -> Row:
    """Turning q and k by someone else's function, of angles that all heads share."""
    angle = _drawn(case, OPS[0], 1)[0]
    turn, pair = peer.make(angle, case.pair[0].dtype), peer.prepared(case.pair)
    formula = functools.partial(judge.rotated, interleaved=peer.interleaved)
    right = judge.expected(formula, pair, angle[None])
    error = judge.judged(turn(*pair), right, pair[0].dtype)
    work = functools.partial(turn, *pair)
    return case.figures(moved(2, pair, angle), replayed(work), work, error)


def _drawn(case: Case, op: Op, heads: int) -> Tensor:
    torch.manual_seed(1)
    return op.draw(heads, case.tokens, case.depth)


def settings() -> Row:
    """What all rows have in common."""
    return {
        "dtype": "bfloat16, tables float32",
        "timing": "CUDA-graph replay" if device() == "cuda" else "eager calls",
        "eager ms": "Python time of one call, whatever it leaves for the device to do",
        "GB/s": "q and k read and written, the table read; back the same, and with its gradients q and k read once more and "
        "the table's gradient written",
        "error": "the largest of a row of channels, over the typical norm of a row, against float64",
    }


def jobs() -> list[Job]:
    """A job for each shape and contender."""
    found = []
    for label, shape in (SHAPES if device() == "cuda" else SMALL).items():
        case = Case(*shape)
        works: dict[str, Callable[[], Row]] = {"plain copy": functools.partial(_copied, case)}
        for op in OPS if label != LONG else [op for op in OPS if op.everywhere]:
            works |= _of_op(case, op)
        works |= {peer.name: functools.partial(rival, case, peer) for peer in installed(device())}
        labels = {"suite": "ops", "shape": label}
        found += [Job(labels | {"name": name}, work, name == "plain copy") for name, work in works.items()]
    return found


def _copied(case: Case) -> Row:
    return {"ms": moved(2, case.pair) / case.copy, "GB/s": case.copy, "of copy": 1.0}


def _of_op(case: Case, op: Op) -> dict[str, Callable[[], Row]]:
    return {
        f"{op.name}, forward": functools.partial(forward, case, op),
        f"{op.name}, forward, a table for each head": functools.partial(forward, case, op, heads=case.kv_heads),
        f"{op.name}, forward, views of one projection": functools.partial(forward, case, op, views=True),
        f"{op.name}, backward": functools.partial(backward, case, op),
        f"{op.name}, backward, table learned": functools.partial(backward, case, op, heads=case.kv_heads, learned=True),
    }

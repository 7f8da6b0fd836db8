"""Rotating q and k once: gigabytes a second that are read and written, beside a plain copy in the same run."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ropewalk import ops
from ropewalk.lab.bench.clock import called, device, replayed
from ropewalk.lab.bench.peers import peers

SHAPES = {
    "4 x 8192 tokens, 32 + 8 heads of 128": (4, 8192, 32, 8, 128),
    "256 x 196 tokens, 6 + 6 heads of 64": (256, 196, 6, 6, 64),
}
SMALL = {"1 x 64 tokens, 4 + 2 heads of 32": (1, 64, 4, 2, 32)}


def rows() -> Iterator[dict[str, Any]]:
    """A row for each shape and contender."""
    for label, shape in (SHAPES if device() == "cuda" else SMALL).items():
        for row in _shape(*shape):
            yield {"suite": "ops", "shape": label, **row}


def _shape(batch: int, tokens: int, heads: int, kv_heads: int, depth: int) -> Iterator[dict[str, Any]]:
    torch.manual_seed(0)
    fused = torch.randn(batch, tokens, heads + 2 * kv_heads, depth, device=device(), dtype=torch.bfloat16)
    views = tuple(x.transpose(1, 2) for x in fused.split([heads, kv_heads, kv_heads], dim=2)[:2])
    q, k = (x.contiguous() for x in views)
    angle = 10 * torch.randn(tokens, depth // 2, device=device())
    moved = 4 * (q.numel() + k.numel())
    outs = [torch.empty_like(x) for x in (q, k)]
    floor = moved / replayed(lambda: [out.copy_(x) for out, x in zip(outs, (q, k), strict=True)]) / 1e6
    yield {"name": "plain copy", "GB/s": floor, "of copy": 1.0}
    for interleaved in (True, False):
        layout = "interleaved" if interleaved else "half-split"
        for name, pair in (("", (q, k)), (", views of one projection", views)):

            def turn(pair: tuple[Tensor, ...] = pair, interleaved: bool = interleaved) -> list[Tensor]:
                return ops.rotate(pair, [angle[None]] * 2, [None] * 2, interleaved=interleaved, prefixes=[0, 0])

            yield from _row(f"ropewalk, {layout}{name}", turn, pair, angle, interleaved, moved, floor)
        yield _backward(layout, q, k, angle, interleaved, moved, floor)
    for peer in peers(angle, q.dtype):
        pair = (q.clone(), k.clone()) if peer.in_place else (q, k)
        work = lambda turn=peer.turn, pair=pair: turn(*pair)  # noqa: E731
        yield from _row(peer.name, work, pair, angle, peer.interleaved, moved, floor)


def _row(
    name: str, work: Any, pair: tuple[Tensor, ...], angle: Tensor, interleaved: bool, moved: int, floor: float
) -> Iterator[dict[str, Any]]:
    """The figure of a contender, or a refusal if its output is wrong."""
    before = tuple(x.double() for x in pair)
    error = _error(work(), before, angle, interleaved)
    if (
        error > 2.0**-6
    ):  # rounding in bfloat16 is at most 2^-9 of a number; those who multiply in it are off a few times that
        yield {"name": name, "refused": f"its output is off by {error:.3g} of the norm"}
        return
    speed, eager = moved / replayed(work) / 1e6, called(work)
    yield {"name": name, "GB/s": speed, "of copy": speed / floor, "eager ms": eager, "error": error}


def _error(outs: Any, before: tuple[Tensor, ...], angle: Tensor, interleaved: bool) -> float:
    """The largest relative error of q and k in the norm, against float64."""
    cos, sin = angle.double().cos(), angle.double().sin()
    worst = 0.0
    for out, x in zip(outs, before, strict=True):
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else x.chunk(2, dim=-1)
        turned = (a * cos - b * sin, a * sin + b * cos)
        right = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
        worst = max(worst, ((out.double() - right).norm() / right.norm()).item())
    return worst


def _backward(
    layout: str, q: Tensor, k: Tensor, angle: Tensor, interleaved: bool, moved: int, floor: float
) -> dict[str, Any]:
    """Gradients of q, k and angles: the outputs and their gradients are read, the gradients of the inputs written."""
    table = angle[None].expand(k.shape[1], -1, -1).contiguous().requires_grad_()
    xs = [x.detach().requires_grad_() for x in (q, k)]
    outs = ops.rotate(xs, [table] * 2, [None] * 2, interleaved=interleaved, prefixes=[0, 0])
    gradients = [torch.randn_like(out) for out in outs]
    name = f"ropewalk, {layout}, backward with angles"
    if device() != "cuda":
        ms = called(lambda: torch.autograd.grad(outs, [*xs, table], gradients, retain_graph=True))
    else:
        data, options = [out.detach() for out in outs], ([None] * 2, interleaved, [0, 0])
        ms = replayed(lambda: torch.ops.ropewalk.rotate_back(gradients, data, [table.detach()] * 2, *options))
    speed = 1.5 * moved / ms / 1e6
    return {"name": name, "GB/s": speed, "of copy": speed / floor}

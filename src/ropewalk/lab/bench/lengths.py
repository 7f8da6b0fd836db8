"""Decoding one token, and long sequences."""

from collections.abc import Iterator
from typing import Any

import torch

import ropewalk as rw
from ropewalk.lab.bench.clock import called, device, replayed


def rows() -> Iterator[dict[str, Any]]:
    """One query against a cache, eager; then q and k of 1 thousand to 1 million tokens, beside a copy."""
    rope = rw.create("rope", head_dim=128, heads=8, kv_heads=2).to(device())
    place = torch.tensor([1000], device=device())
    q, k = (torch.randn(1, heads, 1, 128, device=device(), dtype=torch.bfloat16) for heads in (8, 2))
    with torch.no_grad():
        code = rope(place)
        turned = called(lambda: code.qk(q, k), rounds=100)
        whole = called(lambda: rope(place).qk(q, k), rounds=100)
        yield {"suite": "lengths", "name": "decode one token", "eager ms": turned, "with its code": whole}
        for tokens in (1_000, 10_000, 100_000, 1_000_000) if device() == "cuda" else (1_000,):
            yield _length(rope, tokens)


def _length(rope: rw.Encoding, tokens: int) -> dict[str, Any]:
    q, k = (torch.randn(1, heads, tokens, 128, device=device(), dtype=torch.bfloat16) for heads in (8, 2))
    code, outs = rope(torch.arange(tokens, device=device())), [torch.empty_like(x) for x in (q, k)]
    copy = replayed(lambda: [out.copy_(x) for out, x in zip(outs, (q, k), strict=True)])
    ms = replayed(lambda: code.qk(q, k))
    moved = 4 * (q.numel() + k.numel())
    return {"suite": "lengths", "name": f"{tokens:,} tokens", "GB/s": moved / ms / 1e6, "of copy": copy / ms}

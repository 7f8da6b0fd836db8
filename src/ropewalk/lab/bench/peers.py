"""Other people's rotations, where they are installed: functions of q and k (B H N D), with their tables made beforehand.

Each says how its pairs lie, so that it is judged by the same, and gets q and k stored as it likes them.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Turn = Callable[[Tensor, Tensor], Sequence[Tensor]]


class Peer(NamedTuple):
    """A rotation by other people: what makes it from angles (n P) and a dtype, and the package that it needs."""

    name: str
    make: Callable[[Tensor, torch.dtype], Turn]
    interleaved: bool
    package: str = "torch"
    in_place: bool = False
    tokens_first: bool = False  # q and k lie in memory as (B N H D)
    on_cpu: bool = True
    eager: bool = True

    def prepared(self, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Copies of q and k that lie in memory as it wants them."""
        turned = [x.transpose(1, 2) if self.tokens_first else x for x in pair]
        q, k = (x.clone(memory_format=torch.contiguous_format) for x in turned)
        return (q.transpose(1, 2), k.transpose(1, 2)) if self.tokens_first else (q, k)


def installed(on: str) -> list[Peer]:
    """All whose packages are here and that run on such a device."""
    return [peer for peer in PEERS if importlib.util.find_spec(peer.package) and (peer.on_cpu or on != "cpu")]


def _tables(angle: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines for halves (1 n D)."""
    both = torch.cat([angle, angle], dim=-1)[None]
    return both.cos().to(dtype), both.sin().to(dtype)


def _plain(angle: Tensor, dtype: torch.dtype) -> Turn:
    cos, sin = _tables(angle, dtype)

    def halves(x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-b, a], dim=-1) * sin

    return lambda q, k: (halves(q), halves(k))


def _compiled(angle: Tensor, dtype: torch.dtype) -> Turn:
    return torch.compile(_plain(angle, dtype), fullgraph=True, dynamic=False)


def _complex(angle: Tensor, dtype: torch.dtype) -> Turn:
    turns = torch.polar(torch.ones_like(angle), angle)

    def pairs(x: Tensor) -> Tensor:
        numbers = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(numbers * turns).flatten(3).type_as(x)

    return lambda q, k: (pairs(q), pairs(k))


def _transformers(angle: Tensor, dtype: torch.dtype) -> Turn:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    cos, sin = _tables(angle, dtype)
    return lambda q, k: apply_rotary_pos_emb(q, k, cos, sin)


def _timm(angle: Tensor, dtype: torch.dtype) -> Turn:
    from timm.layers import apply_rot_embed_cat  # type: ignore[attr-defined]

    both = angle.repeat_interleave(2, dim=-1)
    table = torch.cat([both.sin(), both.cos()], dim=-1).to(dtype)
    return lambda q, k: (apply_rot_embed_cat(q, table), apply_rot_embed_cat(k, table))


def _liger(angle: Tensor, dtype: torch.dtype) -> Turn:
    from liger_kernel.transformers.rope import liger_rotary_pos_emb

    cos, sin = _tables(angle, dtype)
    return lambda q, k: liger_rotary_pos_emb(q, k, cos, sin)


def _flash(angle: Tensor, dtype: torch.dtype, *, in_place: bool) -> Turn:
    apply_rotary = importlib.import_module("flash_attn.ops.triton.rotary").apply_rotary
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)

    def one(x: Tensor) -> Tensor:
        return apply_rotary(x.transpose(1, 2), cos, sin, inplace=in_place).transpose(1, 2)

    return lambda q, k: (one(q), one(k))


PEERS = (
    Peer("plain formula, compiled", _compiled, False, eager=False),
    Peer("rope-vit's complex formula", _complex, True),
    Peer("transformers", _transformers, False, "transformers"),
    Peer("timm", _timm, True, "timm"),
    Peer("liger, in place", _liger, False, "liger_kernel", in_place=True, tokens_first=True, on_cpu=False),
    Peer("flash-attn", functools.partial(_flash, in_place=False), False, "flash_attn", tokens_first=True, on_cpu=False),
    Peer(
        "flash-attn, in place",
        functools.partial(_flash, in_place=True),
        False,
        "flash_attn",
        in_place=True,
        tokens_first=True,
        on_cpu=False,
    ),
)

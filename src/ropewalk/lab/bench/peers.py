"""Rotations of other libraries, where they are installed.

A `RotationPeer` makes a function of q and k (B H N D) from angles, so that its tables are made beforehand. It names its
layout of channel pairs, in which it is judged, and the memory layout of q and k that it is written for. `create_timm_axial`
and `create_timm_mixed` put rotary embeddings of timm into our ViT, whose blocks then use timm's tables and function.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.code import Code
from ropewalk.models import ViT

RotateFunction = Callable[[Tensor, Tensor], Sequence[Tensor]]


class RotationPeer(NamedTuple):
    """A rotation by other people: what makes it from angles (n P) and a dtype, and the package that it needs."""

    name: str
    make: Callable[[Tensor, torch.dtype], RotateFunction]
    interleaved: bool
    package: str = "torch"
    in_place: bool = False
    tokens_first: bool = False  # q and k lie in memory as (B N H D)
    on_cpu: bool = True
    eager: bool = True

    def copy_query_key(self, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Copies of q and k that lie in memory as it wants them."""
        turned = [x.transpose(1, 2) if self.tokens_first else x for x in pair]
        q, k = (x.clone(memory_format=torch.contiguous_format) for x in turned)
        return (q.transpose(1, 2), k.transpose(1, 2)) if self.tokens_first else (q, k)


def load_peer_function(module: str, name: str) -> Any:
    """A function or class of an optional package."""
    return getattr(importlib.import_module(module), name)


def list_installed_peers(on: str) -> list[RotationPeer]:
    """All whose packages are here and that run on such a device."""
    return [peer for peer in ROTATION_PEERS if importlib.util.find_spec(peer.package) and (peer.on_cpu or on != "cpu")]


def _make_tables(angle: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines for halves (1 n D)."""
    both = torch.cat([angle, angle], dim=-1)[None]
    return both.cos().to(dtype), both.sin().to(dtype)


def _make_plain(angle: Tensor, dtype: torch.dtype) -> RotateFunction:
    cos, sin = _make_tables(angle, dtype)

    def halves(x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-b, a], dim=-1) * sin

    return lambda q, k: (halves(q), halves(k))


def _make_compiled(angle: Tensor, dtype: torch.dtype) -> RotateFunction:
    return torch.compile(_make_plain(angle, dtype), fullgraph=True, dynamic=False)


def _make_complex(angle: Tensor, dtype: torch.dtype) -> RotateFunction:
    turns = torch.polar(torch.ones_like(angle), angle)

    def pairs(x: Tensor) -> Tensor:
        numbers = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(numbers * turns).flatten(3).type_as(x)

    return lambda q, k: (pairs(q), pairs(k))


def _make_transformers(angle: Tensor, dtype: torch.dtype) -> RotateFunction:
    apply_rotary_pos_emb = load_peer_function("transformers.models.llama.modeling_llama", "apply_rotary_pos_emb")
    cos, sin = _make_tables(angle, dtype)
    return lambda q, k: apply_rotary_pos_emb(q, k, cos, sin)


def _make_timm(angle: Tensor, dtype: torch.dtype) -> RotateFunction:
    apply_rot_embed_cat = load_peer_function("timm.layers", "apply_rot_embed_cat")
    both = angle.repeat_interleave(2, dim=-1)
    table = torch.cat([both.sin(), both.cos()], dim=-1).to(dtype)
    return lambda q, k: (apply_rot_embed_cat(q, table), apply_rot_embed_cat(k, table))


def _make_liger(angle: Tensor, dtype: torch.dtype) -> RotateFunction:
    liger_rotary_pos_emb = load_peer_function("liger_kernel.transformers.rope", "liger_rotary_pos_emb")
    cos, sin = _make_tables(angle, dtype)
    return lambda q, k: liger_rotary_pos_emb(q, k, cos, sin)


def _make_flash(angle: Tensor, dtype: torch.dtype, *, in_place: bool) -> RotateFunction:
    apply_rotary = load_peer_function("flash_attn.ops.triton.rotary", "apply_rotary")
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)

    def one(x: Tensor) -> Tensor:
        return apply_rotary(x.transpose(1, 2), cos, sin, inplace=in_place).transpose(1, 2)

    return lambda q, k: (one(q), one(k))


ROTATION_PEERS = (
    RotationPeer("plain formula, compiled", _make_compiled, False, eager=False),
    RotationPeer("rope-vit's complex formula", _make_complex, True),
    RotationPeer("transformers", _make_transformers, False, "transformers"),
    RotationPeer("timm", _make_timm, True, "timm"),
    RotationPeer("liger, in place", _make_liger, False, "liger_kernel", in_place=True, tokens_first=True, on_cpu=False),
    RotationPeer(
        "flash-attn", functools.partial(_make_flash, in_place=False), False, "flash_attn", tokens_first=True, on_cpu=False
    ),
    RotationPeer(
        "flash-attn, in place",
        functools.partial(_make_flash, in_place=True),
        False,
        "flash_attn",
        in_place=True,
        tokens_first=True,
        on_cpu=False,
    ),
)

TimmFactory = Callable[[ViT], nn.Module]


@dataclass(frozen=True, eq=False, kw_only=True)
class TimmCode(Code):
    """Turns q and k as timm's AttentionRope does."""

    table: Tensor  # ([L] [h] n 2D), sines and cosines

    def q(self, q: Tensor) -> Tensor:
        return load_peer_function("timm.layers", "apply_rot_embed_cat")(q, self.table).type_as(q)

    def k(self, k: Tensor) -> Tensor:
        return self.q(k)


class TimmEmbedding(nn.Module):
    """A rotary embedding of timm in the place of an encoding; its tables are those of the training grid."""

    size, waiting = (), False  # as models ask of encodings: a known grid, and nothing to be settled

    def __init__(self, embedding: nn.Module, layers: int) -> None:
        super().__init__()
        self.embedding, self.layers = embedding, layers

    def grid(self, *sizes: int, **options: Any) -> Tensor:
        """No positions: timm knows its own."""
        return torch.empty(0)

    def forward(self, positions: Tensor) -> TimmCode:
        """The code of all layers."""
        table: Tensor = self.embedding.get_embed()  # type: ignore[operator]
        return TimmCode(layers=self.layers, table=table if table.ndim == 4 else table.expand(self.layers, *table.shape))


def create_timm_axial(model: ViT) -> TimmEmbedding:
    """Heo et al.'s axial frequencies."""
    create = load_peer_function("timm.layers", "RotaryEmbeddingCat")
    made = model.encoding
    options: dict[str, Any] = {"temperature": 100.0, "feat_shape": list(made.size or ()), "grid_indexing": "xy"}
    return TimmEmbedding(create(made.head_dim, in_pixels=False, **options), len(model.blocks))


def create_timm_mixed(model: ViT) -> TimmEmbedding:
    """Heo et al.'s learned wave vectors, a set for each layer and head."""
    create = load_peer_function("timm.layers", "RotaryEmbeddingMixed")
    made, layers = model.encoding, len(model.blocks)
    options: dict[str, Any] = {"temperature": 10.0, "feat_shape": list(made.size or ()), "grid_indexing": "xy"}
    return TimmEmbedding(create(made.heads * made.head_dim, layers, made.heads, **options), layers)


def list_timm_factories() -> dict[str, TimmFactory]:
    """What timm has, if it is installed."""
    return {"timm, axial": create_timm_axial, "timm, mixed": create_timm_mixed} if find_spec("timm") else {}

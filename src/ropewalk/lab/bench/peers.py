"""Other people's rotations, where they are installed: functions of q and k (B H N D), with their tables made beforehand.

Each comes with its layout, so that it can be judged by a reference of the same.
"""

import importlib.util
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

Turn = Callable[[Tensor, Tensor], object]


class Peer(NamedTuple):
    """A rotation of q and k, and the layout of its pairs."""

    name: str
    turn: Turn
    interleaved: bool
    in_place: bool = False


def peers(angle: Tensor, dtype: torch.dtype) -> Iterator[Peer]:
    """All that are here, for angles (N P)."""
    yield Peer("plain formula, compiled", _compiled(angle, dtype), False)
    for package, make in (("transformers", _transformers), ("timm", _timm), ("liger_kernel", _liger)):
        if importlib.util.find_spec(package) is not None:
            yield make(angle, dtype)


def _tables(angle: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    both = torch.cat([angle, angle], dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)


def _compiled(angle: Tensor, dtype: torch.dtype) -> Turn:
    cos, sin = _tables(angle, dtype)

    def halves(x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-b, a], dim=-1) * sin

    return torch.compile(lambda q, k: (halves(q), halves(k)))


def _transformers(angle: Tensor, dtype: torch.dtype) -> Peer:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    cos, sin = (table[None] for table in _tables(angle, dtype))
    return Peer("transformers", lambda q, k: apply_rotary_pos_emb(q, k, cos, sin), False)


def _timm(angle: Tensor, dtype: torch.dtype) -> Peer:
    from timm.layers import apply_rot_embed_cat  # type: ignore[attr-defined]

    both = angle.repeat_interleave(2, dim=-1)
    table = torch.cat([both.sin(), both.cos()], dim=-1).to(dtype)
    return Peer("timm", lambda q, k: (apply_rot_embed_cat(q, table), apply_rot_embed_cat(k, table)), True)


def _liger(angle: Tensor, dtype: torch.dtype) -> Peer:
    from liger_kernel.ops.rope import LigerRopeFunction

    cos, sin = (table[None] for table in _tables(angle, dtype))
    return Peer("liger, in place", lambda q, k: LigerRopeFunction.apply(q, k, cos, sin), False, True)

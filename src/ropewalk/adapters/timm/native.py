"""The encoding that a model of timm's has already, with its parameters and its own rule for places."""

from dataclasses import dataclass
from typing import Any

import torch
from timm.layers.pos_embed_sincos import RotaryEmbeddingCat, RotaryEmbeddingDinoV3, RotaryEmbeddingMixed
from torch import nn

from ropewalk.adapters.timm.hosts import Host
from ropewalk.adapters.timm.names import TimmMixed, TimmMixedRowsFirst
from ropewalk.adapters.timm.rope import Moves, Rule
from ropewalk.encoding import Encoding
from ropewalk.factory import create

PLAIN, STILL = Rule(resolution="extrapolate"), Moves()
NORMALISED = {"separate": "separate", "max": "longer", "min": "shorter"}


@dataclass(frozen=True)
class Own:
    """What a model does by itself."""

    encoding: Encoding
    rule: Rule = PLAIN
    moves: Moves = STILL


def own(rope: nn.Module | None, host: Host) -> Own:
    """What timm's `rope` does, as an encoding, a rule and moves."""
    if rope is None:
        return Own(create("none", **host.shape))
    makers: dict[type, Any] = {RotaryEmbeddingCat: _axial, RotaryEmbeddingMixed: _mixed, RotaryEmbeddingDinoV3: _dinov3}
    if type(rope) not in makers:
        wanted = ", ".join(kind.__name__ for kind in makers)
        raise TypeError(f"the rope of the model must be one of {wanted} to be read, got {type(rope).__name__}")
    half = bool(getattr(rope, "rotate_half", False))
    if any(getattr(each, "rotate_half", False) != half for several in host.attentions for each in several):
        told = f"pairs for rotate_half={half}, and its attention turns others"
        raise ValueError(f"the model is at odds with itself: its table has {told}")
    return makers[type(rope)](rope, host)


def _axial(rope: RotaryEmbeddingCat, host: Host) -> Own:
    if rope.in_pixels:
        raise ValueError("frequencies must be those of patches, in_pixels=False, got in_pixels=True")
    reference = None if rope.ref_feat_shape is None else (rope.ref_feat_shape[0], rope.ref_feat_shape[1])
    shape = host.shape | {"layers": None, "size": reference or host.grid}
    variant = {"xy": "heo", "ij": "eva"}[rope.grid_indexing]
    half = bool(getattr(rope, "rotate_half", False))  # since timm 1.0.30
    encoding = create("axial", variant=variant, base=float(rope.temperature), interleaved=not half, **shape)
    return Own(encoding, Rule(resolution="extrapolate", offset=rope.grid_offset, reference=reference))


def _mixed(rope: RotaryEmbeddingMixed, host: Host) -> Own:
    kind = TimmMixed if rope.grid_indexing == "xy" else TimmMixedRowsFirst
    with torch.random.fork_rng(devices=[]):  # what it draws at its start is not kept
        encoding = kind(**host.shape).to(rope.freqs.device)
    with torch.no_grad():
        encoding.freqs.copy_(rope.freqs)
    return Own(encoding.requires_grad_(rope.freqs.requires_grad))


def _dinov3(rope: RotaryEmbeddingDinoV3, host: Host) -> Own:
    if rope.grid_offset:
        raise ValueError(f"the grid of dinov3 must not be moved, got grid_offset={rope.grid_offset}")
    ends = {"min_period": rope.min_period, "max_period": rope.max_period}
    law = {"base": rope.temperature} if None in ends.values() else ends
    shape = host.shape | {"layers": None, "coordinates": NORMALISED[rope.normalize_coords]}
    encoding = create("dinov3", interleaved=not rope.rotate_half, **law, **shape)
    moves = Moves(shift=rope.shift_coords, jitter=rope.jitter_coords, rescale=rope.rescale_coords)
    return Own(encoding, Rule(resolution="rescale"), moves)

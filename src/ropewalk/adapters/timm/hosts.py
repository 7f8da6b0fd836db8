"""What a model of timm's is: its family, heads and grid; and whether it can be given an encoding at all."""

import math
from dataclasses import dataclass
from typing import Any

from timm.layers.attention import Attention, AttentionRope
from timm.models.eva import Eva, EvaAttention
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from ropewalk.adapters.timm.class_swap import host_of
from ropewalk.adapters.timm.models import CodedEva, CodedModel, CodedViT, attentions

FAMILIES: dict[type[nn.Module], type[CodedModel]] = {VisionTransformer: CodedViT, Eva: CodedEva}
FORWARDS = tuple(kind.forward for kind in (Attention, AttentionRope, EvaAttention))


@dataclass(frozen=True, kw_only=True)
class Host:
    """The shape of a model: what an encoding for it must fit."""

    family: type[CodedModel]
    attentions: tuple[tuple[Any, ...], ...]  # of each block
    heads: int
    kv_heads: int | None
    head_dim: int
    width: int
    grid: tuple[int, int]

    @property
    def depth(self) -> int:
        """How many blocks there are."""
        return len(self.attentions)

    @property
    def shape(self) -> dict[str, Any]:
        """The arguments of `rw.create`."""
        shape = {"head_dim": self.head_dim, "heads": self.heads, "kv_heads": self.kv_heads, "axes": 2}
        return shape | {"layers": self.depth, "size": self.grid}


def look_at(model: Any) -> Host:
    """The shape of a model of timm's, or an error that gives the reason."""
    family = _family(model)
    found: tuple[tuple[Any, ...], ...] = tuple(tuple(attentions(block)) for block in model.blocks)
    for block, several in enumerate(found):
        kinds = [host_of(each).forward for each in several]
        if not kinds or any(kind not in FORWARDS for kind in kinds):
            got = ", ".join(type(each).__name__ for each in several) or type(model.blocks[block]).__name__
            raise TypeError(f"attention must be timm's Attention, AttentionRope or EvaAttention, got {got} in block {block}")
    heads = _common("num_heads", [each.num_heads for several in found for each in several])
    head_dim = _common("head_dim", [each.head_dim for several in found for each in several])
    keys = math.gcd(*(getattr(each, "num_kv_heads", heads) for several in found for each in several))
    if (grid := model.patch_embed.grid_size) is None:
        raise ValueError("the model must know its grid of patches: make it with img_size")
    return Host(
        family=family,
        attentions=found,
        heads=heads,
        kv_heads=None if keys == heads else keys,
        head_dim=head_dim,
        width=int(model.embed_dim),
        grid=(grid[0], grid[1]),
    )


def _family(model: nn.Module) -> type[CodedModel]:
    kind = host_of(model)
    for host, family in FAMILIES.items():
        names = ("forward_features", "forward_intermediates")
        if issubclass(kind, host) and all(getattr(kind, name) is getattr(host, name) for name in names):
            return family
    wanted = "timm's VisionTransformer or Eva, or a class that keeps their forward_features and forward_intermediates"
    raise TypeError(f"the model must be {wanted}, got {kind.__name__}")


def _common(name: str, values: list[int]) -> int:
    if len(set(values)) != 1:
        raise ValueError(f"all blocks must have the same {name}, got {values}")
    return values[0]

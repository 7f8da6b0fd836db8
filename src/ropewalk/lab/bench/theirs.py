"""timm's rotary attention inside our ViT: the same model, whose blocks turn q and k by timm's own tables and function."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.code import Code
from ropewalk.models import ViT

Host = Callable[[ViT], nn.Module]


@dataclass(frozen=True, eq=False, kw_only=True)
class Applied(Code):
    """Turns q and k as timm's AttentionRope does."""

    table: Tensor  # ([L] [h] n 2D), sines and cosines

    def q(self, q: Tensor) -> Tensor:
        from timm.layers import apply_rot_embed_cat  # type: ignore[attr-defined]

        return apply_rot_embed_cat(q, self.table).type_as(q)

    def k(self, k: Tensor) -> Tensor:
        return self.q(k)


class Embedding(nn.Module):
    """A rotary embedding of timm in the place of an encoding; its tables are those of the training grid."""

    def __init__(self, embedding: nn.Module, layers: int) -> None:
        super().__init__()
        self.embedding, self.layers = embedding, layers

    def grid(self, *sizes: int, **options: Any) -> Tensor:
        """No positions: timm knows its own."""
        return torch.empty(0)

    def forward(self, positions: Tensor) -> Applied:
        """The code of all layers."""
        table: Tensor = self.embedding.get_embed()  # type: ignore[operator]
        return Applied(layers=self.layers, table=table if table.ndim == 4 else table.expand(self.layers, *table.shape))


def axial(model: ViT) -> Embedding:
    """Heo et al.'s axial frequencies."""
    from timm.layers import RotaryEmbeddingCat  # type: ignore[attr-defined]

    made = model.encoding
    options: dict[str, Any] = {"temperature": 100.0, "feat_shape": list(made.size or ()), "grid_indexing": "xy"}
    return Embedding(RotaryEmbeddingCat(made.head_dim, in_pixels=False, **options), len(model.blocks))


def mixed(model: ViT) -> Embedding:
    """Heo et al.'s learned wave vectors, a set for each layer and head."""
    from timm.layers import RotaryEmbeddingMixed  # type: ignore[attr-defined]

    made, layers = model.encoding, len(model.blocks)
    options: dict[str, Any] = {"temperature": 10.0, "feat_shape": list(made.size or ()), "grid_indexing": "xy"}
    return Embedding(RotaryEmbeddingMixed(made.heads * made.head_dim, layers, made.heads, **options), layers)


def hosts() -> dict[str, Host]:
    """What timm has, if it is installed."""
    return {"timm, axial": axial, "timm, mixed": mixed} if find_spec("timm") else {}

"""A commuting encoding of a model, folded: RoPE-Mixed in its place, and its basis in the projections of q and k.

Norms of q and k that stand between the projections and the rotation (Qwen3, Gemma 3) must commute with the basis: they do
while their gains are all alike, as at the start of training, and are refused otherwise.
"""

from typing import TypeVar

import torch
from torch import Tensor, nn

from ropewalk.adapters.transformers.embedding import Positions
from ropewalk.adapters.transformers.hosts import Host, find
from ropewalk.adapters.transformers.installing import remark
from ropewalk.adapters.transformers.rebinding import host_class
from ropewalk.encoding import Encoding
from ropewalk.theory import fold_into as fold_module
from ropewalk.theory.projecting import Projection

KNOWN = {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm", "query_key_value", "dense"}
"""What attention may have that can be folded; its norms are looked at."""

Model = TypeVar("Model", bound=nn.Module)


class Folding(nn.Module):
    """A host as `ropewalk.fold_into` wants it."""

    def __init__(self, host: Host, encoding: Encoding) -> None:
        super().__init__()
        self.base, self.attentions = host.base, host.attentions
        self.place = {"encoding": encoding}
        self.copies = [_apart(each) for each in host.attentions] if hasattr(host.attentions[0], "query_key_value") else []

    @property
    def encoding(self) -> Encoding:
        """The encoding of all layers."""
        return self.place["encoding"]

    def projections(self) -> list[tuple[Projection, Projection]]:
        """Where q and k of each layer come from."""
        if self.copies:
            return [(Projection(q), Projection(k)) for q, k in self.copies]
        return [(_projection(each, "q"), _projection(each, "k")) for each in self.attentions]

    def write(self) -> None:
        """What was rewritten apart goes back into the projections that hold q, k and v together."""
        for attention, both in zip(self.attentions, self.copies, strict=False):
            for index, linear in enumerate(both):
                for name, rows in _rows(attention, index).items():
                    rows.copy_(getattr(linear, name).view_as(rows))


@torch.no_grad()
def fold_into(model: Model, tower: str | None = None) -> Model:
    """Fold the encoding of a model, for inference, in place. Returns the model.

    It computes what it did, with RoPE-Mixed, which is as quick as RoPE. From now on its weights go with this encoding alone:
    `uninstall` and other encodings are refused. A model that cannot be folded is refused, and left as it was.
    """
    host = find(model, tower)
    here = host.rotary
    if not isinstance(here, Positions) or not isinstance(here.encoding, Encoding):
        got = "one for each type of layers" if isinstance(here, Positions) else "none"
        raise TypeError(f"fold_into takes a model with one encoding of ropewalk for all layers (install), got {got}")
    for attention in host.attentions:
        _check_foldable(attention, here.encoding)
    folding = Folding(host, here.encoding)
    fold_module(folding)
    folding.write()
    here.folded = True
    remark(model, tower)
    return model


def _check_foldable(attention: nn.Module, encoding: Encoding) -> None:
    """Refuse attention in which something unknown stands between the projections of q and k and the rotation."""
    name = host_class(attention).__name__
    held = {child for child, module in attention.named_children() if any(True for _ in module.parameters())}
    if unknown := sorted(held - KNOWN):
        raise TypeError(f"{name} cannot be folded: {', '.join(unknown)} may stand between the projections and the rotation")
    if "query_key_value" in held or {"q_proj", "k_proj"} <= held:
        rows = [getattr(attention, each).weight.shape[0] for each in ("q_proj", "k_proj") if each in held]
        wanted = [encoding.heads * encoding.head_dim, encoding.own_heads * encoding.head_dim]
        if not rows or rows == wanted:
            return
        raise TypeError(f"{name} cannot be folded: its projections have {rows} rows, and the encoding rotates {wanted}")
    raise TypeError(f"{name} cannot be folded: it needs q_proj and k_proj, or query_key_value, got {sorted(held)}")


def _projection(attention: nn.Module, side: str) -> Projection:
    norm = getattr(attention, f"{side}_norm", None)
    return Projection(getattr(attention, f"{side}_proj"), between=() if norm is None else (norm,))


def _rows(attention: nn.Module, index: int) -> dict[str, Tensor]:
    """The rows of q (0) or k (1) in a projection whose heads have q, k and v one after another."""
    linear, size = attention.query_key_value, attention.head_size
    assert isinstance(linear, nn.Linear)
    named = {"weight": linear.weight} | ({} if linear.bias is None else {"bias": linear.bias})
    return {name: value.unflatten(0, (-1, 3, size))[:, index] for name, value in named.items()}


def _apart(attention: nn.Module) -> tuple[nn.Linear, nn.Linear]:
    """Copies of q and k of such a projection, each a linear layer of its own."""
    return _copy(_rows(attention, 0)), _copy(_rows(attention, 1))


def _copy(rows: dict[str, Tensor]) -> nn.Linear:
    weight = rows["weight"].flatten(0, 1)
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias="bias" in rows, device=weight.device, dtype=weight.dtype)
    for name, value in rows.items():
        getattr(linear, name).copy_(value.flatten(0, 1))
    return linear

"""timm's models and blocks with codes: `Eva` has a place for them in its blocks, a plain ViT hands them on with the mask."""

import threading
from typing import Any, NamedTuple, cast

from timm.layers.patch_dropout import PatchDropoutWithIndices
from timm.models._manipulate import checkpoint
from torch import Tensor, nn

from ropewalk.adapters.timm.attention import Handed
from ropewalk.adapters.timm.class_swap import Swapped
from ropewalk.adapters.timm.rope import Rope
from ropewalk.code import Code, Sealed
from ropewalk.encoding import Encoding
from ropewalk.theory import Projection


class Placement(NamedTuple):
    """How many rows and columns of patches there are, their positions, and the code of all of them."""

    sizes: tuple[int, int]
    positions: Tensor
    code: Code


class CodedModel(Swapped):
    """What both kinds of models have in common."""

    before: Any
    rope: Rope
    blocks: nn.Sequential | nn.ModuleList
    num_prefix_tokens: int

    @property
    def encoding(self) -> Encoding:
        """The encoding of all layers."""
        return self.rope.encoding

    def projections(self) -> list[tuple[Projection, Projection]]:
        """Where queries and keys come from, layer by layer: for `fold_into`."""
        return [_projections(attention) for block in self.blocks for attention in attentions(block)]

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that weight decay would spoil: timm's, and those of the encoding."""
        return super().no_weight_decay() | {f"rope.{name}" for name in self.rope.no_weight_decay()}  # type: ignore[misc]

    def _placed(self, x: Tensor) -> tuple[Tensor, Placement]:
        """Patches (B N C) or (B rows columns C) with what the code adds to tokens, and where they are."""
        flat = x.flatten(1, -2)
        sizes = (x.shape[1], x.shape[2]) if x.ndim == 4 else cast(Any, self.patch_embed).grid_size
        positions = self.rope.positions(sizes, x.device)
        code = self.rope.code(positions, sizes)
        added = code.tokens(flat)
        return x if added is flat else added.view(x.shape), Placement(sizes, positions, code)

    def _kept(self, x: Tensor, placement: Placement) -> tuple[Tensor, tuple[Sealed, ...]]:
        """Tokens (B N C) after patches were dropped, and the codes of those that are left."""
        sizes, positions, code = placement
        if isinstance(self.patch_drop, KeepingPatchDropout):
            x, kept = self.patch_drop.drop(x)
            code = code if kept is None else self.rope.code(positions[kept], sizes)
        return x, self.rope.codes(code, self.num_prefix_tokens, len(self.blocks))


class CodedEva(CodedModel):
    """`Eva`, with one code for each block in the place of its tables."""

    def _pos_embed(self, x: Tensor) -> tuple[Tensor, tuple[Sealed, ...]]:
        x, placement = self._placed(x)
        x, _ = super()._pos_embed(x)  # type: ignore[misc]
        return self._kept(x, placement)


class Passing(threading.local):
    """What is on its way from the forward method of a plain ViT to its `_pos_embed`, in each thread."""

    handed: Handed | None = None


PASSING = Passing()


class CodedViT(CodedModel):
    """`VisionTransformer`. Its forward methods make a `Handed`, which `_pos_embed` fills."""

    def forward_features(self, x: Tensor, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
        handed = self._hand(attn_mask)
        try:
            return super().forward_features(x, attn_mask=handed, is_causal=is_causal)  # type: ignore[misc]
        finally:
            PASSING.handed = None

    def forward_intermediates(self, x: Tensor, *args: Any, attn_mask: Any = None, **options: Any) -> Any:
        handed = self._hand(attn_mask)
        try:
            return super().forward_intermediates(x, *args, attn_mask=handed, **options)  # type: ignore[misc]
        finally:
            PASSING.handed = None

    def _hand(self, mask: Tensor | None) -> Handed:
        PASSING.handed = handed = Handed(mask, checkpointing=bool(self.grad_checkpointing))
        return handed

    def _pos_embed(self, x: Tensor) -> Tensor:
        x, placement = self._placed(x)
        x, codes = self._kept(super()._pos_embed(x), placement)  # type: ignore[misc]
        if PASSING.handed is not None:
            PASSING.handed.codes = codes
        return x


class CodedBlock(Swapped):
    """A block of a plain ViT. timm does not save memory where there is a mask: here it does."""

    def forward(self, x: Tensor, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
        run = super().forward
        if isinstance(attn_mask, Handed) and attn_mask.checkpointing:
            return checkpoint(run, x, attn_mask=attn_mask, is_causal=is_causal)
        return run(x, attn_mask=attn_mask, is_causal=is_causal)


class KeepingPatchDropout(Swapped):
    """Patch dropout, asked for before the model asks: then it tells which patches it kept, and later it does nothing."""

    def forward(self, x: Tensor) -> Any:
        return (x, None) if issubclass(self.host, PatchDropoutWithIndices) else x

    def drop(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tokens (B N C), some of them dropped in training, and the indices (B n) of those that are left."""
        return PatchDropoutWithIndices.forward(cast(Any, self), x)


def attentions(block: nn.Module) -> list[nn.Module]:
    """The attention of a block: one, or several in parallel."""
    if hasattr(block, "attns"):
        return [cast(nn.Module, each.attn) for each in cast(nn.ModuleList, block.attns)]
    return [cast(nn.Module, block.attn)] if hasattr(block, "attn") else []


def _projections(attention: Any) -> tuple[Projection, Projection]:
    between = (attention.q_norm,), (attention.k_norm,)
    if attention.qkv is None:
        return Projection(attention.q_proj, between=between[0]), Projection(attention.k_proj, between=between[1])
    width = attention.qkv.out_features // 3
    rows = slice(0, width), slice(width, 2 * width)
    return Projection(attention.qkv, rows[0], between[0]), Projection(attention.qkv, rows[1], between[1])

"""A plain vision transformer with any positional encoding, for images and volumes.

    vit = ViT("small", encoding="mixed", size=(224, 224), patch=16, classes=1000)
    logits = vit(images)
    maps = vit.maps(images)   # (B 384 14 14), for detection and segmentation

The encoding is made for all layers at once; its code is made once a forward pass, and each block gets its layer's.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ropewalk.arguments import LARGEST_SIZE, floating, instance_of, integer, number, one_of, positives, same_device
from ropewalk.attention import attend_qkv
from ropewalk.code import Code, Sealed, unseal
from ropewalk.encoding import Encoding
from ropewalk.factory import create
from ropewalk.image_sizes import place_patches, settle_size
from ropewalk.positions import Resolution, check_resolution
from ropewalk.theory import Projection

PRESETS = {
    "tiny": {"width": 192, "depth": 12, "heads": 3},
    "small": {"width": 384, "depth": 12, "heads": 6},
    "base": {"width": 768, "depth": 12, "heads": 12},
}


class ViT(nn.Module):
    """Patches, tokens, blocks, one vector, classes.

    preset       "tiny", "small" or "base"; `width`, `depth` and `heads` replace its numbers.
    encoding     The name of an encoding, with its `options`.
    size         Of the images or volumes in training, one number an axis; patch is one number or one an axis.
    pool         "mean" over the patches, or "class": a learned token that comes first.
    registers    Learned tokens that come after the class token and are not read.
    layer_scale  The start of a learned gain on every branch, or None.
    dropout      Of embedded patches, of attention weights, and of what both branches give and the perceptron holds.
    drop_path    The probability of leaving out a branch of the last block; earlier blocks have less, in proportion.
    """

    prefix: nn.Parameter | None

    def __init__(
        self,
        preset: str = "small",
        *,
        encoding: str = "none",
        options: Mapping[str, Any] | None = None,
        size: Sequence[int] = (224, 224),
        patch: int | Sequence[int] = 16,
        channels: int = 3,
        classes: int = 1000,
        width: int | None = None,
        depth: int | None = None,
        heads: int | None = None,
        ratio: float = 4.0,
        pool: str = "mean",
        registers: int = 0,
        layer_scale: float | None = None,
        drop_path: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        chosen = PRESETS[one_of("preset", preset, PRESETS)]
        width, depth, heads = (
            integer(n, chosen[n] if given is None else given, least=1, most=LARGEST_SIZE)
            for n, given in (("width", width), ("depth", depth), ("heads", heads))
        )
        size = positives("size", (size,) if isinstance(size, int) else size)
        self.axes, self.pool = len(size), one_of("pool", pool, ("mean", "class"))
        self.patch = positives("patch", (patch,) * self.axes if isinstance(patch, int) else patch)
        classes, channels = (
            integer(n, x, least=1, most=LARGEST_SIZE) for n, x in (("classes", classes), ("channels", channels))
        )
        registers = integer("registers", registers, least=0, most=LARGEST_SIZE)
        drop_path, dropout = number("drop_path", drop_path, least=0), number("dropout", dropout, least=0)
        layer_scale = None if layer_scale is None else number("layer_scale", layer_scale, least=-1e6, most=1e6)
        if not (drop_path < 1 and dropout < 1):
            raise ValueError(f"drop_path and dropout must be in [0, 1), got {drop_path} and {dropout}")
        if not 1 <= number("ratio", ratio) * width <= LARGEST_SIZE:
            raise ValueError(f"ratio must give a hidden width from 1 to {LARGEST_SIZE}, got {ratio} for a width of {width}")
        if (
            self.axes not in (2, 3)
            or len(self.patch) != self.axes
            or any(n % p for n, p in zip(size, self.patch, strict=True))
        ):
            raise ValueError(f"size must be 2 or 3 multiples of the patch, got {tuple(size)} and {self.patch}")
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got {width} and {heads}")
        grid = tuple(n // p for n, p in zip(size, self.patch, strict=True))
        self.grid = grid
        shape = {"head_dim": width // heads, "heads": heads, "axes": self.axes, "layers": depth, "size": grid}
        if options is not None:
            shape |= instance_of("options", options, Mapping)
        self.encoding = create(encoding, **shape)
        self.embed = nn.Linear(channels * math.prod(self.patch), width)
        self.tokens = (pool == "class") + registers
        self.register_parameter("prefix", nn.Parameter(torch.empty(1, self.tokens, width)) if self.tokens else None)
        rates = [drop_path * i / max(depth - 1, 1) for i in range(depth)]
        self.blocks = nn.ModuleList(Block(width, heads, ratio, layer_scale, rate, dropout) for rate in rates)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Truncated normal weights of deviation 0.02, biases 0; norms, gains and the encoding as they were made.

        The embedding of patches starts as PyTorch starts a convolution, as in timm: with 0.02 its tokens would be four times
        smaller for patches of 4 x 4, and what layers add would drown them.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm | Block):
                module.reset_parameters()
        self.embed.reset_parameters()
        if self.prefix is not None:
            nn.init.trunc_normal_(self.prefix, std=0.02)
        for module in self.encoding.modules():  # last: what it draws leaves all other weights as they are
            if isinstance(module, Encoding):
                module.reset_parameters()

    def forward(self, images: Tensor, positions: Tensor | None = None, *, resolution: Resolution | None = None) -> Tensor:
        """Logits (B classes) of images (B channels *sizes), at any size that patches divide.

        At another size than in training positions are rescaled to the extent of training, or with resolution="extrapolate"
        continued at the same distance; where a rule of context extension is given, it decides. See `Encoding.grid`.

        `positions` of the patches, (N, axes) or (B, N, axes), replace those of the encoding's grid.
        """
        x = self.features(images, positions, resolution=resolution)
        return self.head(x[:, 0] if self.pool == "class" else x[:, self.tokens :].mean(1))

    def maps(self, images: Tensor, positions: Tensor | None = None, *, resolution: Resolution | None = None) -> Tensor:
        """What is known of each patch, in its place: (B width *grid), for dense tasks."""
        x = self.features(images, positions, resolution=resolution)[:, self.tokens :]
        return x.mT.unflatten(2, [n // p for n, p in zip(images.shape[2:], self.patch, strict=True)])

    def features(self, images: Tensor, positions: Tensor | None = None, *, resolution: Resolution | None = None) -> Tensor:
        """The tokens after the last block and norm, (B, tokens + N, width): class token and registers, then patches."""
        floating("images", images)
        weight = self.embed.weight if isinstance(self.embed.weight, Tensor) else images  # quantised layers have a method
        same_device(images=images, weights=weight)
        if images.dtype != weight.dtype and not torch.is_autocast_enabled(images.device.type):
            wanted = f"images must have the dtype of the model's weights, {weight.dtype}, outside of autocast"
            raise ValueError(f"{wanted}, got {images.dtype}")
        if resolution is not None:
            check_resolution(resolution, self.axes)
        sides, channels = images.shape[2:], self.embed.in_features // math.prod(self.patch)
        fits = len(sides) == self.axes and all(n and not n % p for n, p in zip(sides, self.patch, strict=True))
        if not fits or images.shape[1] != channels:
            wanted = f"images must be (B, {channels}, {self.axes} sides that the patch {self.patch} divides)"
            raise ValueError(f"{wanted}, got {tuple(images.shape)}")
        x = self.embed(patches(images, self.patch))
        sizes = x.shape[1:-1]
        if positions is None:
            positions = place_patches(self.encoding, sizes, known=self.grid, resolution=resolution, device=x.device)
        x, count = x.flatten(1, -2), self.tokens
        code = settle_size(self.encoding, sizes)(positions).prefixed(q=count, k=count)
        if self.prefix is not None:
            x = torch.cat([self.prefix.to(x.dtype).expand(x.shape[0], -1, -1), x], dim=1)
        x = self.dropout(code.tokens(x))
        for block, own in zip(self.blocks, code.unbind(), strict=True):
            x = block(x, Sealed(own))
        return self.norm(x)

    def with_encoding(self, encoding: Encoding) -> "ViT":
        """The same model, sharing all weights, with another encoding."""
        other = copy.copy(self)
        other._modules = {**self._modules, "encoding": encoding}
        return other

    def projections(self) -> list[tuple[Projection, Projection]]:
        """The rows of each block's projection that make q and those that make k: for `ropewalk.fold_into`."""
        found = []
        for block in self.blocks:
            linear = cast(nn.Linear, block.qkv)
            width = linear.in_features
            found.append((Projection(linear, slice(0, width)), Projection(linear, slice(width, 2 * width))))
        return found

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that weight decay would spoil: those of the encoding, of tokens, norms, gains and biases."""
        encoding = {f"encoding.{name}" for name, _ in self.encoding.named_parameters()}
        return encoding | {"prefix"} | {name for name, parameter in self.named_parameters() if parameter.ndim < 2}


def patches(images: Tensor, patch: Sequence[int]) -> Tensor:
    """Images (B C *sizes) cut into patches, (B *grid C·patch): a linear map of them is a convolution."""
    axes = len(patch)
    for axis, side in enumerate(patch):
        images = images.unflatten(2 + 2 * axis, (-1, side))
    whole, inner = range(2, 2 + 2 * axes, 2), range(3, 3 + 2 * axes, 2)
    return images.permute(0, *whole, 1, *inner).flatten(-1 - axes)


class Block(nn.Module):
    """Attention and a perceptron, each after a norm and beside a shortcut."""

    keep: Tensor

    def __init__(
        self, width: int, heads: int, ratio: float, layer_scale: float | None, drop_path: float, dropout: float
    ) -> None:
        super().__init__()
        self.heads, self.drop_path, self.dropout, self.dropping = heads, drop_path, dropout, drop_path > 0
        self.layer_scale = layer_scale
        # as a number, it would be compiled for each block anew
        self.register_buffer("keep", torch.tensor(1 - drop_path), persistent=False)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, int(ratio * width)), nn.Linear(int(ratio * width), width)
        self.scale1, self.scale2 = (None if layer_scale is None else nn.Parameter(torch.empty(width)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """What no layer of its own resets."""
        self.keep.fill_(1 - self.drop_path)
        for scale in (self.scale1, self.scale2):
            if scale is not None and self.layer_scale is not None:
                nn.init.constant_(scale, self.layer_scale)

    def forward(self, x: Tensor, code: Code | Sealed) -> Tensor:
        x = x + self._branch(self._attention(self.norm1(x), unseal(code)), self.scale1)
        return x + self._branch(self._perceptron(self.norm2(x)), self.scale2)

    def _attention(self, x: Tensor, code: Code) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3 * self.heads, -1))
        out = attend_qkv(qkv, self.heads, code, dropout=self.dropout if self.training else 0.0)
        return self._dropped(self.proj(out.transpose(1, 2).flatten(2)))

    def _perceptron(self, x: Tensor) -> Tensor:
        return self._dropped(self.down(self._dropped(F.gelu(self.up(x)))))

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.training and self.dropout else x

    def _branch(self, x: Tensor, scale: Tensor | None) -> Tensor:
        """What is added to the shortcut: scaled, and left out for some samples in training."""
        x = x if scale is None else x * scale
        if not (self.training and self.dropping):
            return x
        return x * torch.bernoulli(self.keep.expand(x.shape[0], 1, 1)).to(x.dtype) / self.keep.to(x.dtype)

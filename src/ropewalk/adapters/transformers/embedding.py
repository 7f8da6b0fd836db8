"""The modules that take the place of a model's rotary embedding."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk import positions as places
from ropewalk.adapters.transformers import apply_rotary
from ropewalk.adapters.transformers.apply_rotary import Few, lighter
from ropewalk.adapters.transformers.code_state import Carried, each_layer
from ropewalk.code import Chain, Code, Sealed
from ropewalk.encoding import Encoding
from ropewalk.factory import Chained

STARTED = "_is_hf_initialized"  # by which transformers knows that it need not start a module


class Positions(nn.Module):
    """Holds an encoding, or one for each type of layers, so that it trains, moves and is saved with the model.

    host    The rotary embedding that was here.
    folded  Whether the weights of q and k hold the basis of the encoding.
    light   Whether all layers turn alike by what nobody learns, so that a code alone goes through the model, without hooks.
    """

    def __init__(
        self, encoding: Encoding | dict[str, Encoding], host: nn.Module, count: int, config: Any, *, folded: bool = False
    ) -> None:
        super().__init__()
        self.encoding = nn.ModuleDict(encoding) if isinstance(encoding, dict) else encoding
        self.host, self.count, self.folded, self.light = host, count, folded, False
        self.host_config = config

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        apply_rotary.teach(sys.modules[type(self.host).__module__])

    def of(self, layer_type: str | None) -> Encoding:
        """The encoding of a type of layers."""
        found = self.encoding[str(layer_type)] if isinstance(self.encoding, nn.ModuleDict) else self.encoding
        assert isinstance(found, Encoding)
        return found

    @property
    def own(self) -> Encoding | dict[str, Encoding]:
        """The encoding, or those of all types of layers."""
        return self.of(None) if isinstance(self.encoding, Encoding) else {kind: self.of(kind) for kind in self.encoding}

    def carried(self, make: Callable[[], Code], positions: Tensor, encoding: Encoding) -> Carried | tuple[Sealed, Sealed]:
        """The codes that a forward pass carries, in the place of cosines and sines."""
        code = make()
        if self.light:
            return Sealed(code), Sealed(code)
        learned = torch.is_grad_enabled() and any(weight.requires_grad for weight in encoding.parameters())
        return Carried(code, each_layer(code, self.count), positions, biased(encoding, code), make if learned else None)


class TextPositions(Positions):
    """For texts: called as the rotary embedding of a decoder."""

    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str | None = None
    ) -> Carried | tuple[Sealed | Few, Sealed | Few]:
        """The codes for tokens at (B N) or (1 N) positions."""
        encoding = self.of(layer_type)
        if by_length(encoding):
            encoding = encoding.at(int(position_ids.max()) + 1)
        if self.light:
            found = lighter(encoding(position_ids), x)
            turn = Sealed(found) if isinstance(found, Code) else found
            return turn, turn
        return self.carried(partial(encoding, position_ids), position_ids, encoding)


class ImagePositions(Positions):
    """For images: called as the rotary embedding of DINOv3, whose class and register tokens have no position."""

    def forward(self, pixel_values: Tensor) -> Carried | tuple[Sealed, Sealed]:
        """The codes for the patches of images (B C H W)."""
        config, encoding = self.host_config, self.of(None)
        patch = pair(config.patch_size)
        sizes = [n // p for n, p in zip(pixel_values.shape[-2:], patch, strict=True)]
        points = self._moved(encoding.grid(*sizes, device=pixel_values.device))
        prefix = 1 + config.num_register_tokens
        return self.carried(lambda: encoding(points).prefixed(q=prefix, k=prefix), points, encoding)

    def _moved(self, points: Tensor) -> Tensor:
        """Positions as DINOv3 varies them in training."""
        if not self.training:
            return points
        config = self.host_config
        moves = (places.shift, config.pos_embed_shift), (places.jitter, config.pos_embed_jitter)
        for move, amount in (*moves, (places.rescale, config.pos_embed_rescale)):
            points = points if amount is None else move(points, amount)
        return points


def started(encoding: Encoding) -> None:
    """Keep transformers from starting an encoding anew."""
    for part in encoding.modules():
        setattr(part, STARTED, True)


def pair(size: Any) -> tuple[int, int]:
    """A number twice, or two numbers."""
    return (size, size) if isinstance(size, int) else tuple(size)


def parts(encoding: Encoding) -> list[Encoding]:
    """An encoding, or those that a chain is made of."""
    return encoding._parts() if isinstance(encoding, Chained) else [encoding]


def biased(encoding: Encoding, code: Code) -> list[Encoding]:
    """Those parts of an encoding that add to the logits; `code` is its code."""
    codes = code.codes if isinstance(encoding, Chained) and isinstance(code, Chain) else (code,)
    return [part for part, own in zip(parts(encoding), codes, strict=True) if own.biased]


def by_length(encoding: Encoding) -> bool:
    """Whether its answer depends on the length of the text, which nobody has told."""
    return any(
        getattr(getattr(part, "rule", None), "needs_length", False) and getattr(part, "length", None) is None
        for part in parts(encoding)
    )

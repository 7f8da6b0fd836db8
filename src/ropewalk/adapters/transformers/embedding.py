"""The modules that take the place of a model's rotary embedding."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk import positions as places
from ropewalk.adapters.transformers.apply_rotary import lighter
from ropewalk.adapters.transformers.code_state import Carried, each_layer
from ropewalk.adapters.transformers.token_rows import SealedTable
from ropewalk.code import Chain, Code
from ropewalk.encoding import Encoding
from ropewalk.factory import Chained
from ropewalk.image_sizes import place_patches, settle_size

STARTED = "_is_hf_initialized"  # by which transformers knows that it need not start a module


class Positions(nn.Module):
    """Holds an encoding, or one for each type of layers, so that it trains, moves and is saved with the model.

    host    The rotary embedding that was here.
    use     How the host uses it, a `host_use.HostUse`.
    folded  Whether the weights of q and k hold the basis of the encoding.
    light   Whether all layers turn alike by what nobody learns, so that a code alone goes through the model, without hooks.
    few     Whether few tokens may be turned in few calls.
    layer   Whose code is wanted here, where each attention has a rotary embedding of its own.
    """

    def __init__(
        self,
        encoding: Encoding | dict[str, Encoding],
        host: nn.Module,
        count: int,
        config: Any,
        use: Any,
        *,
        folded: bool = False,
    ) -> None:
        super().__init__()
        self.encoding = nn.ModuleDict(encoding) if isinstance(encoding, dict) else encoding
        self.host, self.count, self.folded, self.light = host, count, folded, False
        self.use, self.few = use, False
        self.layer: int | None = None
        self.host_config = config

    def __getattr__(self, name: str) -> Any:
        """What models ask of their rotary embedding besides."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("host"), name)

    def of(self, layer_type: str | None) -> Encoding:
        """The encoding of a type of layers."""
        found = self.encoding[str(layer_type)] if isinstance(self.encoding, nn.ModuleDict) else self.encoding
        if not isinstance(found, Encoding):
            advice = "with PEFT, name the module that holds it: modules_to_save=['rotary_emb']"
            raise TypeError(f"an encoding must stand by itself, got a {type(found).__name__} around it: {advice}")
        return found

    @property
    def own(self) -> Encoding | dict[str, Encoding]:
        """The encoding, or those of all types of layers."""
        return self.of(None) if isinstance(self.encoding, Encoding) else {kind: self.of(kind) for kind in self.encoding}

    def carried(self, make: Callable[[], Code], positions: Tensor, encoding: Encoding, layer: int | None = None) -> Any:
        """The codes that a forward pass carries, or that of one layer, in the place of cosines and sines."""
        code = make()
        if self.light:
            return self.spread(SealedTable(code))
        if layer is not None:
            return self.spread(SealedTable(each_layer(code, self.count)[layer]))
        learned = torch.is_grad_enabled() and any(weight.requires_grad for weight in encoding.parameters())
        biases = biased(encoding, code)
        return self.spread(Carried(code, each_layer(code, self.count), positions, biases, make if learned else None))

    def spread(self, carried: Any) -> Any:
        """What a host takes apart into cosines and sines, or uses as one table."""
        carried.flat = self.use.ids == "flat"
        return carried if self.use.single else (carried, carried)


class IdPositions(Positions):
    """Called as the rotary embeddings of decoders, and of towers that are given the positions of their tokens."""

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Any:
        """The codes for tokens at these positions."""
        return self.make(x, position_ids, layer_type, self.layer)

    def make(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None, layer: int | None = None) -> Any:
        """The codes of all layers, or that of one."""
        encoding = self.of(layer_type)
        points = self._points(position_ids, encoding)
        if by_length(encoding):
            encoding = encoding.at(int(points.max()) + 1)
        if self.light and self.few:
            found = lighter(encoding(points), x)
            return self.spread(SealedTable(found) if isinstance(found, Code) else found)
        return self.carried(partial(encoding, points), points, encoding, layer)

    def _points(self, ids: Tensor, encoding: Encoding) -> Tensor:
        """Positions as encodings take them: (B N) of tokens, else ([B] N A)."""
        if self.use.ids == "tokens":
            return ids
        if self.use.ids == "axes first":
            ids = ids.expand(encoding.axes, -1, -1).movedim(0, -1)
        return ids if ids.is_floating_point() else ids.float()


class Follower(nn.Module):
    """Stands in a layer that has a rotary embedding of its own: it asks the `Positions` of the first layer.

    host   The rotary embedding that was here.
    layer  Whose code it returns.
    """

    def __init__(self, leader: IdPositions, host: nn.Module, layer: int) -> None:
        super().__init__()
        self.host, self.layer = host, layer
        self.leader = (leader,)  # no child of this module: it would be saved once for each layer

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Any:
        """The code of this layer."""
        return self.leader[0].make(x, position_ids, layer_type, self.layer)


class ImagePositions(Positions):
    """For images: called as the rotary embedding of DINOv3, whose class and register tokens have no position."""

    def forward(self, pixel_values: Tensor) -> Any:
        """The codes for the patches of images (B C H W)."""
        config, encoding = self.host_config, self.of(None)
        patch = pair(config.patch_size)
        sizes = [n // p for n, p in zip(pixel_values.shape[-2:], patch, strict=True)]
        known = [n // p for n, p in zip(pair(config.image_size), patch, strict=True)]
        rescaled = encoding.size is not None and encoding.own_resolution is None
        resolution = "rescale" if rescaled else None
        points = place_patches(encoding, sizes, known=known, resolution=resolution, device=pixel_values.device)
        points = self._moved(points)
        settled, prefix = settle_size(encoding, sizes), 1 + config.num_register_tokens
        return self.carried(lambda: settled(points).prefixed(q=prefix, k=prefix), points, settled)

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
    """Keep transformers from starting an encoding anew, unless it is on the meta device, where it has no values yet."""
    for part in encoding.modules():
        if not any(tensor.is_meta for tensor in (*part.parameters(), *part.buffers())):
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


def settle_for_trial(encoding: Encoding) -> Encoding:
    """An encoding that may depend on the length of a text or the size of an image, for a trial of one token."""
    if not encoding.waiting:
        return encoding
    return encoding.at(1) if encoding.axes == 1 else encoding.at([1] * encoding.axes)

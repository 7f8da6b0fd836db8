"""What stands at `model.rope`: an encoding, the places of patches, and what moves these in training."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ropewalk import positions as places
from ropewalk.adapters.timm import names
from ropewalk.code import Code, Sealed
from ropewalk.encoding import Encoding
from ropewalk.image_sizes import place_patches, settle_size
from ropewalk.positions import Resolution


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Where patches stand: on the encoding's grid, moved by `offset` along all axes, and squeezed into `reference` if any.

    The last two are for models of timm's that were trained so; new encodings have their grid as it is. Without a resolution
    the encoding decides. `known` is the grid that the model had when it got its encoding.
    """

    resolution: Resolution | None = None
    offset: float = 0.0
    reference: tuple[int, int] | None = None
    known: tuple[int, int] = field(default=(1, 1), repr=False)

    def __call__(self, encoding: Encoding, sizes: tuple[int, int], device: torch.device) -> Tensor:
        p = place_patches(encoding, sizes, known=self.known, resolution=self.resolution, device=device)
        p = p + self.offset if self.offset else p
        if self.reference is None:
            return p
        columns = [p[:, axis] / size * ref for axis, (size, ref) in enumerate(zip(sizes, self.reference, strict=True))]
        return torch.stack(columns, dim=-1)


@dataclass(frozen=True, kw_only=True)
class Moves:
    """What moves all tokens of a batch in training, as DINOv3 does, in the coordinates of the encoding."""

    shift: float | None = None
    jitter: float | None = None
    rescale: float | None = None

    def __call__(self, p: Tensor) -> Tensor:
        p = p if self.shift is None else places.shift(p, self.shift)
        p = p if self.jitter is None else places.jitter(p, self.jitter)
        return p if self.rescale is None else places.rescale(p, self.rescale)


@dataclass(frozen=True)
class Placed:
    """Where the patches of one `Rope` stand for a while."""

    rope: "Rope"
    positions: Tensor | None
    resolution: Resolution | None


class Placing(threading.local):
    """All that is placed just now, in each thread, the latest first."""

    def __init__(self) -> None:
        self.now: tuple[Placed, ...] = ()  # no default of the class: compilers of torch 2.9 would not look here again


PLACING = Placing()


class Rope(nn.Module):
    """An encoding with the methods that timm's models call on their `rope`.

    `columns_first` says of a model that had learned frequencies which axis they name first: so they are read from its
    checkpoints.
    """

    def __init__(self, encoding: Encoding, rule: Rule, moves: Moves, columns_first: bool | None = None) -> None:
        super().__init__()
        self.encoding, self.rule, self.moves, self.columns_first = encoding, rule, moves, columns_first
        self.register_state_dict_post_hook(names.write)
        self.register_load_state_dict_pre_hook(names.read)

    @contextmanager
    def placed(self, positions: Tensor | None = None, resolution: Resolution | None = None) -> Iterator[None]:
        """For a while, in this thread, patches stand at these places, (N, 2) or (B, N, 2), or are spaced otherwise.

        They do not move then.
        """
        before = PLACING.now
        PLACING.now = (Placed(self, positions, resolution), *before)
        try:
            yield
        finally:
            PLACING.now = before

    def positions(self, sizes: tuple[int, int], device: torch.device) -> Tensor:
        """The places of a grid of patches, (N, 2), or those that are given; in training, moved."""
        for placed in PLACING.now:
            if placed.rope is self:
                return self._placed(placed, sizes, device)
        p = self.rule(self.encoding, sizes, device)
        return self.moves(p) if self.training else p

    def _placed(self, placed: Placed, sizes: tuple[int, int], device: torch.device) -> Tensor:
        if placed.positions is not None:
            return placed.positions
        rule = self.rule if placed.resolution is None else replace(self.rule, resolution=placed.resolution)
        return rule(self.encoding, sizes, device)

    def code(self, positions: Tensor, sizes: tuple[int, int]) -> Code:
        """The code for tokens at these places, of an image of so many patches."""
        code: Code = settle_size(self.encoding, sizes)(positions)
        return code

    def codes(self, code: Code, prefix: int, depth: int) -> tuple[Sealed, ...]:
        """The code of each layer, for so many tokens more that have no place."""
        code = code.prefixed(q=prefix, k=prefix)
        return (Sealed(code),) * depth if code.layers is None else tuple(map(Sealed, code.unbind()))

    def get_embed(self, shape: Sequence[int] | None = None) -> None:
        """Nothing: the model gets codes in its place."""

    def update_feat_shape(self, feat_shape: Sequence[int]) -> None:
        """Nothing: places belong to the image."""

    def init_non_persistent_buffers(self) -> None:
        """Rebuild what the encoding does not save: for weights that were loaded into a model from the meta device."""
        self.encoding.init_non_persistent_buffers()

    def no_weight_decay(self) -> set[str]:
        """Names of the encoding's parameters, all of which weight decay would spoil."""
        return {f"encoding.{name}" for name, _ in self.encoding.named_parameters()}

    def extra_repr(self) -> str:
        return f"{self.rule}, {self.moves}"

"""The positions of the keys in a cache of transformers: they stay with it, and go where its batch goes."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SEEN = "_ropewalk_positions"  # under which a cache keeps them


def remember(cache: Any, layer: int, positions: Tensor) -> Tensor:
    """Positions (B M) of all that a layer will have seen, these last. They stay with the cache, and are cut as it is."""
    count = int(cache.get_seq_length(layer))
    known = getattr(cache, SEEN, None)
    if count and (known is None or known.shape[-1] < count):
        held = 0 if known is None else known.shape[-1]
        raise ValueError(f"the cache must know the positions of its {count} tokens, got {held}: begin with an empty cache")
    if count and known is not None:
        both = (known[:, :count], positions)
        batch = max(each.shape[0] for each in both)
        positions = torch.cat([each.expand(batch, -1) for each in both], dim=-1)
    if not torch.compiler.is_compiling() and not isinstance(cache, Following):
        cache.__class__ = following(type(cache))  # type: ignore[arg-type]
    setattr(cache, SEEN, positions)
    return positions


class Following:
    """A cache whose positions are reordered, chosen and repeated as its keys are."""

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """As the cache, for beams."""
        super().reorder_cache(beam_idx)  # type: ignore[misc]
        self._moved(lambda seen: seen[beam_idx.to(seen.device)])

    def batch_select_indices(self, indices: Tensor) -> None:
        """As the cache, of which some rows are kept."""
        super().batch_select_indices(indices)  # type: ignore[misc]
        self._moved(lambda seen: seen[indices])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """As the cache, of which each row comes several times."""
        super().batch_repeat_interleave(repeats)  # type: ignore[misc]
        self._moved(lambda seen: seen.repeat_interleave(repeats, dim=0))

    def _moved(self, change: Callable[[Tensor], Tensor]) -> None:
        seen = getattr(self, SEEN, None)
        if seen is not None and seen.shape[0] > 1:  # one row serves any batch
            setattr(self, SEEN, change(seen))


@functools.cache
def following(kind: type) -> type:
    """A kind of cache whose positions follow."""
    return type(kind.__name__, (Following, kind), {"__module__": kind.__module__})

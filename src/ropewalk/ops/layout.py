"""How ops see tensors: the tokens left alone, the heads that share a table, the channels touched, the precision."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ropewalk.arguments import positives


def pair_channels(pairs: int, interleaved: bool, sections: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """The two channels of each pair: (2i, 2i + 1) if interleaved, (i, i + P) if not.

    With `sections`, numbers of pairs that make P, channels are cut into parts of twice so many, each half-split by itself.
    """
    if interleaved:
        return [(2 * i, 2 * i + 1) for i in range(pairs)]
    found: list[tuple[int, int]] = []
    for count in [pairs] if sections is None else sections:
        start = 2 * len(found)
        found += [(i, i + count) for i in range(start, start + count)]
    return found


def describe_layout(interleaved: bool, sections: Sequence[int] | None) -> str:
    """Which channels make a pair, in words."""
    if interleaved or sections is None:
        return "interleaved" if interleaved else "half-split"
    return f"half-split in sections of {', '.join(map(str, sections))}"


def check_sections(sections: Sequence[int], pairs: int, interleaved: bool) -> tuple[int, ...]:
    """Numbers of pairs as a tuple, if they are sections of a half-split layout of so many pairs."""
    parts = positives("sections", sections)
    if interleaved:
        raise ValueError(f"sections are half-split: they need interleaved=False, got interleaved=True and sections={parts}")
    if sum(parts) != pairs:
        raise ValueError(f"sections must make {pairs} pairs, got {' + '.join(map(str, parts)) or 'none'} = {sum(parts)}")
    return parts


def widened(table: Tensor) -> Tensor:
    """A table in at least float32."""
    return table if table.dtype in (torch.float32, torch.float64) else table.float()


@contextlib.contextmanager
def exactly(like: Tensor) -> Iterator[None]:
    """A context in which products are as exact as their dtype: no autocast, and no TF32 whatever is set.

    Compiled code reads the setting of TF32 when it runs, which no context reaches.
    """
    device, before = like.device.type, torch.get_float32_matmul_precision()
    autocast = torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else contextlib.nullcontext()
    if before == "highest":
        with autocast:
            yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        with autocast:
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def turn_part(x: Tensor, prefix: int, heads: int | None, width: int, turn: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply `turn` to x (B H N D) without its first `prefix` tokens and its channels from `width` on.

    `turn` gets (B H n width), or (B h g n width) with h = `heads` and g = H / h if each table row serves a group of g heads.
    """
    part = x[:, :, prefix:, :width] if prefix or width < x.shape[-1] else x
    moved = (turn(part) if heads is None else turn(part.unflatten(1, (heads, -1))).flatten(1, 2)).to(x.dtype)
    if width < x.shape[-1]:
        moved = torch.cat([moved, x[:, :, prefix:, width:]], dim=-1)
    return torch.cat([x[:, :, :prefix], moved], dim=2) if prefix else moved


def per_group(table: Tensor, trailing: int) -> Tensor:
    """([B] h n ...) to (B h 1 n ...), where `trailing` dimensions follow n."""
    return table.unsqueeze(-2 - trailing) if table.ndim == 3 + trailing else table[None].unsqueeze(-2 - trailing)

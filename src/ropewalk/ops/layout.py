"""How ops see tensors: the tokens left alone, the heads that share a table, the channels touched, the precision."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor


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

"""Tables of others as cos and sin of half width, a column a pair, for `apply_rotary`.

Each function says which `interleaved` its tables go with: no shape tells it. Values are looked at in eager mode on the CPU
alone; elsewhere a table of another form goes unnoticed if it has the right shape. Tables keep their dtype: a narrow one is
as exact as it came.
"""

import torch
from torch import Tensor

from ropewalk.arguments import describe, flag, integer, positive, same_device, tensor
from ropewalk.positions import readable

Tables = tuple[Tensor, Tensor]


def from_transformers(cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tables:
    """Of transformers' rotary modules: full width, (B, N, 2P) or (N, 2P).

    interleaved  As the model turns, and as `apply_rotary` is to: False for halves that repeat, cat(freqs, freqs), of Llama
                 and most others; True for neighbours that repeat, as in Cohere.
    """
    _same_shape(cos, sin, (2, 3), "(B, N, 2P) or (N, 2P)")
    return _once("cos", cos, interleaved), _once("sin", sin, interleaved)


def from_flash_attn(cos: Tensor, sin: Tensor, *, seqlen: int | None = None, seqlen_offsets: int | Tensor = 0) -> Tables:
    """Of flash-attn, for its `apply_rotary_emb`: half width already, (rows, P), a row for every place up to some length.

    seqlen          Rows for so many tokens: N of q and k. By default all that follow the offset.
    seqlen_offsets  Where tokens begin, 0 or more: a number, or integers (B,) for each sample, with seqlen.

    `interleaved` is the same word there, and False by default in both.
    """
    rows = _same_shape(cos, sin, (2,), "(rows, P)")[0]
    if isinstance(seqlen_offsets, Tensor):
        return _gathered(cos, sin, seqlen, seqlen_offsets, rows)
    start = integer("seqlen_offsets", seqlen_offsets, least=0)
    end = rows if seqlen is None else start + positive("seqlen", seqlen)
    if not start <= end <= rows:
        raise ValueError(f"cos and sin have {rows} rows, got seqlen={seqlen} and seqlen_offsets={seqlen_offsets}")
    return cos[start:end], sin[start:end]


def from_timm(rope: Tensor | Tables, *, half: bool = False) -> Tables:
    """Of timm's rotary modules: sines, then cosines, each of full width, in one tensor (…, N, 4P) or a pair of (…, N, 2P).

    (N, 4P) is for all; (heads, N, 4P) is for heads, as of one layer of `RotaryEmbeddingMixed`; (B, heads, N, 4P) for both.

    half  As there: False for neighbours that repeat, which go with interleaved=True; True for halves that repeat, as in
          DINOv3, which go with interleaved=False.
    """
    if isinstance(rope, Tensor):
        if rope.ndim not in (2, 3, 4) or rope.shape[-1] % 4:
            wanted = "rope must be (N, 4P), (heads, N, 4P) or (B, heads, N, 4P), sines and cosines of full width"
            raise ValueError(f"{wanted}, got {tuple(rope.shape)}")
        sin, cos = rope.chunk(2, dim=-1)
    elif isinstance(rope, list | tuple) and len(rope) == 2:
        sin, cos = rope
    else:
        raise TypeError(f"rope must be a tensor, or a pair of sines and cosines, got {describe(rope)}")
    _same_shape(cos, sin, (2, 3, 4), "(N, 2P), (heads, N, 2P) or (B, heads, N, 2P)")
    flag("half", half)
    return _for_heads(_once("cos", cos, not half)), _for_heads(_once("sin", sin, not half))


def from_complex(freqs_cis: Tensor) -> Tables:
    """Of Meta's Llama and of rope-vit: complex numbers cos + i sin, (N, P), (heads, N, P) or (B, heads, N, P).

    They go with interleaved=True.
    """
    if not tensor("freqs_cis", freqs_cis).is_complex() or freqs_cis.ndim not in (2, 3, 4):
        wanted = "freqs_cis must be complex, (N, P), (heads, N, P) or (B, heads, N, P)"
        raise ValueError(f"{wanted}, got {freqs_cis.dtype} {tuple(freqs_cis.shape)}")
    return _for_heads(freqs_cis.real), _for_heads(freqs_cis.imag)


def _same_shape(cos: Tensor, sin: Tensor, dimensions: tuple[int, ...], wanted: str) -> torch.Size:
    tensor("cos", cos), tensor("sin", sin)
    same_device(cos=cos, sin=sin)
    if cos.shape != sin.shape or cos.ndim not in dimensions or not (cos.is_floating_point() and sin.is_floating_point()):
        got = " and ".join(f"{table.dtype} {tuple(table.shape)}" for table in (cos, sin))
        raise ValueError(f"cos and sin must both be floating, {wanted}, got {got}")
    return cos.shape


def _once(name: str, table: Tensor, interleaved: bool) -> Tensor:
    """One column a pair of a table that has each twice: side by side, or in two halves."""
    if table.shape[-1] % 2:
        raise ValueError(f"{name} of full width must have an even number of columns, got {tuple(table.shape)}")
    ways = [(table[..., 0::2], table[..., 1::2]), table.chunk(2, dim=-1)]
    (one, two), other = ways if flag("interleaved", interleaved) else reversed(ways)
    if readable(table.detach()) and not _alike(one, two):
        kinds = ("neighbours", "halves") if interleaved else ("halves", "neighbours")
        off = (one - two).abs().max().item()
        found = f"its {kinds[1]} do: it is of the other layout" if _alike(*other) else f"nor do its {kinds[1]}"
        raise ValueError(f"{name} of full width must repeat: its {kinds[0]} differ by up to {off:.2g}; {found}")
    return one


def _alike(one: Tensor, two: Tensor) -> bool:
    """But for rounding: vectors and what is left over may take different roads to a cosine."""
    return torch.allclose(one, two, rtol=0, atol=16 * torch.finfo(one.dtype).eps)


def _gathered(cos: Tensor, sin: Tensor, seqlen: int | None, offsets: Tensor, rows: int) -> Tables:
    whole = not (offsets.is_floating_point() or offsets.is_complex() or offsets.dtype is torch.bool)
    if seqlen is None or offsets.ndim != 1 or not whole:
        wanted = "seqlen_offsets for each sample must be integers (B,), with seqlen"
        raise ValueError(f"{wanted}, got {offsets.dtype} {tuple(offsets.shape)} and seqlen={seqlen}")
    places = offsets[:, None] + torch.arange(positive("seqlen", seqlen), device=offsets.device)
    if readable(offsets) and ((places < 0) | (places >= rows)).any():
        raise ValueError(f"cos and sin have {rows} rows, got seqlen={seqlen} and seqlen_offsets={offsets.tolist()}")
    places = torch.where(places < 0, rows, places)  # no row from the end: out of bounds, as those beyond it
    return cos[places], sin[places]


def _for_heads(table: Tensor) -> Tensor:
    return table.unsqueeze(0) if table.ndim == 3 else table

"""Attention patterns: the score of one query with one key as the key moves over an image."""

from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.code import Code, Offset, Rotation, Sphere, Turn
from ropewalk.encoding import Encoding


class Panel(NamedTuple):
    """One picture: what it shows, and the scores, rows by columns."""

    title: str
    scores: Tensor


class Patterns(NamedTuple):
    """Pictures of an encoding: of single groups of channels of its first head, and of whole heads."""

    groups: list[Panel]
    heads: list[Panel]


@torch.no_grad()
def patterns(
    encoding: Encoding, *, sizes: tuple[int, int] = (48, 64), groups: int = 3, heads: int = 2, seed: int = 0
) -> Patterns:
    """Patterns of a random query and key, as many groups and heads as asked for or as there are; groups lie spread out."""
    if encoding.axes != 2:
        raise ValueError(f"attention patterns are pictures: they want an encoding of 2 axes, got {encoding!r}")
    kind, found = _groups(encoding(encoding.grid(1, 1)))
    count = min(groups, len(found))
    chosen = [i * len(found) // count for i in range(count)]
    shown = torch.ones(count + 1, 1, encoding.head_dim)
    for mask, group in zip(shown, chosen, strict=False):
        mask.zero_()[:, list(found[group])] = 1
    q, k = torch.randn(2, 1, encoding.heads, encoding.head_dim, generator=torch.Generator().manual_seed(seed))
    logits = scores(encoding, shown * q, shown * k, sizes=sizes)
    singles = [Panel(f"{kind} {group + 1}", logits[i, 0]) for i, group in enumerate(chosen)]
    return Patterns(singles, [Panel(f"head {i + 1}", logits[-1, i]) for i in range(min(heads, encoding.heads))])


def scores(encoding: Encoding, q: Tensor, k: Tensor, *, sizes: tuple[int, int]) -> Tensor:
    """Logits (B H rows columns) of queries q (B H D) in the middle of an image with keys k (B H D) at every place of it.

    `sizes` is how finely the image is sampled, whatever grid the encoding was made for. An encoding that adds to the
    tokens adds to q and k, as if they were projected by identities.
    """
    places = encoding.grid(*sizes, resolution="rescale")
    middle = places.mean(0, keepdim=True)
    code = encoding(middle, places)
    q, k = q.unsqueeze(2), k.unsqueeze(2).expand(-1, -1, len(places), -1)
    if isinstance(code, Offset):
        q, k = _added(code, q), _added(encoding(places), k)
    code = code if encoding.layers is None else code[0]
    q, k = code.qk(q, k)
    logits, bias = q @ k.mT * encoding.head_dim**-0.5, code.scores(q, k)
    return (logits if bias is None else logits + bias).squeeze(2).unflatten(-1, sizes)


def _added(code: Code, x: Tensor) -> Tensor:
    """What `tokens` does to the heads (B H N D) of tokens."""
    return code.tokens(x.transpose(1, 2).flatten(2)).unflatten(2, x.shape[1::2]).transpose(1, 2)


def _groups(code: Code) -> tuple[str, list[tuple[int, ...]]]:
    """What the groups of channels that turn together are called, and the channels of each."""
    if isinstance(code, Rotation):
        count = code.q_angle.shape[-1]
        return "pair", [(2 * i, 2 * i + 1) if code.interleaved else (i, i + count) for i in range(count)]
    if isinstance(code, Sphere):
        return "triplet", _runs(code.q_angle.shape[-2], 3)
    if isinstance(code, Turn):
        return "block", _runs(code.q_matrix.shape[-3], code.q_matrix.shape[-1])
    return "head", []


def _runs(count: int, size: int) -> list[tuple[int, ...]]:
    return [tuple(range(size * i, size * (i + 1))) for i in range(count)]

"""Scores of tokens at chosen positions, as an encoding makes them."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.code import Code, Offset
from ropewalk.encoding import Encoding
from ropewalk.lab.anatomy import on_cpu, parts, sample_code


class Meeting(NamedTuple):
    """Queries (B H N D) and keys (B H M D) as they meet, what is added to their scores, if anything, and what their
    scores would be without positions (B H 1 1)."""

    q: Tensor
    k: Tensor
    added: Tensor | None
    plain: Tensor

    def logits(self) -> Tensor:
        """Scores (B H N M)."""
        product = self.q @ self.k.mT * self.q.shape[-1] ** -0.5
        return product if self.added is None else product + self.added

    def of(self, channels: tuple[int, ...], head: int = 0) -> Tensor:
        """The part (B N M) that these channels of a head have in its scores."""
        q, k = (x[:, head][..., list(channels)] for x in (self.q, self.k))
        return (q.unsqueeze(2) * k.unsqueeze(1)).sum(-1) * self.q.shape[-1] ** -0.5


@torch.no_grad()
def meet(encoding: Encoding, x: Tensor, y: Tensor, at: Tensor, to: Tensor, *, layer: int = 0) -> Meeting:
    """Let tokens x (B C) as queries at positions `at` (N A) meet tokens y (B C) as keys at `to` (M A).

    Queries and keys are the tokens themselves, cut into heads; tokens of another width are projected at random.
    """
    encoding = on_cpu(encoding)
    code = encoding(at, to)
    # A code has the queries' tokens alone; that of the keys is made only if it does anything to them.
    here, there = (
        (code, encoding(to)) if any(type(part).tokens is not Code.tokens for part in parts(code)) else (Code(), Code())
    )
    q, k = (_heads(encoding, c.tokens(_repeat(t, p))) for c, t, p in ((here, x, at), (there, y, to)))
    plain = (_heads(encoding, x[:, None]) * _heads(encoding, y[:, None])).sum(-1, keepdim=True) * encoding.head_dim**-0.5
    code = code if encoding.layers is None else code[layer]
    q, k = code.qk(q, k)
    return Meeting(q, k, code.scores(q, k), plain)


def random_tokens(encoding: Encoding, count: int, seed: int = 0) -> Tensor:
    """Tokens (count, C) of random directions, as wide as the encoding wants them; each head's part has norm √D."""
    tokens = torch.randn(count, _width(encoding, sample_code(encoding)), generator=torch.Generator().manual_seed(seed))
    parts_of = tokens.unflatten(-1, (encoding.heads, -1)) if tokens.shape[-1] % encoding.heads == 0 else tokens[:, None]
    return (F.normalize(parts_of, dim=-1) * parts_of.shape[-1] ** 0.5).flatten(1)


def _repeat(tokens: Tensor, positions: Tensor) -> Tensor:
    return tokens.unsqueeze(1).expand(-1, len(positions), -1)


def _heads(encoding: Encoding, tokens: Tensor) -> Tensor:
    """Tokens (B N C) in heads (B H N D)."""
    width = encoding.heads * encoding.head_dim
    if tokens.shape[-1] != width:
        draw = torch.randn(tokens.shape[-1], width, generator=torch.Generator().manual_seed(0))
        tokens = tokens @ draw * tokens.shape[-1] ** -0.5
    return tokens.unflatten(-1, (encoding.heads, encoding.head_dim)).transpose(1, 2)


def _width(encoding: Encoding, code: Code) -> int:
    widths = [part.offset.shape[-1] for part in parts(code) if isinstance(part, Offset)]
    return widths[0] if widths else encoding.heads * encoding.head_dim

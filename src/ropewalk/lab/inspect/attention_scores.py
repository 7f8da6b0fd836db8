"""Attention scores of tokens at chosen positions with an encoding.

Attention patterns: the attention score of one query against a key at each image position, or of both at each text position.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.arguments import positive
from ropewalk.code import Code, Offset, Turn
from ropewalk.encoding import Encoding
from ropewalk.lab.inspect.code_structure import compute_sample_code, ensure_on_cpu, find_rotary_part, list_code_parts
from ropewalk.lab.inspect.code_structure import find_channel_groups as groups_of
from ropewalk.lab.inspect.figure_grid import (
    get_axis_names,
    interpolate_positions,
    resolve_grid_size,
    spread_indices,
    subdivide_patches,
)


class AttentionInputs(NamedTuple):
    """Queries (B H N D) and keys (B H M D) with their encoding, what is added to their scores, if anything, and the scores
    without an encoding (B H 1 1)."""

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
def compute_attention_inputs(
    encoding: Encoding, x: Tensor, y: Tensor, at: Tensor, to: Tensor, *, layer: int = 0
) -> AttentionInputs:
    """Let tokens x (B C) as queries at positions `at` (N A) meet tokens y (B C) as keys at `to` (M A).

    Queries and keys are the tokens themselves, cut into heads; tokens of another width are projected at random.
    """
    encoding = ensure_on_cpu(encoding)
    code = encoding(at, to)
    # A code has the queries' tokens alone; that of the keys is made only if it does anything to them.
    here, there = (
        (code, encoding(to))
        if any(type(part).tokens is not Code.tokens for part in list_code_parts(code))
        else (Code(), Code())
    )
    q, k = (_split_heads(encoding, c.tokens(_repeat_tokens(t, p))) for c, t, p in ((here, x, at), (there, y, to)))
    plain = (_split_heads(encoding, x[:, None]) * _split_heads(encoding, y[:, None])).sum(
        -1, keepdim=True
    ) * encoding.head_dim**-0.5
    code = code if encoding.layers is None else code[layer]
    q, k = code.qk(q, k)
    return AttentionInputs(q, k, code.scores(q, k), plain)


def sample_random_tokens(encoding: Encoding, count: int, seed: int = 0) -> Tensor:
    """Tokens (count, C) of random directions, as wide as the encoding wants them; each head's part has norm √D."""
    tokens = torch.randn(
        count, _find_token_width(encoding, compute_sample_code(encoding)), generator=torch.Generator().manual_seed(seed)
    )
    parts_of = tokens.unflatten(-1, (encoding.heads, -1)) if tokens.shape[-1] % encoding.heads == 0 else tokens[:, None]
    return (F.normalize(parts_of, dim=-1) * parts_of.shape[-1] ** 0.5).flatten(1)


def _repeat_tokens(tokens: Tensor, positions: Tensor) -> Tensor:
    return tokens.unsqueeze(1).expand(-1, len(positions), -1)


def _split_heads(encoding: Encoding, tokens: Tensor) -> Tensor:
    """Tokens (B N C) in heads (B H N D)."""
    width = encoding.heads * encoding.head_dim
    if tokens.shape[-1] != width:
        draw = torch.randn(tokens.shape[-1], width, generator=torch.Generator().manual_seed(0))
        tokens = tokens @ draw * tokens.shape[-1] ** -0.5
    return tokens.unflatten(-1, (encoding.heads, encoding.head_dim)).transpose(1, 2)


def _find_token_width(encoding: Encoding, code: Code) -> int:
    widths = [part.offset.shape[-1] for part in list_code_parts(code) if isinstance(part, Offset)]
    return widths[0] if widths else encoding.heads * encoding.head_dim


PATTERN_TEXT_LENGTH = 48
PATTERN_PIXELS = 42
ROUNDING_NOISE = 1e-6  # smaller scores are shown as 0


class ScorePanel(NamedTuple):
    """One picture: what it shows, and the scores, rows by columns."""

    title: str
    scores: Tensor


class AttentionPatterns(NamedTuple):
    """Pictures of an encoding: of single groups of channels of its first head, and of whole heads.

    `size` is in patches, rows by columns, or queries by keys of a text, where no single place is the query's. `turned` says
    whether they show scores, or, where no channel is turned, what positions add to them; `frame`, in words, where in a clip
    they are; `axes`, what goes down and across.
    """

    noun: str
    groups: list[ScorePanel]
    heads: list[ScorePanel]
    size: tuple[int, int]
    query: tuple[float, float] | None
    turned: bool
    frame: str
    axes: tuple[str, str]


def compute_attention_patterns(
    encoding: Encoding,
    *,
    size: Sequence[int] | None = None,
    groups: int = 4,
    heads: int = 4,
    seed: int = 0,
    layer: int = 0,
) -> AttentionPatterns:
    """Patterns of a random query and key, as many groups and heads as asked for or as there are, groups spread out.

    A query in the middle of an image meets a key everywhere; of more axes than two, all but the last two stay at their
    middle. With one axis, a query at every place meets a key at every place, so that scores that depend on distances alone
    are constant along diagonals.
    """
    size = resolve_grid_size(encoding, size, places=PATTERN_TEXT_LENGTH)
    at, to, shape = _make_text_positions(encoding, size) if encoding.axes == 1 else _make_image_positions(encoding, size)
    x, y = sample_random_tokens(encoding, 2, seed).split(1)
    meeting = compute_attention_inputs(encoding, x, y, at, to, layer=layer)
    noun, found = groups_of(compute_sample_code(encoding))
    chosen = spread_indices(len(found), positive("groups", groups))
    rows, columns = (size * 2)[-2:]
    names = get_axis_names(encoding.axes)
    return AttentionPatterns(
        noun,
        [ScorePanel(f"{noun} {i + 1}", meeting.of(found[i])[0].reshape(shape)) for i in chosen],
        _make_head_panels(meeting, turned=bool(found), shape=shape, heads=positive("heads", heads)),
        (rows, columns),
        None if encoding.axes == 1 else ((rows - 1) / 2, (columns - 1) / 2),
        bool(found),
        ", ".join(f"{name} {n // 2 + 1} of {n}" for name, n in zip(names, size[:-2], strict=False)),
        ("query position", "key position") if encoding.axes == 1 else (names[-2], names[-1]),
    )


def describe_attention_patterns(found: list[AttentionPatterns], *, query: str = "at the cross") -> str:
    """What the pictures show, in words; `query` says where the query stands in an image."""
    shown = "score of a random query with a random key"
    if not all(drawn.turned for drawn in found):
        shown += " (where no channel is turned: what positions add to it)"
    texts, images = (any((drawn.query is None) == text for drawn in found) for text in (True, False))
    where = [f"the query stands {query}, the key everywhere"] * images
    where += ["each is at every position of a text"] * texts
    return f"{shown[0].upper()}{shown[1:]}; {'; '.join(where)}. Each picture has its own scale."


def _make_head_panels(meeting: AttentionInputs, *, turned: bool, shape: tuple[int, int], heads: int) -> list[ScorePanel]:
    logits = meeting.logits()[0]
    shown = logits if turned else logits - meeting.plain[0]
    shown = torch.where(shown.abs() > ROUNDING_NOISE, shown, 0.0)
    return [ScorePanel(f"head {i + 1}", shown[i].reshape(shape)) for i in range(min(heads, len(shown)))]


def _make_text_positions(encoding: Encoding, size: Sequence[int]) -> tuple[Tensor, Tensor, tuple[int, int]]:
    places = interpolate_positions(encoding, size, torch.arange(size[0], dtype=torch.float32))
    return places, places, (size[0], size[0])


def _make_image_positions(encoding: Encoding, size: Sequence[int]) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """The middle, places that part the patches finely, and how many of these there are."""
    rows, columns = size[-2:]
    turn = find_rotary_part(compute_sample_code(encoding))
    # Matrix exponentials are dear, those of large blocks dearer.
    wanted = (
        PATTERN_PIXELS
        if not isinstance(turn, Turn)
        else PATTERN_PIXELS * 2 // 3
        if turn.q_matrix.shape[-1] <= 16
        else PATTERN_PIXELS // 3
    )
    finer = -(-wanted // max(rows, columns))
    still = [torch.tensor([float(n // 2)]) for n in size[:-2]]
    middle = [torch.tensor([(n - 1) / 2]) for n in (rows, columns)]
    lines = [subdivide_patches(n, n * finer) for n in (rows, columns)]
    return (
        interpolate_positions(encoding, size, *still, *middle),
        interpolate_positions(encoding, size, *still, *lines),
        (rows * finer, columns * finer),
    )

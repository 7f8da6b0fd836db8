"""Attention patterns: what one query makes of one key as the key moves over an image, or both over a text."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.code import Turn
from ropewalk.encoding import Encoding, positive
from ropewalk.lab.anatomy import groups as groups_of
from ropewalk.lab.anatomy import sample_code, turning
from ropewalk.lab.places import axis_names, between, finely, size_of
from ropewalk.lab.scores import Meeting, meet, random_tokens

PLACES = 48
PIXELS = 42
NOISE = 1e-6  # what rounding makes of nothing


class Panel(NamedTuple):
    """One picture: what it shows, and the scores, rows by columns."""

    title: str
    scores: Tensor


class Patterns(NamedTuple):
    """Pictures of an encoding: of single groups of channels of its first head, and of whole heads.

    `size` is in patches, rows by columns, or queries by keys of a text, where no single place is the query's. `turned` says
    whether they show scores, or, where no channel is turned, what positions add to them; `frame`, in words, where in a clip
    they are; `axes`, what goes down and across.
    """

    noun: str
    groups: list[Panel]
    heads: list[Panel]
    size: tuple[int, int]
    query: tuple[float, float] | None
    turned: bool
    frame: str
    axes: tuple[str, str]


def patterns(
    encoding: Encoding,
    *,
    size: Sequence[int] | None = None,
    groups: int = 4,
    heads: int = 4,
    seed: int = 0,
    layer: int = 0,
) -> Patterns:
    """Patterns of a random query and key, as many groups and heads as asked for or as there are, groups spread out.

    A query in the middle of an image meets a key everywhere; of more axes than two, all but the last two stay at their
    middle. With one axis, a query at every place meets a key at every place, so that scores that depend on distances alone
    are constant along diagonals.
    """
    size = size_of(encoding, size, places=PLACES)
    at, to, shape = _line(encoding, size) if encoding.axes == 1 else _image(encoding, size)
    x, y = random_tokens(encoding, 2, seed).split(1)
    meeting = meet(encoding, x, y, at, to, layer=layer)
    noun, found = groups_of(sample_code(encoding))
    chosen = spread(len(found), positive("groups", groups))
    rows, columns = (size * 2)[-2:]
    names = axis_names(encoding.axes)
    return Patterns(
        noun,
        [Panel(f"{noun} {i + 1}", meeting.of(found[i])[0].reshape(shape)) for i in chosen],
        _whole(meeting, turned=bool(found), shape=shape, heads=positive("heads", heads)),
        (rows, columns),
        None if encoding.axes == 1 else ((rows - 1) / 2, (columns - 1) / 2),
        bool(found),
        ", ".join(f"{name} {n // 2 + 1} of {n}" for name, n in zip(names, size[:-2], strict=False)),
        ("query's place", "key's place") if encoding.axes == 1 else (names[-2], names[-1]),
    )


def spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` of `count` indices, evenly spread."""
    taken = min(wanted, count)
    return [i * count // taken for i in range(taken)]


def note(found: list[Patterns], *, query: str = "at the cross") -> str:
    """What the pictures show, in words; `query` says where the query stands in an image."""
    shown = "score of a random query with a random key"
    if not all(drawn.turned for drawn in found):
        shown += " (where no channel is turned: what positions add to it)"
    texts, images = (any((drawn.query is None) == text for drawn in found) for text in (True, False))
    where = [f"the query stands {query}, the key everywhere"] * images
    where += ["each stands at every place of a text"] * texts
    return f"{shown[0].upper()}{shown[1:]}; {'; '.join(where)}. Each picture has its own scale."


def _whole(meeting: Meeting, *, turned: bool, shape: tuple[int, int], heads: int) -> list[Panel]:
    logits = meeting.logits()[0]
    shown = logits if turned else logits - meeting.plain[0]
    shown = torch.where(shown.abs() > NOISE, shown, 0.0)
    return [Panel(f"head {i + 1}", shown[i].reshape(shape)) for i in range(min(heads, len(shown)))]


def _line(encoding: Encoding, size: Sequence[int]) -> tuple[Tensor, Tensor, tuple[int, int]]:
    places = between(encoding, size, torch.arange(size[0], dtype=torch.float32))
    return places, places, (size[0], size[0])


def _image(encoding: Encoding, size: Sequence[int]) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """The middle, places that part the patches finely, and how many of these there are."""
    rows, columns = size[-2:]
    turn = turning(sample_code(encoding))
    # Matrix exponentials are dear, those of large blocks dearer.
    wanted = PIXELS if not isinstance(turn, Turn) else PIXELS * 2 // 3 if turn.q_matrix.shape[-1] <= 16 else PIXELS // 3
    finer = -(-wanted // max(rows, columns))
    still = [torch.tensor([float(n // 2)]) for n in size[:-2]]
    middle = [torch.tensor([(n - 1) / 2]) for n in (rows, columns)]
    lines = [finely(n, n * finer) for n in (rows, columns)]
    return (
        between(encoding, size, *still, *middle),
        between(encoding, size, *still, *lines),
        (rows * finer, columns * finer),
    )

"""Keys of five digits that are told somewhere in a text and asked for later, for models to learn and to be asked."""

import torch
from torch import Tensor

from ropewalk.lab.draws import uniform

TOLD, ASKED = b"\nThe pass key is #####. Remember it: #####.\n", b"\nWhat is the pass key? The pass key is #####"
"""What is written into a text; digits of the key take the places of the signs."""
DIGITS = 5
SHORTEST = 2 * len(TOLD + ASKED)
"""Bytes of a text that a key is hidden in: as many around it as it takes itself."""
STREAM = 1006
"""Of the draws of keys and their places."""


def hide(texts: Tensor, told: Tensor, asked: Tensor, digits: Tensor) -> Tensor:
    """Texts (B, N) with a key written into each; the last bytes of the text, which find no room then, are gone.

    told and asked (B,) are where: shares, from 0 to 1, of the bytes that are left. The one is at most the other.
    """
    count, h, a = texts.shape[1], len(TOLD), len(ASKED)
    if count < SHORTEST:
        raise ValueError(f"a text with a key must have {SHORTEST} bytes or more, got {count}")
    first, second = ((share * (count - h - a)).round().long()[:, None] for share in (told, asked))
    source = torch.cat([texts, _filled(TOLD, digits), _filled(ASKED, digits)], dim=1)
    along = torch.arange(count, device=texts.device)
    place = torch.where(along < second + h + a, count + along - second, along - h - a)
    place = torch.where(along < second + h, along - h, place)
    place = torch.where(along < first + h, count + along - first, place)
    return source.gather(1, torch.where(along < first, along, place))


def scattered(texts: Tensor, draws: Tensor, share: float) -> Tensor:
    """Texts of which a share has a key, told and asked for anywhere, by uniform numbers (B, 3 + DIGITS)."""
    told, asked = draws[:, 1:3].sort(dim=1).values.unbind(1)
    keyed = hide(texts, told, asked, (draws[:, 3:] * 10).long())
    return torch.where(draws[:, :1] < share, keyed, texts)


def drawn(seed: int, epoch: int, index: Tensor) -> Tensor:
    """The numbers for texts of these indices."""
    return uniform(seed, epoch, index, STREAM, 3 + DIGITS)


def _filled(said: bytes, digits: Tensor) -> Tensor:
    """Words (B, length) with the digits (B, DIGITS) at their places, as often as there are places for them."""
    plain = torch.tensor(list(said), device=digits.device)
    slots = (plain == ord("#")).nonzero()[:, 0]
    return plain.expand(len(digits), -1).index_copy(1, slots, ord("0") + digits.repeat(1, len(slots) // DIGITS))

"""Keys of five digits that are told somewhere in a text and asked for later, for models to learn and to be asked."""

import torch
from torch import Tensor

from ropewalk.lab.hash_random import draw_uniform

KEY_SENTENCE, KEY_QUESTION = (
    b"\nThe pass key is #####. Remember it: #####.\n",
    b"\nWhat is the pass key? The pass key is #####",
)
"""What is written into a text; digits of the key take the places of the signs."""
KEY_DIGITS = 5
MIN_KEY_LENGTH = 2 * len(KEY_SENTENCE + KEY_QUESTION)
"""Bytes of a text that a key is hidden in: as many around it as it takes itself."""
KEY_STREAM = 1006
"""Of the draws of keys and their places."""


def hide_key(texts: Tensor, told: Tensor, asked: Tensor, digits: Tensor) -> Tensor:
    """Texts (B, N) with a key written into each; the last bytes of the text, which find no room then, are gone.

    told and asked (B,) are where: shares, from 0 to 1, of the bytes that are left. The one is at most the other.
    """
    count, h, a = texts.shape[1], len(KEY_SENTENCE), len(KEY_QUESTION)
    if count < MIN_KEY_LENGTH:
        raise ValueError(f"a text with a key must have {MIN_KEY_LENGTH} bytes or more, got {count}")
    first, second = ((share * (count - h - a)).round().long()[:, None] for share in (told, asked))
    source = torch.cat([texts, _fill_digits(KEY_SENTENCE, digits), _fill_digits(KEY_QUESTION, digits)], dim=1)
    along = torch.arange(count, device=texts.device)
    place = torch.where(along < second + h + a, count + along - second, along - h - a)
    place = torch.where(along < second + h, along - h, place)
    place = torch.where(along < first + h, count + along - first, place)
    return source.gather(1, torch.where(along < first, along, place))


def scatter_keys(texts: Tensor, draws: Tensor, share: float) -> Tensor:
    """Texts of which a share has a key, told and asked for anywhere, by uniform numbers (B, 3 + DIGITS)."""
    told, asked = draws[:, 1:3].sort(dim=1).values.unbind(1)
    keyed = hide_key(texts, told, asked, (draws[:, 3:] * 10).long())
    return torch.where(draws[:, :1] < share, keyed, texts)


def draw_keys(seed: int, epoch: int, index: Tensor) -> Tensor:
    """The numbers for texts of these indices."""
    return draw_uniform(seed, epoch, index, KEY_STREAM, 3 + KEY_DIGITS)


def _fill_digits(said: bytes, digits: Tensor) -> Tensor:
    """Words (B, length) with the digits (B, DIGITS) at their places, as often as there are places for them."""
    plain = torch.tensor(list(said), device=digits.device)
    slots = (plain == ord("#")).nonzero()[:, 0]
    return plain.expand(len(digits), -1).index_copy(1, slots, ord("0") + digits.repeat(1, len(slots) // KEY_DIGITS))

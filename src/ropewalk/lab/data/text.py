"""Text as bytes, cut into windows: a folder with train.txt and val.txt, or one file.

Of a folder, the first half of val.txt is for validation and the second half is the test text; of one file, the first 90 %
are trained on, the next 5 % are for validation, and the last 5 % are the test text. All bytes lie on one device.

A passkey of five digits is stated somewhere in a text and asked for later, to train and to probe models.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ropewalk.arguments import one_of, positive
from ropewalk.lab.data.sampling import epoch_order
from ropewalk.lab.file_gate import check_memory_budget, check_regular_file
from ropewalk.lab.hash_random import derive_seed, draw_uniform

# Random stream of the offset of the first window of an epoch.
OFFSET_STREAM = 1005
# Inserted into a text, with the digits of the key in place of the # signs.
KEY_SENTENCE, KEY_QUESTION = (
    b"\nThe pass key is #####. Remember it: #####.\n",
    b"\nWhat is the pass key? The pass key is #####",
)
KEY_DIGITS = 5
# Minimum bytes of a text with a key: half of them are left for the text itself.
MIN_KEY_LENGTH = 2 * len(KEY_SENTENCE + KEY_QUESTION)
# Random stream of keys and of their positions.
KEY_STREAM = 1006


class TextData:
    """The bytes (N,) of a training, a validation and a test text, by name."""

    def __init__(self, path: str | Path, *, fraction: float = 1.0) -> None:
        where = Path(path).expanduser()
        self.name = where.name
        self.parts = _read_folder(where) if where.is_dir() else _read_text_file(where)
        self.parts["train"] = self.parts["train"][: int(fraction * len(self.parts["train"]))]
        self.sums = {split: hashlib.sha256(part.numpy().data).hexdigest() for split, part in self.parts.items()}

    def __repr__(self) -> str:
        return f"{self.name}: " + ", ".join(f"{len(part):,} bytes {split}" for split, part in self.parts.items())

    def to(self, device: torch.device | str) -> Self:
        """The same text, moved to the device."""
        self.parts = {split: part.to(device) for split, part in self.parts.items()}
        return self

    def count(self, split: str, length: int) -> int:
        """Windows of length + 1 bytes, one every `length`, that fit from the beginning."""
        return max(0, (len(self._part(split)) - 1) // positive("length", length))

    def count_train_windows(self, length: int) -> int:
        """Windows of the training text that fit wherever the first one begins."""
        return max(0, len(self.parts["train"]) // length - 1)

    def windows(self, split: str, length: int, order: Sequence[Tensor], offset: int = 0) -> Iterator[Tensor]:
        """Bytes int64 (B, length + 1) for each tensor of places in the order of windows; those go to the device at once."""
        part, empty = self._part(split), torch.empty(0, dtype=torch.int64)
        starts = (torch.cat([empty, *order]) * length + offset).to(part.device)
        # Windows overlap by one byte: the last target of a window is the first input of the next.
        along = torch.arange(length + 1, device=part.device)
        for some in torch.split(starts, [len(places) for places in order]):
            yield part[some[:, None] + along].long()

    def epoch(
        self,
        length: int,
        batch: int,
        *,
        seed: int,
        epoch: int,
        rank: int = 0,
        world: int = 1,
        keys: float | None = None,
        first: int = 0,
    ) -> Iterator[Tensor]:
        """The windows of an epoch from batch `first` on. (seed, epoch) determine their offset, order and keys."""
        order = epoch_order(self.count_train_windows(length), batch, seed=seed, epoch=epoch, rank=rank, world=world)[first:]
        found = self.windows("train", length, order, offset=derive_seed(seed, epoch, OFFSET_STREAM) % length)
        if keys is None:
            return found
        draws = draw_keys(seed, epoch, torch.cat(order).to(self.parts["train"].device)).split(batch // world)
        return (scatter_keys(some, own, keys) for some, own in zip(found, draws, strict=True))

    def _part(self, split: str) -> Tensor:
        return self.parts[one_of("split", split, self.parts)]


def _read_folder(path: Path) -> dict[str, Tensor]:
    if missing := [name for name in ("train.txt", "val.txt") if not (path / name).is_file()]:
        raise ValueError(f"a folder of text must have train.txt and val.txt, but {path} has no {' and no '.join(missing)}")
    held = _read_bytes(path / "val.txt")
    return {"train": _read_bytes(path / "train.txt"), **_cut_text(held, validation=(0.0, 0.5), test=(0.5, 1.0))}


def _read_text_file(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ValueError(f"text must be a file, or a folder with train.txt and val.txt, but there is none at {path}")
    return _cut_text(_read_bytes(path), train=(0.0, 0.9), validation=(0.9, 0.95), test=(0.95, 1.0))


def _read_bytes(path: Path) -> Tensor:
    check_memory_budget(check_regular_file(path).st_size, f"the text {path}")
    return torch.from_numpy(np.fromfile(path, np.uint8))


def _cut_text(whole: Tensor, **shares: tuple[float, float]) -> dict[str, Tensor]:
    """Parts of a text, from one share of its length to another."""
    return {name: whole[int(begin * len(whole)) : int(end * len(whole))] for name, (begin, end) in shares.items()}


def hide_key(texts: Tensor, stated: Tensor, asked: Tensor, digits: Tensor) -> Tensor:
    """Insert a key into each text (B, N) and cut off the last bytes, which find no room.

    stated and asked (B,) are where: shares, from 0 to 1, of the bytes that are left, stated at most as large as asked.
    """
    count, h, a = texts.shape[1], len(KEY_SENTENCE), len(KEY_QUESTION)
    if count < MIN_KEY_LENGTH:
        raise ValueError(f"a text with a key must have {MIN_KEY_LENGTH} bytes or more, got {count}")
    first, second = ((share * (count - h - a)).round().long()[:, None] for share in (stated, asked))
    source = torch.cat([texts, _fill_digits(KEY_SENTENCE, digits), _fill_digits(KEY_QUESTION, digits)], dim=1)
    along = torch.arange(count, device=texts.device)
    place = torch.where(along < second + h + a, count + along - second, along - h - a)
    place = torch.where(along < second + h, along - h, place)
    place = torch.where(along < first + h, count + along - first, place)
    return source.gather(1, torch.where(along < first, along, place))


def scatter_keys(texts: Tensor, draws: Tensor, share: float) -> Tensor:
    """Insert keys anywhere into a share of the texts, by uniform numbers (B, 3 + DIGITS)."""
    stated, asked = draws[:, 1:3].sort(dim=1).values.unbind(1)
    keyed = hide_key(texts, stated, asked, (draws[:, 3:] * 10).long())
    return torch.where(draws[:, :1] < share, keyed, texts)


def draw_keys(seed: int, epoch: int, index: Tensor) -> Tensor:
    """Uniform numbers (B, 3 + DIGITS) for texts of these indices."""
    return draw_uniform(seed, epoch, index, KEY_STREAM, 3 + KEY_DIGITS)


def _fill_digits(words: bytes, digits: Tensor) -> Tensor:
    """The words (B, length) with the digits (B, DIGITS) in place of the signs, repeated as often as needed."""
    plain = torch.tensor(list(words), device=digits.device)
    slots = (plain == ord("#")).nonzero()[:, 0]
    return plain.expand(len(digits), -1).index_copy(1, slots, ord("0") + digits.repeat(1, len(slots) // KEY_DIGITS))

"""Keys that are hidden in texts: where they are, and which texts have one."""

from dataclasses import replace

import pytest
import torch

from ropewalk.lab.data.text import (
    KEY_DIGITS,
    KEY_QUESTION,
    KEY_SENTENCE,
    MIN_KEY_LENGTH,
    TextData,
    draw_keys,
    hide_key,
    scatter_keys,
)
from ropewalk.lab.tasks import build_task
from tests.lab.tasks.test_text import SMALL, sentences

LONG = MIN_KEY_LENGTH + 40


def written(text, told, asked, key):
    """The text with the key, by cutting and joining."""
    room = len(text) - len(KEY_SENTENCE + KEY_QUESTION)
    first, second = round(told * room), round(asked * room)
    said, question = (words.replace(b"#####", key) for words in (KEY_SENTENCE, KEY_QUESTION))
    return text[:first] + said + text[first:second] + question + text[second:room]


@pytest.mark.parametrize(("told", "asked"), [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.25, 0.5), (0.3, 0.3)])
def test_a_key_is_told_and_asked_for_where_it_is_said(told, asked):
    text = bytes(i % 200 + 50 for i in range(LONG))
    rows = torch.tensor([list(text), list(text[::-1])])
    digits = torch.tensor([[1, 2, 3, 4, 5], [9, 0, 9, 0, 0]])
    found = hide_key(rows, torch.full((2,), told), torch.full((2,), asked), digits)
    assert bytes(found[0].tolist()) == written(text, told, asked, b"12345")
    assert bytes(found[1].tolist()) == written(text[::-1], told, asked, b"90900")


def test_texts_without_room_are_refused():
    with pytest.raises(
        ValueError, match=f"a text with a key must have {MIN_KEY_LENGTH} bytes or more, got {MIN_KEY_LENGTH - 1}"
    ):
        hide_key(
            torch.zeros(1, MIN_KEY_LENGTH - 1), torch.zeros(1), torch.ones(1), torch.zeros(1, KEY_DIGITS, dtype=torch.int64)
        )


def test_a_share_of_texts_has_a_key_and_the_others_are_left():
    draws = draw_keys(3, 0, torch.arange(2000))
    texts = torch.full((2000, LONG), ord("x"))
    found = scatter_keys(texts, draws, 0.25)
    keyed = [bytes(row.tolist()) for row in found if (row != ord("x")).any()]
    assert 430 < len(keyed) < 570
    places = [(row.index(b"The pass key is"), row.index(b"What is the pass key")) for row in keyed]
    assert all(told < asked for told, asked in places)
    room = LONG - len(KEY_SENTENCE + KEY_QUESTION)
    assert {told - 1 for told, _ in places} >= set(range(0, room // 2, 8))  # anywhere, early more often than late
    assert max(asked for _, asked in places) > room + len(KEY_SENTENCE) - 8
    keys = {row[row.index(b"key is ") + 7 :][:KEY_DIGITS] for row in keyed}
    assert len(keys) > 0.98 * len(keyed)
    assert {digit for key in keys for digit in key.decode()} == set("0123456789")


@pytest.fixture
def books(tmp_path):
    (tmp_path / "train.txt").write_bytes(sentences(4000))
    (tmp_path / "val.txt").write_bytes(sentences(600, seed=1))
    return tmp_path


def test_keys_are_drawn_by_window_whatever_the_process_and_not_for_what_is_judged(books):
    text = TextData(books)
    whole = torch.cat(list(text.epoch(LONG, 8, seed=1, epoch=2, keys=0.5)))
    halves = [list(text.epoch(LONG, 8, seed=1, epoch=2, keys=0.5, rank=rank, world=2)) for rank in range(2)]
    assert torch.equal(whole, torch.cat([torch.cat(both) for both in zip(*halves, strict=True)]))
    plain = torch.cat(list(text.epoch(LONG, 8, seed=1, epoch=2)))
    changed = (whole != plain).any(1)
    assert 0.2 < changed.float().mean() < 0.8
    other = torch.cat(list(text.epoch(LONG, 8, seed=1, epoch=3, keys=0.5)))
    assert not torch.equal(changed, (other != torch.cat(list(text.epoch(LONG, 8, seed=1, epoch=3)))).any(1))
    task = build_task(replace(SMALL, data=str(books), length=LONG, batch=8, keys=1.0), "cpu")
    first = bytes(next(task.batches(0, 0, 1))[0].tolist())
    assert b"What is the pass key" in first
    assert all(b"pass key" not in bytes(part.tolist()) for part in task.text.parts.values())


def test_windows_that_are_too_short_for_keys_are_refused(books):
    with pytest.raises(
        ValueError, match=f"keys must be none for windows of less than {MIN_KEY_LENGTH - 1} bytes, got a length of 24"
    ):
        build_task(replace(SMALL, data=str(books), keys=0.1), "cpu")
    for share in (0.0, 1.5):
        with pytest.raises(ValueError, match=f"keys must be above 0 and at most 1, got {share}"):
            replace(SMALL, keys=share)

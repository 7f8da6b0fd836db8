"""Trials of damage, a few of each kind: nothing goes unnoticed, and what would is counted."""

import importlib
import random
import sys
from pathlib import Path

import pytest

from ropewalk.lab import checkpoint_file, sealed_files

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def trials(monkeypatch):
    """The module, by a name under which new processes find it, too."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("damage_trials")
    for name in ("damage_trials", "hostile_files"):
        sys.modules.pop(name, None)


@pytest.fixture
def hostile(trials):
    pytest.importorskip("av", reason="needs PyAV, which writes videos")
    return importlib.import_module("hostile_files")


def test_killed_trainings_come_to_the_same_end(trials, tmp_path):
    found = trials.try_kills(3, tmp_path, random.Random(0))
    assert found["kills"] == 3
    assert found["runs"] >= 1
    assert found["other_ends"] == 0


def test_another_end_is_seen(trials, tmp_path):
    run = trials.train_small(tmp_path)
    before = trials.describe_end(run)
    run.log(step=99, epoch=4, loss=0.0)
    assert trials.describe_end(run) != before


def test_no_flipped_bit_goes_unnoticed(trials, tmp_path):
    found = trials.try_bits(25, tmp_path, random.Random(0))
    for counts in found.values():
        assert counts["flipped"] == counts["reported"] + counts["without_effect"] == 25
        assert counts["reported"] > 10
    assert trials.count_failures({"bits": found}) == 0


def test_without_checksums_flipped_bits_go_unnoticed(trials, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sealed_files, "_hash_document", lambda document, seal: "none")
    monkeypatch.setattr(checkpoint_file, "compute_checksum", lambda tensors, words: "none")
    found = trials.try_bits(25, tmp_path, random.Random(0))
    assert found["finished"]["unnoticed"] > 0
    assert trials.count_failures({"bits": found}) > 0
    assert "unnoticed: bit" in capsys.readouterr().err


def test_hostile_files_are_read_or_refused(trials, hostile, tmp_path, capsys):
    count = len(hostile.KINDS)
    found = trials.try_files(count, tmp_path, random.Random(0))
    assert found["opened"] == count * len(hostile.READERS) == found["read"] + found["refused"], capsys.readouterr().err
    assert found["refused"] > found["read"] > 0


def test_readers_that_crash_or_wait_are_counted(trials, hostile, tmp_path, monkeypatch, capsys):
    wait = {"careless": lambda path: {}["a"], "patient": lambda path: open(path, "rb").close()}
    monkeypatch.setattr(hostile, "READERS", wait)
    monkeypatch.setattr(hostile, "KINDS", {"a named pipe": hostile.KINDS["a named pipe"]})
    monkeypatch.setattr(trials, "SECONDS_PER_FILE", 1)
    found = trials.try_files(1, tmp_path, random.Random(0))
    assert found["crashed"] == trials.count_failures({"files": found}) == 2
    said = capsys.readouterr().err
    assert "careless of a named pipe" in said
    assert "it took more than 1 s" in said

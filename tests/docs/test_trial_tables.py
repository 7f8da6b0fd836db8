"""The page of trials reads the counts that scripts wrote, and these reach the numbers that were set."""

import pytest

import trial_tables


@pytest.fixture
def counts(monkeypatch):
    found = {
        "fuzz.json": {"functions": 3, "calls": 9000, "returned": 5, "refused": 8990, "silent": 2, "internal": 3},
        "damage-trials.json": {
            "kills": {"kills": 20, "runs": 4, "other_ends": 5},
            "bits": {
                state: {"flipped": 100, "reported": 90, "without_effect": 4, "unnoticed": 6}
                for state in ("finished", "unfinished")
            },
            "files": {"files": 50, "opened": 70, "refused": 40, "read": 23, "crashed": 7},
        },
    }
    monkeypatch.setattr(trial_tables, "load_counts", found.__getitem__)


def test_failures_are_counted(counts):
    rows = [row.split(" | ") for row in trial_tables.list_trials().splitlines()[2:]]
    assert [row[-1].strip(" |") for row in rows] == ["5", "5", "6", "6", "7"]
    assert rows[0][0].strip("| ") == "odd calls of 3 functions and methods"
    assert trial_tables.describe_calls() == "8,990 were refused, 5 returned"
    assert trial_tables.describe_bits("finished") == "90 were reported and 4 had no effect"


def test_enough_was_tried_and_nothing_failed():
    damage = trial_tables.load_counts("damage-trials.json")
    assert trial_tables.load_counts("fuzz.json")["calls"] >= 10_000
    assert damage["kills"]["kills"] >= 200
    assert all(found["flipped"] >= 1000 for found in damage["bits"].values())
    assert damage["files"]["files"] >= 500
    rows = trial_tables.list_trials().splitlines()[2:]
    assert [row.split(" | ")[-1].strip(" |") for row in rows] == ["0"] * 5

"""The fuzzer finds nothing in the public API, and finds what is put before it."""

import subprocess
import sys
import time

import pytest
import torch

from ropewalk.testing import fuzz, fuzz_calls
from ropewalk.testing.fuzz import list_faults, run_calls

CALLS = 5000


@pytest.mark.parametrize("seed", range(4))
def test_odd_calls_are_refused_in_words_or_keep_their_promises(seed):
    found = list(run_calls(CALLS, seed=seed))
    assert len(found) == CALLS
    assert {finding.target for finding in found} > {"attend", "positions.grid", "create", "ViT", "extension.options"}
    assert sum(finding.kind == "refused" for finding in found) > CALLS / 2
    assert sum(finding.kind == "returned" for finding in found) > CALLS / 10
    assert list_faults(iter(found)) == []


def take_anything(n):
    return n


def take_numbers(n):
    return torch.zeros(3) + n if isinstance(n, torch.Tensor) else torch.zeros(n)


def take_forever(n):
    while True:
        time.sleep(0.01)


def take_integers(n):
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError("n must be an integer")
    return n


@pytest.mark.parametrize(
    ("function", "kind"), [(take_anything, "silent"), (take_numbers, "internal"), (take_forever, "hang")]
)
def test_it_finds_faults(function, kind, monkeypatch):
    monkeypatch.setattr(fuzz, "LIMIT", 0.05)
    monkeypatch.setattr(fuzz, "TARGETS", {})
    monkeypatch.setattr(fuzz_calls, "TARGETS", fuzz.TARGETS)
    fuzz_calls.add_target("ours", function, {"n": fuzz_calls.INTEGER})
    assert kind in {finding.kind for finding in run_calls(30)}


def test_errors_of_ropewalk_are_refusals_and_others_are_not(monkeypatch):
    monkeypatch.setattr(fuzz, "TARGETS", {})
    monkeypatch.setattr(fuzz_calls, "TARGETS", fuzz.TARGETS)
    fuzz_calls.add_target("ours", take_integers, {"n": fuzz_calls.INTEGER})
    assert "internal" in {finding.kind for finding in run_calls(30)}
    monkeypatch.setattr(fuzz, "SOURCE", fuzz.Path(__file__).parent)
    monkeypatch.setattr(fuzz, "HARNESS", ())
    assert {finding.kind for finding in run_calls(30)} <= {"refused", "returned"}


def test_a_promise_that_is_not_kept_is_found(monkeypatch):
    monkeypatch.setattr(fuzz_calls, "ODD_SHARE", 0.0)
    monkeypatch.setattr(fuzz_calls.positions, "_line", lambda *given: torch.full((2,), torch.nan))
    assert {finding.kind for finding in run_calls(40, only="positions.grid")} == {"silent"}


def test_the_same_seed_makes_the_same_calls():
    one, other = ([(each.target, each.kind) for each in run_calls(50, seed=7)] for _ in range(2))
    assert one == other


def test_the_command_counts(tmp_path):
    line = [sys.executable, "-m", "ropewalk.testing.fuzz", "--calls", "40", "--json", str(tmp_path / "counts.json")]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("40 calls in ")
    assert '"calls": 40' in (tmp_path / "counts.json").read_text()

"""The environment of a run: where its code, versions and kernels came from."""

import subprocess

import pytest
import torch

from ropewalk.lab import environment
from ropewalk.lab.environment import (
    continue_environment,
    count_neighbors,
    describe_attention_kernels,
    describe_environment,
    disable_cudnn_attention,
    read_commit,
)


def describe():
    return describe_environment(torch.device("cpu"), processes=1, compiled=False)


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder that ropewalk seems to run from."""
    module = tmp_path / "src" / "ropewalk" / "lab" / "environment.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    monkeypatch.setattr(environment, "__file__", str(module))
    read_commit.cache_clear()
    yield tmp_path
    read_commit.cache_clear()


def test_the_commit_is_that_of_the_checkout_and_says_whether_files_were_changed(checkout):
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "one")
    git(checkout, "tag", "v1", "-m", "one")
    head = git(checkout, "rev-parse", "HEAD")
    assert read_commit() == head
    (checkout / "src" / "ropewalk" / "lab" / "environment.py").write_text("changed")
    assert read_commit() == head  # once for a process
    read_commit.cache_clear()
    assert read_commit() == f"{head}-dirty"


def test_no_checkout_has_no_commit(checkout, monkeypatch):
    assert read_commit() is None
    (checkout / ".git").write_text("no repository")
    read_commit.cache_clear()
    assert read_commit() is None
    monkeypatch.setenv("PATH", str(checkout))  # without git
    read_commit.cache_clear()
    assert read_commit() is None


def test_a_repository_around_an_installed_package_is_not_its_own(checkout, monkeypatch):
    git(checkout, "init", "-q")
    site = checkout / "venv" / "lib" / "site-packages" / "ropewalk" / "lab" / "environment.py"
    monkeypatch.setattr(environment, "__file__", str(site))
    assert read_commit() is None


@pytest.mark.parametrize(("said", "count"), [("3", 3), ("0", 0), ("", None), ("many", None), ("-1", None)])
def test_neighbors_are_counted_where_they_are_known(monkeypatch, said, count):
    monkeypatch.setenv("ROPEWALK_NEIGHBORS", said)
    assert count_neighbors() == count
    assert describe()["neighbors"] == count


def test_kernels_are_those_that_training_may_use():
    cuda = torch.device("cuda")
    assert describe_attention_kernels(cuda, compiled=True) == "ropewalk; sdpa: flash, efficient, math"
    assert describe_attention_kernels(cuda, compiled=False) == "sdpa: flash, efficient, math"
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), disable_cudnn_attention():
        assert describe()["attention_kernel"] == "sdpa: math"


def test_a_resumed_run_keeps_its_beginning_and_lists_other_environments():
    first = describe() | {"created": "then", "processes": 2}
    assert continue_environment(first, describe() | {"processes": 2}) == first
    known = {"encoding": {"name": "mixed"}, "data": {"sha256": "ab"}, "index_seed": 0}
    assert continue_environment(first | known, describe() | {"processes": 2}) == first | known
    assert continue_environment(first | known, describe() | {"data": {"sha256": "cd"}})["data"] == {"sha256": "cd"}
    second = continue_environment(first, describe() | {"commit": "b"})
    assert (second["created"], second["commit"], second["processes"]) == ("then", "b", 1)
    (earlier,) = second["earlier"]
    assert (earlier["commit"], earlier["processes"]) == (first["commit"], 2)
    third = continue_environment(second, describe() | {"commit": "c"})
    assert [each["commit"] for each in third["earlier"]] == [first["commit"], "b"]


def test_what_older_runs_did_not_record_stays_unknown():
    older = {"machine": describe()["machine"], "versions": {"torch": "2.9"}, "processes": 1}
    found = continue_environment(older, describe())
    assert found["created"] is None
    assert found["earlier"][0]["commit"] is None

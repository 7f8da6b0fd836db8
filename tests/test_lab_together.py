"""Several processes that share the runs of a study."""

import io
import os
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from ropewalk.cli import main
from ropewalk.lab.store import Run
from ropewalk.lab.studies.lines import load
from ropewalk.lab.together import environment, together

SMALL = "data=digits patch=2 width=24 depth=1 heads=2 batch=64 fraction=0.3 compile=false precision=float32 warmup=0.1"


def words(folder, *more, epochs):
    places = ["--runs", str(folder / "runs"), "--out", str(folder / "out")]
    return ["compare", "--study", "equivariance", *more, "--set", *SMALL.split(), f"epochs={epochs}", *places]


def test_each_has_its_share_of_processors_and_caches_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setenv("KEPT", "yes")
    first, second = (environment(i, 5, tmp_path) for i in range(2))
    assert {first[key] for key in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")} == {"3"}
    assert first["KEPT"] == "yes"
    for key in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        assert first[key].startswith(str(tmp_path))
        assert first[key] != second[key]
    assert environment(0, 40, tmp_path)["OMP_NUM_THREADS"] == "1"


def test_what_each_says_is_told(tmp_path):
    out = io.StringIO()
    codes = together(2, ["show", "axle"], tmp_path, Console(file=out, width=500))
    assert codes == [2, 2]
    told = out.getvalue().splitlines()
    assert {line[:3] for line in told} == {"1: ", "2: "}
    assert sum("no encoding is named 'axle'" in line for line in told) == 2


def test_a_study_is_shared(tmp_path, capsys):
    chosen = ("--part", "screening", "--only", "none", "axial", "mixed", "--together", "2")
    assert main(words(tmp_path, *chosen, epochs=1)) == 0
    lines = load(tmp_path / "out" / "screening.jsonl")
    assert {each["name"] for each in lines} == {"none", "axial", "mixed"}
    told = capsys.readouterr().out
    assert "1: " in told
    assert "2: " in told
    assert main(words(tmp_path, *chosen, epochs=1)) == 0
    assert "1: " not in capsys.readouterr().out  # nothing is left to do


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_end_when_one_is_told_to(tmp_path, number):
    command = words(tmp_path, "--part", "screening", "--only", "none", "axial", "--together", "2", epochs=5000)
    parent = subprocess.Popen([sys.executable, "-m", "ropewalk", *command], stdout=subprocess.PIPE, text=True)
    found = wait_for(lambda: [path.parent for path in tmp_path.glob("runs/*/metrics.jsonl")], count=2)
    parent.send_signal(number)
    out, _ = parent.communicate(timeout=60)
    assert parent.returncode not in (0, None)
    assert out.count("the same command goes on") == 2
    for path in found:
        run = Run.at(path)
        run.claim()  # nobody holds it any more
        run.release()


def wait_for(look, count):
    """What there is as soon as it is so many."""
    for _ in range(600):
        if len(found := look()) >= count:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{count} were wanted, and there are {found}")


def test_a_number_of_processes_is_wanted(capsys):
    assert main(["compare", "--study", "equivariance", "--together", "0"]) == 2
    assert "together must be a number of processes, 1 or more, got 0" in capsys.readouterr().err
    assert main(["compare", "axial", "--together", "2"]) == 2
    assert "or --study with --part, --only, --seed or --together" in capsys.readouterr().err

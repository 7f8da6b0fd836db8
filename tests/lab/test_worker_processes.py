"""Several processes that share the runs of a study."""

import io
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from rich.console import Console

import ropewalk.lab.worker_processes as module
from ropewalk.cli import main
from ropewalk.lab.record_lines import load_records
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.worker_processes import make_process_environment, run_in_parallel
from tests.support.patch_everywhere import patch_everywhere

SMALL = "data=digits patch=2 width=24 depth=1 heads=2 batch=64 fraction=0.3 compile=false precision=float32 warmup=0.1"


def words(folder, *more, epochs):
    places = ["--runs", str(folder / "runs"), "--out", str(folder / "out")]
    return ["study", "equivariance", *more, "--set", *SMALL.split(), f"epochs={epochs}", *places]


def test_each_has_its_share_of_processors_and_caches_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("ropewalk.lab.worker_processes.count_cpu_cores", lambda: 16)
    monkeypatch.setenv("KEPT", "yes")
    first, second = (make_process_environment(i, 5, tmp_path) for i in range(2))
    assert {first[key] for key in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")} == {"3"}
    assert first["KEPT"] == "yes"
    assert first["ROPEWALK_NEIGHBORS"] == "4"
    for key in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        assert first[key].startswith(str(tmp_path))
        assert first[key] != second[key]
    assert make_process_environment(0, 40, tmp_path)["OMP_NUM_THREADS"] == "1"


def test_what_each_says_is_told():
    out = io.StringIO()
    assert run_in_parallel(2, ["show", "[red]axle"], Console(file=out, width=500)) == [2, 2]
    told = out.getvalue().splitlines()
    assert {line[:3] for line in told} == {"1: ", "2: "}
    assert sum("Unknown encoding '[red]axle'" in line for line in told) == 2


def test_bytes_that_are_no_text_are_told_too(monkeypatch):
    out = io.StringIO()
    speaking = "import sys; sys.stdout.buffer.write(b'a\\xffb\\n')"
    monkeypatch.setattr(sys, "executable", made_up(speaking))
    try:
        assert run_in_parallel(1, [], Console(file=out, width=50)) == [0]
    finally:
        os.unlink(sys.executable)
    assert out.getvalue() == "1: a\N{REPLACEMENT CHARACTER}b\n"


def made_up(program):
    """A program in the place of Python's, which runs this."""
    handle, path = tempfile.mkstemp(suffix=".sh")
    os.write(handle, f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{program}"\n'.encode())
    os.close(handle)
    os.chmod(path, 0o700)
    return path


def test_if_one_cannot_be_started_none_stays(monkeypatch):
    begin, begun = module._start_process, []

    def failing(*given):
        if begun:
            raise OSError(12, "no memory")
        begun.append(begin(*given))
        return begun[0]

    monkeypatch.setattr(module, "_start_process", failing)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(OSError, match="no memory"):
        run_in_parallel(2, ["check"], Console(file=io.StringIO()))
    assert begun[0].poll() == -signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_processes_are_asked_for_what_was_asked_for(tmp_path, monkeypatch, capsys):
    asked = []
    patch_everywhere(
        monkeypatch, module, "run_in_parallel", lambda count, given, console: asked.append((count, given)) or [0, -9]
    )
    chosen = ("--part", "screening", "--only", "none", "axial", "--seed", "1", "--together", "2")
    assert main(words(tmp_path, *chosen, epochs=1)) == 1
    ((count, given),) = asked
    assert count == 2
    assert given[:4] == ["study", "equivariance", "--part", "screening"]
    assert sorted(given[4:]) == sorted(words(tmp_path, *chosen[2:-2], epochs=1)[2:])
    assert "process 2 was ended by signal 9" in capsys.readouterr().out


def test_what_processes_refuse_ends_the_study(tmp_path, capsys):
    refused = words(tmp_path, "--together", "2", epochs=1)
    refused[refused.index("data=digits")] = f"data={tmp_path / 'nowhere.npz'}"
    assert main(refused) == 2
    told = capsys.readouterr().out
    assert "nowhere.npz" in told
    assert "recipe-paper-crop" not in told


def test_a_study_is_shared(tmp_path, capsys):
    chosen = ("--part", "screening", "--only", "none", "axial", "mixed", "--together", "2")
    assert main(words(tmp_path, *chosen, epochs=1)) == 0
    records = load_records(tmp_path / "out" / "screening.jsonl")
    assert {each.name for each in records} == {"none", "axial", "mixed"}
    told = capsys.readouterr().out
    assert "1: " in told
    assert "2: " in told
    assert main(words(tmp_path, *chosen, epochs=1)) == 0
    assert "1: " not in capsys.readouterr().out  # nothing is left to do


@pytest.mark.exhaustive("training", kept=lambda number: number == signal.SIGINT)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_all_end_when_one_is_told_to(tmp_path, number):
    command = words(tmp_path, "--part", "screening", "--only", "none", "axial", "--together", "2", epochs=5000)
    parent = subprocess.Popen([sys.executable, "-m", "ropewalk", *command], stdout=subprocess.PIPE, text=True)
    found = wait_for(lambda: [path.parent for path in tmp_path.glob("runs/*/metrics.jsonl")], count=2)
    parent.send_signal(number)
    out, _ = parent.communicate(timeout=60)
    assert parent.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}[number]
    assert "stopped; the same command resumes" in out
    for path in found:
        run = RunFolder.at(path)
        run.lock_folder()  # nobody holds it any more
        run.release()


def wait_for(look, count):
    """What there is as soon as it is so many."""
    for _ in range(600):
        if len(found := look()) >= count:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{count} were wanted, and there are {found}")


def test_a_number_of_processes_is_wanted(capsys, monkeypatch):
    assert main(["study", "equivariance", "--together", "0"]) == 2
    assert "together must be a number of processes, 1 or more, got 0" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert main(["study", "equivariance", "--together", "2"]) == 2
    assert "it must not be launched in several, got WORLD_SIZE=4" in capsys.readouterr().err

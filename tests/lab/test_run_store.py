"""A run on disk: what is written is read back, and what is damaged or foreign is reported."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from ropewalk.lab import run_store
from ropewalk.lab.config import Config
from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.run_store import RunFolder, read_json, write_atomically, write_json
from tests.support.patch_everywhere import patch_everywhere

TENSORS = {
    "model/a": torch.arange(6.0).reshape(2, 3).mT,
    "model/b": torch.tensor(True),
    "optimiser/0/step": torch.tensor(3.0),
    "empty": torch.zeros(0, 4),
    "half": torch.ones(3, dtype=torch.bfloat16),
}


@pytest.fixture
def run(tmp_path):
    found = RunFolder(tmp_path / "runs", Config())
    found.acquire({"machine": "here"})
    yield found
    found.release()


def test_tensors_and_facts_come_back(run):
    assert run.load() is None
    run.save(TENSORS, epoch=2, step=30, seconds=1.5)
    tensors, facts = run.load()
    assert facts == {"epoch": 2, "step": 30, "seconds": 1.5}
    assert tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert tensors[name].dtype == value.dtype
        assert torch.equal(tensors[name], value)


def test_a_folder_is_found_again_by_its_settings(run):
    again = RunFolder(run.path.parent, Config())
    assert again.path == run.path
    assert RunFolder.at(run.path).config == run.config
    assert RunFolder(run.path.parent, Config(seed=1)).path != run.path
    assert RunFolder(run.path.parent, Config(root="elsewhere", workers=0)).path == run.path


def damaged(run, words):
    with pytest.raises(DamagedFileError, match=words):
        run.load()


def test_every_damaged_byte_is_found(run):
    run.save(TENSORS, epoch=1, step=1, seconds=0.0)
    path = run.path / "checkpoint.safetensors"
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        damaged(run, "checkpoint.safetensors")
    for length in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        damaged(run, "cannot be read")


def test_checkpoints_of_others_are_not_read(run):
    path = run.path / "checkpoint.safetensors"
    save_file({"model/a": torch.zeros(2)}, path)
    damaged(run, "got a file that ropewalk did not write")
    other = RunFolder(run.path.parent, Config(seed=1))
    other.acquire({})
    other.save(TENSORS, epoch=1, step=1, seconds=0.0)
    other.release()
    os.replace(other.path / "checkpoint.safetensors", path)
    damaged(run, "must be a checkpoint of mixed-seed0-.*, got mixed-seed1-")


def test_pickles_are_not_read(run):
    torch.save(TENSORS, run.path / "checkpoint.safetensors")
    damaged(run, "cannot be read")


def test_a_failed_write_leaves_the_old_file(run, monkeypatch):
    run.save(TENSORS, epoch=1, step=1, seconds=0.0)

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ropewalk.lab.run_store.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        run.save({}, epoch=2, step=2, seconds=0.0)
    monkeypatch.undo()
    assert run.load()[1]["epoch"] == 1
    assert not list(run.path.glob("*.part"))


def test_metrics_are_cut_to_a_step_and_may_end_in_the_middle_of_a_line(run):
    for step in (10, 20, 30):
        run.log(step=step, loss=1 / step)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "lo')
    assert [record["step"] for record in run.metrics()] == [10, 20, 30]
    run.cut(20)
    assert run.metrics() == [{"step": 10, "loss": 0.1}, {"step": 20, "loss": 0.05}]
    run.log(step=30, loss=0.0)
    assert len(run.metrics()) == 3


def test_damaged_metrics_are_reported(run):
    (run.path / "metrics.jsonl").write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    with pytest.raises(DamagedFileError, match=r"2.*metrics.jsonl cannot be read"):
        run.metrics()


def test_results(run):
    assert run.result() is None
    run.finish(test_accuracy=0.5)
    assert run.result() == {"test_accuracy": 0.5}
    (run.path / "result.json").write_text("[1]")
    with pytest.raises(DamagedFileError, match="object, got list"):
        run.result()


def test_files_are_put_in_place_whole_or_not_at_all(tmp_path):
    path = tmp_path / "some.txt"
    write_atomically(path, lambda part: part.write_text("old"))

    def half(part):
        part.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, half)
    assert [each.name for each in tmp_path.iterdir()] == ["some.txt"]
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("content", "words"), [("{", "cannot be read"), ("[1]", "must hold an object, got list"), (b"\xff", "cannot be read")]
)
def test_what_holds_no_object_is_reported(tmp_path, content, words):
    path = tmp_path / "some.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DamagedFileError, match=f"some.json {words}"):
        read_json(path)
    write_json(path, {"a": [1]})
    assert read_json(path) == {"a": [1]}
    with pytest.raises(DamagedFileError, match=r"nowhere\.json cannot be read"):
        read_json(tmp_path / "nowhere.json")


def test_one_process_at_a_time(run):
    program = """
import sys; from pathlib import Path
from ropewalk.lab.config import Config; from ropewalk.lab.run_store import RunFolder
try: RunFolder(Path(sys.argv[1]), Config()).acquire({})
except RuntimeError as error: print(error)
"""
    call = [sys.executable, "-c", program, str(run.path.parent)]
    said = subprocess.run(call, check=True, capture_output=True, text=True).stdout
    assert "is being written by another process" in said


def test_a_folder_without_settings_is_no_run(tmp_path):
    with pytest.raises(ValueError, match=r"no run.*config\.json"):
        RunFolder.at(tmp_path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"encoding": "sphericle"}, "Did you mean 'spherical'"),
        ({"epochs": 0}, r"epochs.*1.*got 0"),
        ({"epochs": "3"}, r"epochs.*got '3'"),
        ({"epochs": True}, r"epochs.*got True"),
        ({"optimiser": "sgd"}, r"optimiser.*got 'sgd'"),
        ({"validation": 1.0}, r"validation.*0.*1, got 1.0"),
        ({"fraction": 0.0}, r"fraction.*0.*1, got 0.0"),
        ({"size": (8, "9")}, "size must be"),
    ],
)
def test_settings_are_checked(settings, words):
    with pytest.raises(ValueError, match=words):
        Config(**settings)


def test_settings_come_back_from_json():
    config = Config(encoding="liere", options={"block": 4}, size=(8, 12), augment=("flip",), span=6.0, ema=None)
    again = Config.of(json.loads(json.dumps(config.document())))
    assert again == config
    assert again.name == config.name
    with pytest.raises(ValueError, match=r"epoch; .*augment, batch"):
        Config.of({"epoch": 3})


def test_a_disk_that_is_full_at_the_start_leaves_no_lock(tmp_path, monkeypatch):
    run = RunFolder(tmp_path, Config())

    def full(path, document):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patch_everywhere(patched, run_store, "write_json", full)
        with pytest.raises(OSError, match="No space"):
            run.acquire({})
    other = RunFolder(tmp_path, Config())
    other.acquire({})
    other.release()


def test_two_processes_may_write_one_file(tmp_path, monkeypatch):
    path, pids = tmp_path / "it.json", iter((1, 2))
    monkeypatch.setattr(run_store.os, "getpid", lambda: next(pids))

    def slow(part):
        write_json(path, {"from": "another"})
        part.write_text("{}")

    write_atomically(path, slow)
    assert path.read_text() == "{}"
    assert [each.name for each in tmp_path.iterdir()] == ["it.json"]

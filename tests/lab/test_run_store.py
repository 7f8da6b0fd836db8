"""A run on disk: what is written is read back, and what is damaged or foreign is reported."""

import errno
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ropewalk.lab import checkpoint_file, run_store, sealed_files
from ropewalk.lab.compare.plan import record_failure
from ropewalk.lab.config import Config
from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_location import parse_location
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json, write_atomically, write_json
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
    assert run.load_checkpoint() is None
    run.save_checkpoint(TENSORS, epoch=2, step=30, seconds=1.5)
    tensors, facts = run.load_checkpoint()
    none = {"lines": 0, "sha256": hashlib.sha256().hexdigest()}
    assert facts == {"epoch": 2, "step": 30, "seconds": 1.5, "logs": {"metrics.jsonl": none}}
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
        run.load_checkpoint()


def test_every_damaged_byte_is_found(run):
    run.save_checkpoint(TENSORS, epoch=1, step=1, seconds=0.0)
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
    other.save_checkpoint(TENSORS, epoch=1, step=1, seconds=0.0)
    other.release()
    os.replace(other.path / "checkpoint.safetensors", path)
    damaged(run, "must be a checkpoint of mixed-seed0-.*, got mixed-seed1-")


def test_pickles_are_not_read(run):
    torch.save(TENSORS, run.path / "checkpoint.safetensors")
    damaged(run, "cannot be read")


def test_a_failed_write_leaves_the_old_file(run, monkeypatch):
    run.save_checkpoint(TENSORS, epoch=1, step=1, seconds=0.0)

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ropewalk.lab.checkpoint_file.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        run.save_checkpoint({}, epoch=2, step=2, seconds=0.0)
    monkeypatch.undo()
    assert run.load_checkpoint()[1]["epoch"] == 1
    assert not list(run.path.glob("*.part"))


def log_three(run):
    """Three lines, of which the checkpoint counts two; its facts."""
    for epoch in (1, 2, 3):
        if epoch == 3:
            run.save_checkpoint(TENSORS, step=20, epoch=2)
        run.log(step=10 * epoch, epoch=epoch, loss=1 / epoch)
    return run.load_checkpoint()[1]


def test_metrics_that_are_later_than_the_checkpoint_are_removed(run):
    facts, path = log_three(run), run.path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    counted = {"lines": 2, "sha256": hashlib.sha256(b"".join(lines[:2])).hexdigest()}
    assert facts["logs"] == {"metrics.jsonl": counted}
    with path.open("a") as file:
        file.write('{"step": 15}\n{"step": 40, "lo')
    assert [record["step"] for record in run.metrics()] == [10, 20, 30, 15]
    assert run.restore_metrics(facts) is None
    assert path.read_bytes() == b"".join(lines[:2])
    run.log(step=30, epoch=3, loss=0.0)
    assert len(run.metrics()) == 3
    assert run.restore_metrics(None) is None
    assert run.metrics() == []


@pytest.mark.parametrize("facts", [{"step": 20, "epoch": 2}, {"step": 30, "epoch": 3, "unjudged": {"epoch": 3}}])
def test_checkpoints_of_format_1_remove_by_step(run, facts):
    log_three(run)
    assert run.restore_metrics(facts) is None
    assert [record["step"] for record in run.metrics()] == [10, 20]


@pytest.mark.parametrize(
    ("change", "words", "kept"),
    [
        (lambda lines: lines[1:], r"SHA-256.*differs; epochs without metrics: 1$", [2]),
        (lambda lines: lines[2:], r"must have 2 lines.*got 1; epochs without metrics: 1, 2$", []),
        (lambda lines: lines[:1], r"must have 2 lines.*got 1; epochs without metrics: 2", [1]),
        (lambda lines: [], r"got 0; epochs without metrics: 1, 2", []),
        (lambda lines: [lines[0].replace(b"1.0", b"1.5"), *lines[1:]], r"SHA-256.*differs$", [1, 2]),
        (lambda lines: [lines[1], lines[0], lines[2]], r"SHA-256.*differs$", [2, 1]),
    ],
)
def test_metrics_that_were_lost_or_changed_are_reported_once_and_for_all(run, change, words, kept):
    facts, path = log_three(run), run.path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(lines)))
    problem = run.restore_metrics(facts)
    assert re.search(words, problem)
    assert [record["epoch"] for record in run.metrics()] == kept
    run.save_checkpoint(TENSORS, step=20, epoch=2)
    again = RunFolder.at(run.path)
    assert again.restore_metrics(again.load_checkpoint()[1]) is None
    again.log(step=30, epoch=3, loss=0.0)
    again.finish(test_accuracy=0.5)
    assert again.find_metrics_problems() == [problem]


@pytest.mark.parametrize("garbage", [b"nonsense\n", b"\xff\x00\n[\n", b"5\n{}\n", 10_000 * b"[" + b"\n"])
def test_garbage_after_the_counted_lines_is_removed_with_a_warning(run, garbage):
    facts, path = log_three(run), run.path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + garbage + lines[2] + b"torn")
    with pytest.warns(UserWarning, match=rf"lines of .*metrics\.jsonl.* removed \({garbage.count(10)}\); their steps"):
        assert run.restore_metrics(facts) is None
    assert path.read_bytes() == b"".join(lines[:2])
    run.log(step=30, epoch=3, loss=1 / 3)
    run.finish(test_accuracy=0.5)
    assert run.find_metrics_problems() == []
    assert path.read_bytes() == b"".join(lines)


def test_garbage_among_the_counted_lines_is_a_problem(run):
    facts, path = log_three(run), run.path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"nonsense\n" + lines[2])
    assert re.search(r"SHA-256.*differs; epochs without metrics: 2$", run.restore_metrics(facts))
    assert path.read_bytes() == lines[0]


def test_unreadable_lines_of_format_1_are_reported_where_an_epoch_is_lost(run):
    log_three(run)
    path = run.path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines) + b"nonsense\n")
    with pytest.warns(UserWarning, match=r"lines of .* removed \(1\)"):
        assert run.restore_metrics({"step": 20, "epoch": 2}) is None
    path.write_bytes(lines[0] + b"nonsense\n" + lines[2])
    problem = run.restore_metrics({"step": 30, "epoch": 3})
    assert re.search(r"lines of .* cannot be read \(1\); epochs without metrics: 2$", problem)
    assert path.read_bytes() == lines[0] + lines[2]


def test_epochs_that_are_not_validated_are_not_missing(tmp_path):
    run = RunFolder(tmp_path, Config(every=2, epochs=5))
    run.acquire({})
    run.log(step=20, epoch=2)
    run.save_checkpoint(TENSORS, step=50, epoch=5)
    (run.path / "metrics.jsonl").unlink()
    problem = run.restore_metrics(run.load_checkpoint()[1])
    run.release()
    assert problem.endswith("; epochs without metrics: 2, 4, 5")


def test_damaged_metrics_are_reported(run):
    (run.path / "metrics.jsonl").write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    with pytest.raises(DamagedFileError, match=r"2.*metrics.jsonl cannot be read"):
        run.metrics()


def test_metrics_of_a_finished_run_are_checked(run):
    log_three(run)
    run.finish(test_accuracy=0.5)
    assert run.find_metrics_problems() == []
    path = run.path / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"0.5", b"0.6"))
    assert "SHA-256" in run.find_metrics_problems()[0]
    path.write_bytes(whole + whole)
    assert "must have 3 lines" in run.find_metrics_problems()[0]
    path.unlink()
    assert "got 0" in run.find_metrics_problems()[0]
    write_json(run.path / "result.json", {"test_accuracy": 0.5})  # of format 1
    assert run.find_metrics_problems() == []


def test_every_changed_byte_of_a_json_file_is_reported_or_without_effect(run):
    wanted = {"test_accuracy": 0.5, "test_loss": 1e-3, "step": 30}
    run.finish(**wanted)
    path = run.path / "result.json"
    whole, reported = path.read_bytes(), 0
    for place in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            try:
                found = run.result()
            except DamagedFileError:
                reported += 1
            else:
                assert {name: found.get(name) for name in wanted} == wanted
    assert reported > 7 * len(whole)


def test_json_files_of_other_runs_and_formats_are_not_read(run, tmp_path):
    other = RunFolder(tmp_path / "runs", Config(seed=1))
    other.acquire({})
    other.release()
    other.finish(test_accuracy=0.5)
    os.replace(other.path / "result.json", run.path / "result.json")
    with pytest.raises(DamagedFileError, match=r"result\.json must be a file of mixed-seed0-.*got one of mixed-seed1-"):
        run.result()
    with pytest.MonkeyPatch.context() as later:
        for module in (sealed_files, checkpoint_file):
            later.setattr(module, "RUN_FORMAT", "ropewalk run 3")
        run.finish(test_accuracy=0.5)
        run.save_checkpoint(TENSORS, step=1, epoch=1)
    with pytest.raises(DamagedFileError, match=r"format.*'ropewalk run 3'"):
        run.result()
    with pytest.raises(DamagedFileError, match=r"'ropewalk run 2'.*'ropewalk run 3'"):
        run.load_checkpoint()


def test_a_renamed_folder_keeps_its_files_and_is_reported(run):
    run.finish(test_accuracy=0.5)
    run.save_checkpoint(TENSORS, step=1, epoch=1)
    assert load_run(run.path).problems == ()
    run.path.rename(run.path.parent / "best")
    again = RunFolder.at(run.path.parent / "best")
    assert again.result() == {"test_accuracy": 0.5}
    assert again.load_checkpoint()[1]["step"] == 1
    record = load_run(again.path)
    assert record.result == {"test_accuracy": 0.5}
    (problem,) = record.problems
    assert problem.startswith(f"best has the run {run.config.name}: the directory was renamed")


def test_a_config_that_was_edited_takes_no_file_of_the_run(run):
    """Neither with the checksum of what it was, nor without it."""
    run.finish(test_accuracy=0.5)
    run.write_document("probes.json", {"cost": [{"seconds": 1.0}]})
    run.save_checkpoint(TENSORS, step=1, epoch=1)
    path = run.path / "config.json"
    document = json.loads(path.read_text()) | {"epochs": 7}
    path.write_text(json.dumps(document))
    with pytest.raises(DamagedFileError, match=r"config\.json is damaged or was edited"):
        load_run(run.path)
    del document["ropewalk"]
    path.write_text(json.dumps(document))
    record = load_run(run.path)
    assert (record.result, record.probes, record.config.epochs) == (None, {}, 7)
    problems = "\n".join(record.problems)
    for name in ("result.json", "probes.json", "environment.json"):
        assert re.search(rf"{name} must be a file of {record.config.name}, got .*config\.json was edited", problems)
    with pytest.raises(DamagedFileError, match=f"must be a checkpoint of {record.config.name}"):
        RunFolder.at(run.path).load_checkpoint()


def test_a_run_whose_settings_had_another_name_in_an_earlier_version_is_read(run, monkeypatch):
    run.finish(test_accuracy=0.5)
    run.save_checkpoint(TENSORS, step=1, epoch=1)
    monkeypatch.setattr(Config, "name", "mixed-seed0-0123456789")
    again = RunFolder.at(run.path)
    assert (again.name, again.result(), again.load_checkpoint()[1]["step"]) == (run.name, {"test_accuracy": 0.5}, 1)
    (problem,) = load_run(run.path).problems
    assert "has settings whose run is named mixed-seed0-0123456789: " in problem
    assert "another version of ropewalk named it" in problem
    again.write_document("probes.json", {"cost": []})
    assert again.read_document("probes.json") == {"cost": []}


def test_a_run_of_format_1_with_another_name_than_its_settings_is_reported(run):
    write_json(run.path / "config.json", run.config.document())
    (run.path / "environment.json").unlink()
    assert load_run(run.path).problems == ()
    run.path.rename(run.path.parent / "best")
    (problem,) = load_run(run.path.parent / "best").problems
    assert problem.startswith(f"best has settings whose run is named {run.name}: the directory was renamed")


def test_old_json_files_have_no_checksum(run):
    write_json(run.path / "result.json", {"test_accuracy": 0.25})
    write_json(run.path / "config.json", run.config.document())
    assert RunFolder.at(run.path).result() == {"test_accuracy": 0.25}


def test_locations(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for said in ("~/a b", f"file://{tmp_path}/a%20b", f"file://localhost{tmp_path}/a b", Path(f"FILE://{tmp_path}/a b")):
        assert parse_location(said) == tmp_path / "a b"
    for said in ("runs", "runs/a:b", "a:b", "./file:/x", "a:", "C:/runs", Path("runs")):
        assert parse_location(said) == Path(said)
    for said in ("s3://bucket/runs", "s3://bucket", Path("s3://bucket"), "gs://b/c", "file://elsewhere/runs", "http://a/b"):
        with pytest.raises(ValueError, match=r"path or a file:// URL.*got '[a-z0-9]+:/"):
            parse_location(said)


def test_a_run_is_found_by_url(run):
    assert RunFolder.at(f"file://{run.path}").path == run.path
    assert RunFolder(f"file://{run.path.parent}", run.config).path == run.path
    assert load_run(f"file://{run.path}").location == str(run.path)


def test_results(run):
    assert run.result() is None
    run.finish(test_accuracy=0.5)
    assert run.result() == {"test_accuracy": 0.5}
    (run.path / "result.json").write_text("[1]")
    with pytest.raises(DamagedFileError, match="object, got list"):
        run.result()


def save_two(run):
    for step in (1, 2):
        run.save_checkpoint(TENSORS, step=step, epoch=1)
    return run.path / "checkpoint.safetensors", run.path / "checkpoint.previous.safetensors"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (None, "must have facts in its metadata, got none"),
        ("{", "must have facts in JSON"),
        ("[" * 200, "nested at most 100 deep"),
        ("[1]", "must have an object of facts, got list"),
        ("{}", "must have an integer step in its facts, got None"),
        ('{"step": true}', "must have an integer step in its facts, got True"),
        ('{"step": "7"}', "must have an integer step in its facts, got '7'"),
    ],
)
def test_a_checkpoint_without_facts_is_damaged_and_the_previous_is_read(run, facts, words):
    newest, _ = save_two(run)
    tensors, said = {"a": torch.ones(2)}, {} if facts is None else {"facts": facts}
    said |= {"format": "ropewalk run 2", "run": run.name, "sum": checkpoint_file.compute_checksum(tensors, facts or "")}
    newest.unlink()  # the previous checkpoint may be a link to the same file
    save_file(tensors, newest, metadata=said)
    with pytest.raises(DamagedFileError, match=words):
        run.load_checkpoint()
    with pytest.warns(UserWarning, match="previous checkpoint, of step 1"):
        assert run.load_latest_checkpoint().facts["step"] == 1


def test_the_advice_to_begin_anew_names_all_checkpoints(run):
    newest, previous = save_two(run)
    newest.write_bytes(b"")
    with pytest.raises(
        DamagedFileError, match=r"; delete checkpoint\.safetensors and checkpoint\.previous\.safetensors to begin"
    ):
        run.load_checkpoint()
    previous.unlink()
    with pytest.raises(DamagedFileError, match=r"; delete checkpoint\.safetensors to begin anew$"):
        run.load_checkpoint()


@pytest.mark.parametrize("links", [True, False])
def test_the_newest_checkpoint_is_kept_once_the_new_one_is_on_disk(run, monkeypatch, links):
    newest, previous = save_two(run)
    before, done, (link, sync, put) = newest.read_bytes(), [], (os.link, sealed_files.flush_to_disk, os.replace)

    def try_link(source, target):
        done.append("link")
        if not links:
            raise OSError(1, "Operation not permitted")
        link(source, target)

    monkeypatch.setattr(os, "link", try_link)
    monkeypatch.setattr(sealed_files, "flush_to_disk", lambda path: (done.append(f"sync {path.suffix}"), sync(path)))
    monkeypatch.setattr(os, "replace", lambda part, path: (done.append(f"replace {path.name}"), put(part, path)))
    run.save_checkpoint(TENSORS, step=3, epoch=1)
    copy = [] if links else ["sync .part", f"replace {previous.name}", "sync "]
    folder = f"sync {run.path.suffix}"
    assert done == [
        "sync .part",
        "link",
        *(folder if each == "sync " else each for each in copy),
        f"replace {newest.name}",
        folder,
    ]
    assert previous.read_bytes() == before


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EIO])
def test_file_systems_that_cannot_flush_directories_are_written_to(tmp_path, monkeypatch, code):
    fsync = os.fsync

    def refuse(file):
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(file)

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="error") if code == errno.EIO else nullcontext():
        write_atomically(tmp_path / "some.txt", lambda part: part.write_text("new"))
    assert (tmp_path / "some.txt").read_text() == "new"
    monkeypatch.setattr(os, "fsync", lambda file: refuse(os.open(tmp_path, os.O_RDONLY)))
    with pytest.raises(OSError, match=re.escape(os.strerror(code))):  # of a file, it is an error
        sealed_files.flush_to_disk(tmp_path / "some.txt")


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


def test_links_at_names_that_are_written_are_not_followed(run, monkeypatch):
    precious = run.path / "precious"
    precious.write_text("words")
    for name in (f"some.txt.{os.getpid()}.part", "some.txt.00.part", "metrics.jsonl", "failed.txt", "trace.txt"):
        (run.path / name).symlink_to(precious)
    write_atomically(run.path / "some.txt", lambda part: part.write_text("new"))
    monkeypatch.setattr(sealed_files.secrets, "token_hex", lambda count: "00")
    with pytest.raises(FileExistsError):
        write_atomically(run.path / "some.txt", lambda part: part.write_text("new"))
    monkeypatch.undo()
    assert (run.path / "some.txt.00.part").is_symlink()
    with pytest.raises(OSError, match=r"metrics\.jsonl must be a regular file, got a symbolic link"):
        run.log(step=1)
    assert record_failure(run.path, ValueError("it failed")) == "ValueError: it failed"
    assert (run.path / "failed.txt").read_text() == "ValueError: it failed\n"
    assert precious.read_text() == "words"


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


def test_leftovers_of_a_killed_process_are_removed_and_the_earlier_environment_is_kept(tmp_path):
    run = RunFolder(tmp_path, Config())
    for number in (1, 2):
        run.acquire({"created": f"day {number}", "commit": f"commit {number}", "encoding": None})
        run.release()
        if number == 1:
            run.update_environment(encoding={"name": "mixed"}, data={"name": "digits"}, index_seed=0)
            (run.path / "checkpoint.safetensors.17.part").touch()
    assert not list(run.path.glob("*.part"))
    found = run.read_document("environment.json")
    assert (found["created"], found["commit"]) == ("day 1", "commit 2")
    assert [each["commit"] for each in found["earlier"]] == ["commit 1"]
    assert (found["encoding"], found["data"], found["index_seed"]) == ({"name": "mixed"}, {"name": "digits"}, 0)


def test_a_run_that_was_finished_in_between_is_left_as_it_is(run):
    run.finish(test_accuracy=0.5)
    run.release()
    before = {path: path.read_bytes() for path in run.path.iterdir()}
    run.acquire({"machine": "there"})
    assert {path: path.read_bytes() for path in run.path.iterdir()} == before


def test_a_file_is_on_disk_before_it_is_in_place_and_its_folder_after(tmp_path, monkeypatch):
    done, (replace_file, fsync) = [], (os.replace, os.fsync)

    def sync(file):
        done.append(("sync", os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    def put(part, path):
        done.append(("replace", str(part)))
        replace_file(part, path)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", put)
    write_atomically(tmp_path / "some.txt", lambda part: part.write_text("new"))
    part = done[0][1]
    assert re.fullmatch(r"some\.txt\.[0-9a-f]{16}\.part", Path(part).name)
    assert done == [("sync", part), ("replace", part), ("sync", str(tmp_path))]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_have_the_modes_of_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        run = RunFolder(tmp_path / "runs" / "deeper", Config())
        run.acquire({})
        run.log(step=1)
        run.save_checkpoint(TENSORS, step=1, epoch=1)
        run.finish(test_accuracy=0.5)
        run.release()
        files = {path.name: path.stat().st_mode & 0o777 for path in run.path.iterdir()}
    finally:
        os.umask(before)
    assert files == dict.fromkeys(files, 0o666 & ~mask)
    assert len(files) == 6


def test_a_new_directory_is_on_disk(tmp_path, monkeypatch):
    done, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (done.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file)))
    sealed_files.make_directory(tmp_path / "runs" / "one")
    assert done == [str(tmp_path), str(tmp_path / "runs")]


def test_a_lock_that_is_no_file_is_refused(tmp_path):
    run = RunFolder(tmp_path, Config())
    run.path.mkdir()
    os.mkfifo(run.path / "lock")
    with pytest.raises(OSError, match="lock must be a regular file, got a named pipe"):
        run.acquire({})


def test_a_lock_that_was_deleted_before_it_was_locked_is_taken_again(tmp_path, monkeypatch):
    run, lock, calls = RunFolder(tmp_path, Config()), run_store.fcntl.flock, []

    def late(file, how):
        if not calls:
            (run.path / "lock").unlink()
        calls.append(lock(file, how))

    monkeypatch.setattr(run_store.fcntl, "flock", late)
    run.path.mkdir()
    run.lock_folder(wait=5.0)
    assert len(calls) == 2
    run.write_document("probes.json", {})
    run.release()


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


def test_what_is_not_a_run_directory_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"is not a run directory: it has no config\.json; expected .*config\.json"):
        RunFolder.at(tmp_path)
    with pytest.raises(
        ValueError, match=r"nowhere is not a run directory: there is no such directory; expected .*config\.json"
    ):
        RunFolder.at(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"encoding": "sphericle"}, "Did you mean 'spherical'"),
        ({"epochs": 0}, r"epochs.*1.*got 0"),
        ({"epochs": "3"}, r"epochs.*got '3'"),
        ({"epochs": True}, r"epochs.*got true"),
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
    with pytest.raises(ValueError, match=r"Unknown setting 'epoch'; expected one of .*augment.*Did you mean 'epochs'\?"):
        Config.of({"epoch": 3})


@pytest.mark.parametrize("sealed", [True, False])
def test_an_unknown_setting_in_a_config_is_refused_with_its_file(run, sealed):
    """Another version may have written it, or a hand: in both cases it may change results."""
    document = run.config.document() | {"colour": "red"}
    if sealed:
        run.write_document("config.json", document)
    else:
        write_json(run.path / "config.json", document)
    with pytest.raises(ValueError, match=r"config\.json.*Unknown setting 'colour'.*newer version") as error:
        RunFolder.at(run.path)
    assert str(run.path) in str(error.value)
    write_json(run.path / "config.json", run.config.document() | {"epochs": 0})
    with pytest.raises(ValueError, match=r"config\.json.*epochs must be 1 or more, got 0$"):
        RunFolder.at(run.path)


def test_a_disk_that_is_full_at_the_start_leaves_no_lock(tmp_path, monkeypatch):
    run = RunFolder(tmp_path, Config())

    def full(path, document):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patch_everywhere(patched, sealed_files, "write_json", full)
        with pytest.raises(OSError, match="No space"):
            run.acquire({})
    other = RunFolder(tmp_path, Config())
    other.acquire({})
    other.release()


def test_two_processes_may_write_one_file(tmp_path):
    path = tmp_path / "it.json"

    def slow(part):
        write_json(path, {"from": "another"})
        part.write_text("{}")

    write_atomically(path, slow)
    assert path.read_text() == "{}"
    assert [each.name for each in tmp_path.iterdir()] == ["it.json"]

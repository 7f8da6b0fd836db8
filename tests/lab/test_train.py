"""Training: killed at any moment it goes on to the same end, two processes do what one does, and bad ends are told."""

import contextlib
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from ropewalk.lab import checkpoint_file, run_store, train
from ropewalk.lab.config import Config
from ropewalk.lab.errors import DamagedFileError, NonFiniteLossError, RunBusyError
from ropewalk.lab.record import unpack_bits
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json
from ropewalk.lab.tasks.base import normalize_images
from ropewalk.lab.tasks.classify import ClassificationTask, classification_loss
from ropewalk.lab.train import Trainer, train_run
from tests.support.patch_everywhere import patch_everywhere
from tests.support.resumed_batches import assert_batches_resume

SMALL = Config(
    data="digits", patch=2, width=24, depth=2, heads=2, ratio=2.0, epochs=4, batch=64, fraction=0.25, warmup=1.0, workers=0,
    augment=("crop",), mixup=0.5, cutmix=0.5, dropout=0.1, drop_path=0.1, ema=0.9, perturb=1.0, encoding="comrope-ld",
    options={"block": 4}, smoothing=0.1, checkpoint=0.0,
)  # fmt: skip


def told(run: RunFolder) -> list[dict]:
    """All that was measured but how long it took."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in run.metrics()]


def result(run: RunFolder) -> dict:
    return {name: value for name, value in run.result().items() if name != "seconds"}


def numbers(run: RunFolder) -> dict:
    return {name: value for name, value in result(run).items() if name != "test_correct"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbed."""
    return train_run(SMALL, tmp_path_factory.mktemp("whole"))


def test_a_run_writes_down_what_it_did(whole):
    records = told(whole)
    assert [record["epoch"] for record in records] == [1, 2, 3, 4]
    assert records[-1]["loss"] < records[0]["loss"]
    found = result(whole)
    assert 0 <= found["test_accuracy"] <= 1
    assert found["validation_accuracy"] == records[-1]["validation_accuracy"]
    assert found["encoding_parameters"] == sum(p.numel() for p in encoding_of(whole))
    record = load_run(whole.path)
    assert record.problems == ()
    assert (record.processes, record.neighbors, record.attention_kernel) == (1, None, "sdpa: flash, math")
    assert record.data["name"] == "digits"
    assert record.data["counts"]["test"] == 359
    assert len(record.data["sha256"]) == 64
    assert record.encoding["name"] == "comrope-ld"
    assert record.versions["torch"] == torch.__version__
    assert datetime.fromisoformat(record.created).utcoffset().total_seconds() == 0
    assert record.machine["threads"] == torch.get_num_threads()


def test_a_finished_run_has_a_bit_for_each_test_image(whole):
    record, task = load_run(whole.path), ClassificationTask(SMALL, "cpu")
    task.model.load_state_dict(whole.load_weights()[0])
    _, correct = task.score_images(task.model, "test", Accelerator())
    assert unpack_bits(record.test_correct, 359) == correct.tolist()
    assert correct.double().mean().item() == record.result["test_accuracy"]
    assert record.index_seed == SMALL.seed


def test_the_last_word_has_the_uncompiled_model(tmp_path, monkeypatch):
    """A compiler that is wrong in evaluation changes no result, and is told of; one that is right is not."""

    def compiled(model, wrong, **options):
        def call(*args, **given):
            out = model._call_impl(*args, **given)
            return out if model.training or not wrong else out + torch.arange(10)

        model._compiled_call_impl = call

    plain = replace(SMALL, epochs=1, ema=None)
    wanted = result(train_run(plain, tmp_path / "plain"))
    for wrong in (False, True):
        monkeypatch.setattr(torch.nn.Module, "compile", lambda model, wrong=wrong, **options: compiled(model, wrong))
        with warnings.catch_warnings(record=True) as told_of:
            warnings.simplefilter("always")
            run = train_run(replace(plain, compile=True), tmp_path / str(wrong))
        assert result(run) == wanted
        assert any("not to be trusted" in str(each.message) for each in told_of) is wrong


def test_another_seed_compiles_nothing(tmp_path, monkeypatch):
    compiled, stats = torch.nn.Module.compile, torch._dynamo.utils.counters["stats"]
    monkeypatch.setattr(torch.nn.Module, "compile", lambda model, **options: compiled(model, backend="eager", dynamic=False))
    counts = []
    for seed in (0, 1):
        train_run(replace(SMALL, epochs=1, ema=None, compile=True, precision="bfloat16", seed=seed), tmp_path)
        counts.append(stats["unique_graphs"])
    assert counts[0] == counts[1] > 0


def encoding_of(run):
    return [value for name, value in run.load_checkpoint()[0].items() if name.startswith("model/encoding.")]


def test_a_run_that_is_done_is_left_alone(whole):
    before = (whole.path / "metrics.jsonl").read_bytes()
    train_run(SMALL, whole.path.parent)
    assert (whole.path / "metrics.jsonl").read_bytes() == before


# Kills. Children are forked by a server that has imported everything and computed nothing: this process has threads of
# autograd by now, which a fork does not survive.

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["ropewalk.lab.train", "sklearn.datasets", "pytest"])


def child(runs, place=None, count=0):
    """Train in a process of its own, which may kill itself."""
    process = SERVER.Process(target=work, args=(runs, place, count))
    process.start()
    return process


def work(runs, place, count):
    torch.set_num_threads(1)
    train.CHECKPOINT_INTERVAL_FACTOR = 0  # a checkpoint after each step
    if place is not None:
        die_at(place, count)
    train_run(SMALL, runs)


def assert_same(run, other):
    assert told(run) == told(other)
    assert result(run) == result(other)
    (mine, facts), (theirs, others) = run.load_checkpoint(), other.load_checkpoint()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert facts["step"] == others["step"]


def killed(runs, lasts):
    """A run that is killed again and again, and left alone after eight times; and how often it was."""
    run, draw, kills = RunFolder(runs, SMALL), random.Random(0), 0
    while run.result() is None:
        process = child(runs)
        process.join(lasts * draw.uniform(0.05, 0.6) if kills < 8 else None)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.join()
    return run, kills


@pytest.mark.exhaustive("training")
def test_killed_at_random_it_goes_on_to_the_same_end(whole, tmp_path):
    for name in ("server", "timed"):  # the first one waits for the server's imports
        begun = time.monotonic()
        child(tmp_path / name).join()
    lasts, kills = time.monotonic() - begun, 0
    while kills < 3:  # a machine that was busy before may be quick now
        run, kills = killed(tmp_path / str(lasts), lasts)
        lasts /= 2
    assert_same(run, whole)


def die_at(place, count):
    """Make the store kill this process: in the middle of a file, before or after it is put in place."""
    calls = iter(range(10_000))
    replace_file, log = os.replace, RunFolder.log

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def put(part, path):
        now = next(calls) == count
        if now and place == "torn":
            whole = Path(part).read_bytes()
            Path(part).write_bytes(whole[: len(whole) // 2])
            die()
        if now and place == "before":
            die()
        replace_file(part, path)
        if now and place == "after":
            die()

    def write(run, **record):
        if place == "line" and record["epoch"] == count:
            with (run.path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(record)[:20])
            die()
        log(run, **record)

    run_store.os.replace, RunFolder.log = put, write


KILLS = [("torn", 3), ("before", 0), ("after", 1), ("line", 1), ("torn", 7)]


@pytest.mark.exhaustive("training", kept=lambda place, count: (place, count) in KILLS)
@pytest.mark.parametrize(
    ("place", "count"),
    [
        *[("torn", 3), ("torn", 4), ("before", 0), ("before", 3), ("after", 1), ("after", 4), ("line", 1), ("line", 3)],
        *[("torn", 7), ("before", 11), ("after", 16)],  # within an epoch
    ],
)
def test_killed_while_it_writes_it_goes_on_to_the_same_end(whole, tmp_path, place, count):
    process = child(tmp_path, place, count)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert_same(train_run(SMALL, tmp_path), whole)


def test_a_full_disk_loses_nothing(whole, tmp_path, monkeypatch):
    saves = iter(range(100))
    save = checkpoint_file.save_file

    def full(*args, **options):
        if next(saves) == 3:
            raise OSError(28, "No space left on device")
        save(*args, **options)

    monkeypatch.setattr(checkpoint_file, "save_file", full)
    monkeypatch.setattr(train, "CHECKPOINT_INTERVAL_FACTOR", math.inf)  # none within an epoch, however slow the machine is
    with pytest.raises(OSError, match="No space left on device"):
        train_run(SMALL, tmp_path)
    assert RunFolder(tmp_path, SMALL).load_checkpoint()[1]["epoch"] == 2
    assert_same(train_run(SMALL, tmp_path), whole)


def test_interrupted_it_goes_on_to_the_same_end(whole, tmp_path):
    def watch(record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(SMALL, tmp_path, watch=watch)
    assert_same(train_run(SMALL, tmp_path), whole)


STEPS = 20
"""Of the four epochs of SMALL."""


def interrupt_before(monkeypatch, stops):
    """Raise KeyboardInterrupt before the steps of which `stops` is true; all steps that are taken."""
    taken, step = [], Trainer.train_step

    def interrupted(self, batch):
        if stops(self.step, taken):
            raise KeyboardInterrupt
        taken.append(self.step)
        return step(self, batch)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    return taken


def train_until_done(config, runs):
    """The run, and how often it was interrupted."""
    for attempt in range(100):
        with contextlib.suppress(KeyboardInterrupt):
            return train_run(config, runs), attempt
    raise AssertionError("it does not come to an end")


def test_interrupted_after_each_step_it_takes_each_step_once(whole, tmp_path, monkeypatch):
    patch_everywhere(monkeypatch, train, "CHECKPOINT_INTERVAL_FACTOR", 0)
    stopped = []

    def stops(step, taken):
        if taken and step not in stopped:
            stopped.append(step)
            return True
        return False

    taken = interrupt_before(monkeypatch, stops)
    run, attempts = train_until_done(SMALL, tmp_path)
    assert taken == list(range(STEPS))
    assert stopped == list(range(1, STEPS))
    assert attempts == STEPS - 1
    assert_same(run, whole)


@pytest.mark.parametrize("stop", [2, 5, 8, 10, 13, 19])
def test_interrupted_in_any_step_it_repeats_those_since_the_checkpoint(whole, tmp_path, monkeypatch, stop):
    """Checkpoints after every third step, if that is within an epoch of five."""
    patch_everywhere(monkeypatch, train, "CHECKPOINT_INTERVAL_FACTOR", 1e12)
    rarely = replace(SMALL, checkpoint=1e9)
    monkeypatch.setattr(Trainer, "_is_checkpoint_due_within_epoch", lambda self: self.step % 3 == 0)
    taken = interrupt_before(monkeypatch, lambda step, taken: step == stop == len(taken))
    run, attempts = train_until_done(rarely, tmp_path)
    saved = max(step for step in range(stop + 1) if step % 3 == 0 and (step % 5 or not step))
    assert attempts == 1
    assert taken == [*range(stop), *range(saved, STEPS)]
    assert_same(run, whole)


def test_within_an_epoch_checkpoints_are_due_by_the_clock(tmp_path, monkeypatch):
    """By an interval of seconds, and not more often than a checkpoint costs a twentieth of the time."""
    clock, saved = [1000.0], []
    monkeypatch.setattr(train.time, "monotonic", lambda: clock[0])
    config, save, step = replace(SMALL, checkpoint=30.0, epochs=1), RunFolder.save_checkpoint, Trainer.train_step

    def slow_save(run, tensors, **facts):
        clock[0] += 2.0
        saved.append((facts["epoch"], facts["batch"]))
        save(run, tensors, **facts)

    def slow_step(self, batch):
        clock[0] += 15.0
        return step(self, batch)

    monkeypatch.setattr(RunFolder, "save_checkpoint", slow_save)
    monkeypatch.setattr(Trainer, "train_step", slow_step)
    train_run(config, tmp_path / "costly")
    assert saved == [(0, 0), (0, 3), (1, 0)]  # 40 s
    saved.clear()
    patch_everywhere(monkeypatch, train, "CHECKPOINT_INTERVAL_FACTOR", 1)
    train_run(config, tmp_path / "cheap")
    assert saved == [(0, 0), (0, 2), (0, 4), (1, 0)]  # 30 s


def test_metrics_that_were_lost_are_reported_on_resuming_and_in_the_record(tmp_path):
    def watch(record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(SMALL, tmp_path, watch=watch)
    path = RunFolder(tmp_path, SMALL).path / "metrics.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    with pytest.warns(UserWarning, match=r"metrics\.jsonl must have 2 lines.*got 1; epochs without metrics: 2"):
        run = train_run(SMALL, tmp_path)
    assert [record["epoch"] for record in run.metrics()] == [1, 3, 4]
    (problem,) = load_run(run.path).problems
    assert "epochs without metrics: 2" in problem


def damage(path):
    whole = bytearray(path.read_bytes())
    whole[-5] ^= 1
    path.unlink()  # the previous checkpoint may be a link to the same file
    path.write_bytes(whole)


def interrupt_at(epoch, runs):
    """The folder of a run that was interrupted after an epoch."""

    def watch(record):
        if record["epoch"] == epoch:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(SMALL, runs, watch=watch)
    return RunFolder(runs, SMALL).path


def test_of_two_damaged_checkpoints_training_does_not_resume(tmp_path):
    path = interrupt_at(1, tmp_path)
    damage(path / "checkpoint.safetensors")
    damage(path / "checkpoint.previous.safetensors")
    words = r"checkpoint\.safetensors.*checksum.*checkpoint\.previous\.safetensors.*checksum"
    words += r".*delete checkpoint\.safetensors and checkpoint\.previous\.safetensors to begin anew"
    with pytest.raises(DamagedFileError, match=words):
        train_run(SMALL, tmp_path)


@pytest.mark.parametrize("change", [damage, Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_damaged_checkpoint_resumes_from_the_one_before(whole, tmp_path, monkeypatch, change):
    monkeypatch.setattr(train, "CHECKPOINT_INTERVAL_FACTOR", 0)
    path = interrupt_at(2, tmp_path)
    step = RunFolder(tmp_path, SMALL).load_checkpoint().facts["step"]
    shutil.copy(path / "checkpoint.previous.safetensors", tmp_path / "kept")
    (path / "checkpoint.previous.safetensors").unlink()
    (tmp_path / "kept").rename(path / "checkpoint.previous.safetensors")
    change(path / "checkpoint.safetensors")
    with pytest.warns(
        UserWarning, match=r"checkpoint\.safetensors .*resumes from the previous checkpoint, of step \d+"
    ) as told:
        run = train_run(SMALL, tmp_path)
    assert f"of step {step}:" not in str(told[0].message)
    assert_same(run, whole)
    assert not list(path.glob("checkpoint.previous*"))


def test_while_a_damaged_checkpoint_is_replaced_the_one_before_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "CHECKPOINT_INTERVAL_FACTOR", 0)
    path = interrupt_at(2, tmp_path)
    damage(path / "checkpoint.safetensors")
    before, replace_file = (path / "checkpoint.previous.safetensors").read_bytes(), os.replace

    def stop(part, target):
        if Path(target).name == "checkpoint.safetensors":
            raise InterruptedError
        replace_file(part, target)

    monkeypatch.setattr(os, "replace", stop)
    with pytest.warns(UserWarning, match="previous checkpoint"), pytest.raises(InterruptedError):
        train_run(SMALL, tmp_path)
    assert (path / "checkpoint.previous.safetensors").read_bytes() == before


@pytest.mark.parametrize("change", [Path.unlink, damage])
def test_a_finished_run_gets_its_config_back(whole, tmp_path, change):
    shutil.copytree(whole.path, tmp_path / whole.path.name)
    path = tmp_path / whole.path.name / "config.json"
    before = json.loads(path.read_text())
    change(path)
    with pytest.warns(UserWarning, match=r"config\.json.*was written again"):
        run = train_run(SMALL, tmp_path)
    assert json.loads(path.read_text()) == before
    assert load_run(run.path).problems == ()


@pytest.mark.parametrize("anew", [False, True])
def test_a_directory_that_was_deleted_while_it_trained_is_noticed(tmp_path, anew):
    def watch(record):
        if record["epoch"] == 2:
            shutil.rmtree(run.path)
            if anew:
                other.acquire({})

    run, other = RunFolder(tmp_path, SMALL), RunFolder(tmp_path, SMALL)
    with pytest.raises(RunBusyError, match=r"was deleted or replaced while .*the same command begins anew"):
        train_run(SMALL, tmp_path, watch=watch)
    other.release()
    assert not anew or sorted(each.name for each in run.path.iterdir()) == ["config.json", "environment.json", "lock"]


@pytest.mark.parametrize("optimiser", ["adamw", "lamb"])
def test_every_optimiser_resumes(tmp_path, optimiser):
    config = replace(SMALL, optimiser=optimiser, epochs=2, ema=None, encoding="none", options={}, perturb=0.0)
    undisturbed = train_run(config, tmp_path / "a")

    def watch(record):
        if record["epoch"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "b", watch=watch)
    assert_same(train_run(config, tmp_path / "b"), undisturbed)


# Numbers that are none


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        ("blocks.1.up.weight", r"in step 12 blocks\.1\.up is the first layer with outputs that are not finite"),
        ("blocks.0.proj.bias", r"in step 12 blocks\.0\.proj is the first layer with outputs that are not finite"),
    ],
)
@pytest.mark.parametrize("saved", [10, 12])
def test_a_loss_that_is_no_number_stops_and_says_where(tmp_path, monkeypatch, weight, words, saved):
    """A weight that becomes infinite in step 12, within epoch 3, after a checkpoint of that epoch or of the last one."""
    patch_everywhere(monkeypatch, train, "CHECKPOINT_INTERVAL_FACTOR", 0)
    if saved == 10:
        monkeypatch.setattr(Trainer, "_is_checkpoint_due_within_epoch", lambda self: False)
    config, step = replace(SMALL, dropout=0.0, drop_path=0.0, ema=None), Trainer.train_step

    def spoiled(self, *batch):
        if self.step == 12:
            self.plain.get_parameter(weight).data.view(-1)[0] = torch.inf
        return step(self, *batch)

    monkeypatch.setattr(Trainer, "train_step", spoiled)
    with pytest.raises(NonFiniteLossError, match=rf"the loss of epoch 3 is nan: {words}; .* keeps the state of epoch 2"):
        train_run(config, tmp_path)
    monkeypatch.undo()
    run = RunFolder(tmp_path, config)
    assert run.load_checkpoint()[1]["epoch"] == 2
    assert run.load_checkpoint()[1]["step"] == saved
    assert [record["epoch"] for record in told(run)] == [1, 2]
    assert_same(train_run(config, tmp_path), train_run(config, tmp_path / "whole"))


def test_weights_that_a_step_breaks_are_named(tmp_path, monkeypatch):
    patch_everywhere(monkeypatch, train, "CHECKPOINT_INTERVAL_FACTOR", 0)
    config = replace(SMALL, dropout=0.0, drop_path=0.0, ema=None, epochs=1)
    step = torch.optim.AdamW.step

    def breaking(self, *args, **options):
        found = step(self, *args, **options)
        self.param_groups[1]["params"][-1].data.fill_(torch.nan)
        return found

    monkeypatch.setattr(torch.optim.AdamW, "step", breaking)
    with pytest.raises(NonFiniteLossError, match=r"0.*1.*head\.bias.*0"):
        train_run(config, tmp_path)


def test_steps_do_without_cudnns_attention_and_leave_it_as_it_was(tmp_path, monkeypatch):
    seen, loss = [], ClassificationTask.loss

    def watched(self, *given, **options):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return loss(self, *given, **options)

    monkeypatch.setattr(ClassificationTask, "loss", watched)
    for before in (True, False):
        torch.backends.cuda.enable_cudnn_sdp(before)
        try:
            train_run(replace(SMALL, epochs=1, seed=int(before)), tmp_path)
            assert torch.backends.cuda.cudnn_sdp_enabled() == before
        finally:
            torch.backends.cuda.enable_cudnn_sdp(True)
    assert seen
    assert not any(seen)


def test_what_was_compiled_with_other_attention_is_not_found_again(tmp_path, monkeypatch):
    """Keys of what compilers keep have no word about attention but this."""
    monkeypatch.setattr(torch.compiler.config, "cache_key_tag", "")
    config = replace(SMALL, compile=True)
    Trainer(config, RunFolder(tmp_path, config), Accelerator(), lambda record: None)
    assert "cuDNN" in torch.compiler.config.cache_key_tag


# Two processes


@pytest.mark.exhaustive("training")
def test_two_processes_do_what_one_does(tmp_path):
    config = replace(SMALL, dropout=0.0, drop_path=0.0, epochs=2)
    alone = train_run(config, tmp_path / "one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from ropewalk.lab.config import Config
from ropewalk.lab import train
config, folder = Config.of(json.loads(sys.argv[1])), Path(sys.argv[2])
train.train_run(config, folder / "whole")
train.CHECKPOINT_INTERVAL_FACTOR, train.STEPS_BETWEEN_AGREEMENTS = 0, 1
step = train.Trainer.train_step

def interrupted(self, batch):
    if self.step == 8:
        raise KeyboardInterrupt
    return step(self, batch)

for name in ("by two", "by one"):
    train.Trainer.train_step = interrupted
    try:
        train.train_run(config, folder / name)
    except KeyboardInterrupt:
        pass
    train.Trainer.train_step = step
    if name == "by two":
        train.train_run(config, folder / name)
"""
    call = [sys.executable, "-c", program, json.dumps(config.document()), str(tmp_path / "two")]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "ACCELERATE_USE_CPU": "true"}
    processes = [
        subprocess.Popen(call, env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in (0, 1)
    ]
    assert [process.wait(timeout=240) for process in processes] == [0, 0]
    both, again, later = (RunFolder(tmp_path / "two" / name, config) for name in ("whole", "by two", "by one"))
    assert read_json(both.path / "environment.json")["processes"] == 2
    assert [later.load_checkpoint()[1][name] for name in ("step", "epoch", "batch")] == [8, 1, 3]
    train_run(config, tmp_path / "two" / "by one")
    for run in (both, again, later):
        for one, two in zip(told(alone), told(run), strict=True):
            assert one == pytest.approx(two, rel=1e-5)
        assert numbers(alone) == pytest.approx(numbers(run), rel=1e-4)
        assert len(unpack_bits(run.result()["test_correct"], 359)) == 359


def test_what_was_measured_after_the_checkpoint_is_measured_again(whole, tmp_path, monkeypatch):
    patch_everywhere(monkeypatch, train, "CHECKPOINT_INTERVAL_FACTOR", 1e12)
    rarely = replace(SMALL, checkpoint=1e9)

    def stop(record):
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(rarely, tmp_path, watch=stop)
    run = RunFolder(tmp_path, rarely)
    assert [record["epoch"] for record in run.metrics()] == [1, 2, 3]
    assert run.load_checkpoint()[1]["epoch"] == 0
    assert_same(train_run(rarely, tmp_path), whole)


def test_a_quick_checkpoint_is_written_sooner(tmp_path, monkeypatch):
    patch_everywhere(monkeypatch, train, "CHECKPOINT_INTERVAL_FACTOR", 0)

    def stop(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(replace(SMALL, checkpoint=1e9), tmp_path, watch=stop)
    assert RunFolder(tmp_path, SMALL).load_checkpoint()[1]["epoch"] == 1


def test_an_epoch_without_validation_has_a_checkpoint_as_well(tmp_path, monkeypatch):
    patch_everywhere(monkeypatch, train, "CHECKPOINT_INTERVAL_FACTOR", 0)
    monkeypatch.setattr(Trainer, "_is_checkpoint_due_within_epoch", lambda self: False)
    rarely = replace(SMALL, every=4)
    undisturbed = train_run(rarely, tmp_path / "a")

    def stop(record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(rarely, tmp_path / "b", watch=stop)
    assert RunFolder(tmp_path / "b", rarely).load_checkpoint()[1]["epoch"] == 2
    assert_same(train_run(rarely, tmp_path / "b"), undisturbed)


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    def stop(record):
        raise KeyboardInterrupt

    rng = np.random.default_rng(0)
    config = replace(SMALL, data=str(tmp_path / "own.npz"), batch=8, fraction=1.0)
    for bright in (255, 200):
        images, labels = rng.integers(0, bright, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3
        np.savez(config.data, train_images=images, train_labels=labels, test_images=images[:9, ::-1], test_labels=labels[:9])
        with pytest.raises(KeyboardInterrupt if bright == 255 else DamagedFileError) as ended:
            train_run(config, tmp_path / "runs", watch=stop)
    assert "was trained on other data of this name" in str(ended.value)


def test_a_run_does_not_go_on_with_data_of_another_hash(tmp_path):
    """Images of the same counts and moments, which a checkpoint has: the recorded hash differs."""

    def stop(record):
        raise InterruptedError

    config = replace(SMALL, data=str(tmp_path / "own.npz"), batch=8, fraction=1.0, validation=0.1)
    images, labels = np.random.default_rng(0).integers(0, 255, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3
    sets = {"train_labels": labels, "test_images": images[:9, ::-1], "test_labels": labels[:9]}
    np.savez(config.data, train_images=images, **sets)
    with pytest.raises(InterruptedError):
        train_run(config, tmp_path / "runs", watch=stop)
    run = RunFolder(tmp_path / "runs", config)
    before = read_json(run.path / "environment.json")
    np.savez(config.data, train_images=images[:, ::-1], **sets)
    with pytest.raises(DamagedFileError, match=rf"SHA-256 of .*own\.npz must be {before['data']['sha256']}, got [0-9a-f]+;"):
        train_run(config, tmp_path / "runs", watch=stop)
    after = read_json(run.path / "environment.json")
    assert {name: after[name] for name in ("data", "encoding", "index_seed")} == {
        name: before[name] for name in ("data", "encoding", "index_seed")
    }
    for path in run.path.glob("checkpoint*.safetensors"):  # nothing was trained on
        path.unlink()
    with pytest.raises(InterruptedError):
        train_run(config, tmp_path / "runs", watch=stop)
    assert read_json(run.path / "environment.json")["data"] != before["data"]


@pytest.mark.filterwarnings("ignore:.*no supported trackers are currently installed")
def test_a_tracker_that_fails_leaves_no_lock(tmp_path, monkeypatch):
    def failing(accelerator, *words, **options):
        raise ConnectionError("the tracker's server does not answer")

    monkeypatch.setattr(Accelerator, "init_trackers", failing)
    with pytest.raises(ConnectionError):
        train_run(SMALL, tmp_path, trackers=("tensorboard",))
    other = RunFolder(tmp_path, SMALL)
    other.lock_folder()  # which nobody holds
    other.release()


def test_a_run_that_another_process_finishes_before_the_lock_is_had_is_not_trained(tmp_path, monkeypatch):
    acquire = RunFolder.acquire

    def late(run, environment):
        other = RunFolder(tmp_path, SMALL)
        acquire(other, environment)
        other.finish(test_accuracy=0.5)
        other.release()
        acquire(run, environment)

    monkeypatch.setattr(RunFolder, "acquire", late)
    monkeypatch.setattr(Trainer, "run_training", lambda self: pytest.fail("it is trained again"))
    run = train_run(SMALL, tmp_path)
    assert run.result() == {"test_accuracy": 0.5}
    run.lock_folder()  # which nobody holds
    run.release()


def test_channels_that_never_change_are_no_trouble(tmp_path):
    images, labels = np.zeros((60, 8, 8, 3), np.uint8), np.arange(60) % 3
    images[..., 0] = np.random.default_rng(0).integers(0, 255, (60, 8, 8))
    np.savez(
        tmp_path / "own.npz", train_images=images, train_labels=labels, test_images=images[:9, ::-1], test_labels=labels[:9]
    )
    config = replace(SMALL, data=str(tmp_path / "own.npz"), batch=8, fraction=1.0, epochs=1)
    assert math.isfinite(train_run(config, tmp_path / "runs").result()["test_loss"])


def test_weights_that_break_in_the_last_step_are_no_result(tmp_path, monkeypatch):
    train_step = Trainer.train_step

    def breaking(trainer, *batch):
        loss = train_step(trainer, *batch)
        if trainer.step == trainer.per_epoch * SMALL.epochs - 1:
            trainer.plain.head.weight.data.fill_(math.nan)
        return loss

    monkeypatch.setattr(Trainer, "train_step", breaking)
    config = replace(SMALL, ema=None)
    with pytest.raises(NonFiniteLossError, match=r"4.*validation loss.*nan"):
        train_run(config, tmp_path)
    run = RunFolder(tmp_path, config)
    assert run.result() is None
    assert run.load_checkpoint()[1]["epoch"] == 3


def test_strengths_are_those_of_augmentation(tmp_path):
    for strength in ({"size": (4, 4)}, {"foo": 4}):
        with pytest.raises(ValueError, match=f"{next(iter(strength))!r} of strength; expected one of pad, padding"):
            train_run(replace(SMALL, strength=strength), tmp_path)


def test_binary_targets_of_mixtures_are_whole():
    logits, targets = torch.randn(2, 3), torch.tensor([[0.3, 0.7, 0.0], [1.0, 0.0, 0.0]])
    loss = classification_loss(logits, targets, replace(SMALL, loss="binary", smoothing=0.0))
    right = torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))
    torch.testing.assert_close(loss, right)


def test_an_epoch_is_resumed_at_a_batch():
    assert_batches_resume(ClassificationTask(SMALL, "cpu"), first=2)


def test_answers_are_recorded_in_the_order_of_the_dataset():
    """Whatever the order of the split: here the validation set, whose images lie among those for training."""
    task = ClassificationTask(SMALL, "cpu")
    order = list(torch.randperm(task.data.counts["validation"]).split(50))
    batches = list(task.data.batches("validation", order))
    images, labels, index = (torch.cat(parts) for parts in zip(*(batch.tensors() for batch in batches), strict=True))
    model = task.model.eval()
    with torch.no_grad():
        right = model(normalize_images(images.float() / 255, task.data)).argmax(-1) == labels
    scores, correct = task.score_images(model, "validation", Accelerator())
    assert 0 < correct.sum() < len(correct)
    assert torch.equal(correct, right[index.argsort()])
    assert scores["accuracy"] == correct.double().mean().item()
    shuffled = Shuffled(task.data)
    task.data = shuffled
    assert torch.equal(task.score_images(model, "validation", Accelerator())[1], correct)


class Shuffled:
    """The same data, whose validation set comes in another order."""

    def __init__(self, data):
        self.data = data
        self.order = torch.randperm(data.counts["validation"])

    def __getattr__(self, name):
        return getattr(self.data, name)

    def batches(self, split, order, epoch=0):
        return self.data.batches(split, [self.order[positions] for positions in order], epoch)

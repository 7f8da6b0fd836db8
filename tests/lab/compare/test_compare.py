"""Comparisons: what is done is not done again, what fails does not stop others, and the table says what the files say."""

import contextlib
import csv
import fcntl
import io
import json
import math
import multiprocessing
import os
import shutil
import signal
import socket
import time
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from accelerate.state import AcceleratorState
from rich.console import Console

from ropewalk.lab import model_building, train
from ropewalk.lab.compare import run as module
from ropewalk.lab.compare.plan import Comparison, is_run_locked, plan_comparison
from ropewalk.lab.compare.preflight import check_comparison
from ropewalk.lab.compare.run import compare_encodings, format_comparison_csv, tabulate_comparison
from ropewalk.lab.config import Config
from ropewalk.lab.encoding_spec import parse_encoding
from ropewalk.lab.errors import CommandError, DamagedFileError, NonFiniteLossError
from ropewalk.lab.progress_bars import ProgressLines, format_duration
from ropewalk.lab.results_table import make_rich_table
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json, write_json
from ropewalk.lab.statistics import compute_t_quantile
from ropewalk.lab.tasks import classify
from ropewalk.lab.tasks.classify import open_image_data
from ropewalk.lab.train import Trainer, train_run
from tests.support.patch_everywhere import patch_everywhere

BASE = Config(
    data="digits", patch=2, width=24, depth=1, heads=2, ratio=2.0, epochs=2, batch=64, fraction=0.3, warmup=0.5,
    learning_rate=3e-3, workers=0, augment=(), checkpoint=0.0,
)  # fmt: skip
ENCODINGS = ["mixed", ("axial", {"learned": True})]
LABELS = ["none", "mixed", "axial:learned=true"]
SEEDS = (0, 3)


def silent():
    """A console that is no terminal."""
    return Console(file=io.StringIO(), width=70)


def again(runs, encodings=ENCODINGS, base=BASE, **options):
    return compare_encodings(encodings, base, runs, **{"seeds": SEEDS, "console": silent(), **options})


def pretended(config, runs, *, watch=lambda record: None):
    """A run that is done at once, with an accuracy that depends on its encoding and seed."""
    run = RunFolder(runs, config)
    run.acquire({})
    watch({"epoch": 1, "loss": 1.5, "validation_accuracy": 0.25, "step": 1})
    accuracy = {"none": 0.5, "mixed": 0.625, "axial": 0.75}[config.encoding] + config.seed**2 / 64
    run.finish(test_accuracy=accuracy, encoding_parameters=7)
    run.release()
    return run


@pytest.fixture
def trained(monkeypatch):
    """Runs take no time; the ones that are asked for, in order."""
    asked = []

    def spy(config, runs, *, watch):
        asked.append((config.encoding, config.seed))
        return pretended(config, runs, watch=watch)

    patch_everywhere(monkeypatch, train, "train_run", spy)
    return asked


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A comparison that nobody disturbed, really trained."""
    return again(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def copy(first, tmp_path):
    """The same in a folder of its own."""
    shutil.copytree(first.runs, tmp_path / "runs")
    return Comparison.at(tmp_path / "runs" / first.path.name)


def metrics(run):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in run.metrics()]


# What is trained


def test_all_encodings_have_all_seeds_and_the_baseline_comes_first(first):
    assert [(each.label, each.seed) for each in first.members] == [(label, seed) for seed in SEEDS for label in LABELS]
    assert first.code == 0
    assert [run.result()["step"] for run in first.found()] == [12] * 6


def test_runs_differ_in_encoding_options_and_seed_alone(first):
    documents = [read_json(first.runs / each.name / "config.json") for each in first.members]
    differing = {name for each in documents for name in each if each[name] != documents[0][name]}
    assert differing == {"encoding", "options", "seed"}


def test_base_has_no_say_in_what_is_compared(tmp_path, trained):
    base = replace(BASE, encoding="liere", options={"block": 4}, seed=9)
    assert [each.name for each in again(tmp_path, base=base).members] == [each.name for each in again(tmp_path).members]


def test_seeds_are_outermost(tmp_path, trained):
    again(tmp_path, ["mixed", "none"], seeds=[2, 1])
    assert trained == [("mixed", 2), ("none", 2), ("mixed", 1), ("none", 1)]


def test_done_runs_are_not_trained_again_and_need_no_data(copy, trained, monkeypatch):
    before = {path: path.read_bytes() for path in sorted(copy.runs.rglob("*.json*"))}
    with monkeypatch.context() as absent:
        patch_everywhere(absent, classify, "open_image_data", lambda config: pytest.fail("the data are not there"))
        found = again(copy.runs, base=replace(BASE, root="elsewhere"))
    assert trained == []
    assert found.code == 0
    gone = next(copy.runs.glob("mixed-seed3-*"))
    shutil.rmtree(gone)
    again(copy.runs)
    assert trained == [("mixed", 3)]
    kept = [path for path in before if gone not in path.parents and not path.name.startswith("comparison")]
    assert all(path.read_bytes() == before[path] for path in kept)


def test_comparisons_share_runs(tmp_path, trained):
    one = again(tmp_path, ["mixed"])
    two = again(tmp_path, ["axial", "mixed"], seeds=[3, 4], baseline="mixed")
    assert trained == [("none", 0), ("mixed", 0), ("none", 3), ("mixed", 3), ("axial", 3), ("axial", 4), ("mixed", 4)]
    assert one.path != two.path
    assert {path.name for path in tmp_path.glob("comparison-*.json")} == {one.path.name, two.path.name}
    assert tabulate_comparison(Comparison.at(one.path)) == tabulate_comparison(one)
    axial, mixed = tabulate_comparison(two)
    assert (axial.label, mixed.label, mixed.difference) == ("axial", "mixed", None)
    assert axial.difference == pytest.approx((0.125, 0.0, 2))


def test_the_same_comparison_has_the_same_file(tmp_path, trained):
    assert again(tmp_path, ["mixed"]).path == again(tmp_path, ["Mixed"], baseline="nope").path
    assert again(tmp_path, ["mixed"], baseline="mixed").path != again(tmp_path, ["mixed"]).path


# What goes wrong


def failing(config, runs, *, watch):
    """One run begins and fails."""
    if (config.encoding, config.seed) == ("mixed", 0):
        run = RunFolder(runs, config)
        run.acquire({})
        run.release()
        raise FloatingPointError("the loss [/is]\nno number")
    return pretended(config, runs, watch=watch)


def test_a_run_that_fails_does_not_stop_others(tmp_path, monkeypatch):
    patch_everywhere(monkeypatch, train, "train_run", failing)
    console = silent()
    found = again(tmp_path, console=console)
    words = "FloatingPointError: the loss [/is] no number"
    assert found.code == 1
    assert [member[:2] for member in found.left()] == [("mixed", 0)]
    folder = next(tmp_path.glob("mixed-seed0-*"))
    assert (folder / "failed.txt").read_text() == f"{words}\n"
    assert "in failing" in (folder / "trace.txt").read_text()
    assert f"2 of 6  mixed, seed 0: failed: {words}" in console.file.getvalue().splitlines()
    row = next(row for row in tabulate_comparison(found) if row.label == "mixed")
    assert (row.seeds, row.planned, row.notes) == (1, 2, (f"seed 0 failed: {words}",))
    shown = silent()
    shown.print(make_rich_table(tabulate_comparison(found)))
    assert "[/is]" in shown.file.getvalue()


def test_a_run_that_failed_is_tried_again(tmp_path, monkeypatch, trained):
    patch_everywhere(monkeypatch, train, "train_run", failing)
    again(tmp_path)
    monkeypatch.undo()
    patch_everywhere(monkeypatch, train, "train_run", pretended)
    assert again(tmp_path).code == 0
    assert not list(tmp_path.glob("*/failed.txt")) + list(tmp_path.glob("*/trace.txt"))


def test_a_disk_that_takes_no_words_stops_nothing(tmp_path, monkeypatch):
    def full(config, runs, *, watch):
        (runs / config.name).write_text("no folder can be made here")
        raise OSError(28, "No space left on device")

    patch_everywhere(monkeypatch, train, "train_run", full)
    assert len(again(tmp_path, ["mixed"]).left()) == 4


def test_a_run_of_another_process_has_not_failed(tmp_path, monkeypatch):
    console, other = silent(), RunFolder(tmp_path, replace(BASE, encoding="mixed"))
    patch_everywhere(monkeypatch, train, "train_run", lambda config, runs, watch: holding(config, runs))

    def holding(config, runs):
        run = RunFolder(runs, config)
        try:
            run.acquire({})
        finally:
            run.release()
        return pretended(config, runs)

    other.acquire({})
    found = again(tmp_path, ["mixed"], console=console)
    other.release()
    assert "mixed, seed 0: is being trained by another process" in console.file.getvalue()
    assert not (other.path / "failed.txt").exists()
    assert [row.notes for row in tabulate_comparison(found)] == [(), ("seed 0 begun",)]


def test_a_finished_run_gets_its_config_back(tmp_path, trained):
    again(tmp_path)
    path = next(tmp_path.glob("mixed-seed0-*")) / "config.json"
    before = read_json(path)
    path.unlink()
    with pytest.warns(UserWarning, match=r"config\.json is missing; it was written again"):
        found = again(tmp_path)
    assert read_json(path) == before
    assert len(found.found()) == len(found.members)


def test_nothing_is_written_to_a_directory_that_replaced_that_of_a_run(tmp_path, monkeypatch):
    def replaced(config, runs, *, watch):
        run, other = RunFolder(runs, config), RunFolder(runs, config)
        run.acquire({})
        shutil.rmtree(run.path)
        other.acquire({})
        other.release()
        try:
            run.log(step=1)
        finally:
            run.release()

    patch_everywhere(monkeypatch, train, "train_run", replaced)
    console = silent()
    again(tmp_path, ["mixed"], seeds=[0], console=console)
    assert " ".join(console.file.getvalue().split()).count("was deleted or replaced") == 2
    assert not list(tmp_path.glob("*/failed.txt"))


def test_locks_are_only_looked_at(tmp_path):
    (tmp_path / "lock").touch()
    assert not is_run_locked(tmp_path)
    with (tmp_path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert is_run_locked(tmp_path)
    assert not is_run_locked(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"test_accuracy": "high", "encoding_parameters": 1}',
        '{"test_accuracy": NaN, "encoding_parameters": 1}',
        "{}",
    ],
)
def test_damaged_results_are_told(copy, trained, content):
    path = next(copy.runs.glob("mixed-seed0-*")) / "result.json"
    path.write_text(content)
    row = next(row for row in tabulate_comparison(copy) if row.label == "mixed")
    assert row.seeds == 1
    assert "result.json" in row.notes[0]


def test_a_result_of_another_run_is_none(copy):
    path, other = (next(copy.runs.glob(f"{name}-seed0-*")) / "result.json" for name in ("mixed", "none"))
    path.write_bytes(other.read_bytes())
    row = next(row for row in tabulate_comparison(copy) if row.label == "mixed")
    assert row.seeds == 1
    assert f"must be a file of {path.parent.name}, got one of {other.parent.name}" in row.notes[0]
    assert [member.name for member in copy.left()] == [path.parent.name]


def test_a_damaged_result_is_a_failure_that_stops_nothing(copy):
    path = next(copy.runs.glob("mixed-seed0-*")) / "result.json"
    path.write_text("{")
    assert again(copy.runs).code == 1
    assert (path.parent / "failed.txt").read_text().startswith("DamagedFileError: ")
    path.write_text("{}")
    assert [member[:2] for member in again(copy.runs).left()] == [("mixed", 0)]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"format": "ropewalk comparison 1", "encodings": 3}'])
def test_damaged_comparisons_are_told(tmp_path, content):
    (tmp_path / "comparison-0.json").write_text(content)
    with pytest.raises(DamagedFileError, match=r"comparison-0\.json"):
        Comparison.at(tmp_path / "comparison-0.json")


# Interruption


def test_interrupted_the_same_call_goes_on_to_the_same_end(first, tmp_path, monkeypatch):
    def stopping(config, runs, *, watch):
        def both(record):
            watch(record)
            if (config.encoding, config.seed, record["epoch"]) == ("mixed", 0, 1):
                signal.raise_signal(signal.SIGINT)

        return train_run(config, runs, watch=both)

    console = silent()
    patch_everywhere(monkeypatch, train, "train_run", stopping)
    with pytest.raises(KeyboardInterrupt):
        again(tmp_path, console=console)
    assert console.file.getvalue().splitlines()[-1] == "stopped: 1 of 6 runs are done; the same command resumes"
    (path,) = tmp_path.glob("comparison-*.json")
    partial = tabulate_comparison(Comparison.at(path))
    assert [row.seeds for row in partial] == [1, 0, 0]
    assert [row.notes for row in partial][1] == ("seed 0 begun", "seed 3 not begun")

    epochs = []

    def spy(config, runs, *, watch):
        return train_run(config, runs, watch=lambda record: epochs.append((config.encoding, config.seed, record["epoch"])))

    patch_everywhere(monkeypatch, train, "train_run", spy)
    found = again(tmp_path, seeds=SEEDS)
    assert epochs[:3] == [("mixed", 0, 2), ("axial", 0, 1), ("axial", 0, 2)]
    assert len(epochs) == 1 + 4 * 2
    assert [metrics(run) for run in found.found()] == [metrics(run) for run in first.found()]
    assert format_comparison_csv(tabulate_comparison(found)) == format_comparison_csv(tabulate_comparison(first))


# Two processes, forked by a server that has no threads of autograd, which a fork does not survive.

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["ropewalk.lab.train", "sklearn.datasets", "pytest"])


def of_two(rank, port, runs, failing=None, late=None):
    """A comparison as one of two processes, of which one may fail, or come late; its exit code is the comparison's."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "ACCELERATE_USE_CPU": "true"}
    os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank), OMP_NUM_THREADS="1")
    AcceleratorState._reset_state(reset_partial_state=True)
    if rank == failing:
        Trainer.train_step = lambda self, *batch: 1 / 0
    if rank == late:
        resume = Trainer.resume_training
        Trainer.resume_training = lambda self: (time.sleep(1), resume(self))
    with (runs / f"said{rank}").open("w") as file:
        code = compare_encodings(
            ["mixed"], BASE, runs, seeds=[0, 1], baseline="mixed", console=Console(file=file, width=200)
        ).code
    os._exit(code)


def codes_of_two(*given):
    """The exit codes of both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [SERVER.Process(target=of_two, args=(rank, port, *given), daemon=True) for rank in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    return [process.exitcode for process in processes]


def test_two_processes_are_one_comparison(tmp_path):
    assert codes_of_two(tmp_path, None, 1) == [0, 0]
    assert (tmp_path / "said0").read_text().splitlines()[-1].startswith("2 of 2  mixed, seed 1: test accuracy ")
    assert (tmp_path / "said1").read_text() == ""
    (environment,) = tmp_path.glob("mixed-seed0-*/environment.json")
    assert json.loads(environment.read_text())["processes"] == 2


@pytest.mark.parametrize("failing", [0, 1])
def test_a_process_that_fails_alone_ends_the_comparison_in_both(tmp_path, failing):
    assert codes_of_two(tmp_path, failing) == [1, 1]
    assert (tmp_path / "said0").read_text().splitlines()[-1].startswith("1 of 2  mixed, seed 0: failed: ")
    assert not list(tmp_path.glob("mixed-seed1-*"))


def test_of_two_processes_only_what_both_have_seen_lets_others_go_on(tmp_path, monkeypatch):
    state = SimpleNamespace(num_processes=2, is_main_process=True, wait_for_everyone=lambda: None)
    monkeypatch.setattr(module, "PartialState", lambda cpu: state)
    for error, tried in ((NonFiniteLossError("the loss is nan"), 3), (OSError("a disk that one has"), 1)):
        train = Mock(side_effect=error)
        monkeypatch.setattr(module, "train_run", train)
        with contextlib.suppress(OSError):
            again(tmp_path, seeds=[0])
        assert train.call_count == tried


# The table


def by_hand(comparison):
    """Accuracies by label, from the files."""
    found = {}
    for each in comparison.members:
        result = read_json(comparison.runs / each.name / "result.json")
        found.setdefault(each.label, []).append(result["test_accuracy"])
    return found


def half_by_hand(columns):
    """Of the mean of one of several columns of equal length."""
    count = len(columns[0])
    freedom = len(columns) * (count - 1)
    squares = sum((value - sum(column) / count) ** 2 for column in columns for value in column)
    return compute_t_quantile(freedom) * math.sqrt(squares / freedom / count)


def test_the_table_says_what_the_files_say(first):
    found = by_hand(first)
    rows = tabulate_comparison(first)
    assert [row.label for row in rows] == LABELS
    assert [row.seeds for row in rows] == [row.planned for row in rows] == [2, 2, 2]
    half = half_by_hand(list(found.values()))
    assert half > 0
    for row in rows:
        assert row.score.mean == pytest.approx(sum(found[row.label]) / 2, rel=1e-12)
        assert row.score.half == pytest.approx(half, rel=1e-9)
        assert row.per_second is None
        assert row.notes == ()
    above = {label: [a - b for a, b in zip(found[label], found["none"], strict=True)] for label in LABELS[1:]}
    y = np.array(list(found.values()))
    left = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()  # of three encodings and two seeds, two degrees of freedom
    apart = compute_t_quantile(2, 1 - 0.05 / 2) * math.sqrt(2 * (left**2).sum() / 2 / 2)
    assert rows[0].difference is None
    for row in rows[1:]:
        assert row.difference.mean == pytest.approx(sum(above[row.label]) / 2, rel=1e-9, abs=1e-12)
        assert row.difference.half == pytest.approx(apart, rel=1e-9)
    counts = [run.result()["encoding_parameters"] for run in first.found()[:3]]
    assert [row.encoding_parameters for row in rows] == counts
    assert counts[0] == 0 < counts[1]


def test_differences_are_paired_by_seed_over_those_that_both_have(tmp_path, monkeypatch):
    def lacking(config, runs, *, watch):
        if (config.encoding, config.seed) in (("none", 0), ("axial", 3), ("axial", 5)):
            raise ValueError("it is not there")
        return pretended(config, runs, watch=watch)

    patch_everywhere(monkeypatch, train, "train_run", lacking)
    none, mixed, axial = tabulate_comparison(again(tmp_path, seeds=[0, 3, 5]))
    assert (none.seeds, mixed.seeds, axial.seeds) == (2, 3, 1)
    assert none.score.mean == pytest.approx(0.5 + 34 / 128)
    assert mixed.difference == pytest.approx((0.125, 0.0, 2))
    assert axial.score.mean == pytest.approx(0.75)
    assert axial.difference is None


def test_without_a_baseline_there_are_no_differences(tmp_path, monkeypatch):
    def lacking(config, runs, *, watch):
        if config.encoding == "none":
            raise ValueError("it is not there")
        return pretended(config, runs, watch=watch)

    patch_everywhere(monkeypatch, train, "train_run", lacking)
    rows = tabulate_comparison(again(tmp_path, ["mixed"]))
    assert [row.difference for row in rows] == [None, None]
    assert [row.score is None for row in rows] == [True, False]
    assert next(csv.DictReader(io.StringIO(format_comparison_csv(rows))))["test_accuracy"] == ""


def test_one_seed_has_no_interval(tmp_path, trained):
    rows = tabulate_comparison(again(tmp_path, ["mixed"], seeds=[0]))
    assert [row.score.half for row in rows] == [None, None]
    shown = silent()
    shown.print(make_rich_table(rows))
    assert "62.50" in shown.file.getvalue()
    assert "±" not in shown.file.getvalue()


def test_costs_come_from_probes(copy):
    for seed, speed in zip(SEEDS, (100.0, 300.0), strict=True):
        (folder,) = copy.runs.glob(f"mixed-seed{seed}-*")
        write_json(folder / "probes.json", {"cost": [{"images_per_second": speed, "peak_bytes": None}], "offset": []})
    none, mixed, axial = tabulate_comparison(copy)
    assert (none.per_second, mixed.per_second, axial.per_second) == (None, 200.0, None)


@pytest.mark.parametrize("content", ["{", "[]", '{"cost": [{}]}', '{"cost": [3]}', '{"cost": 3}'])
def test_damaged_probes_are_told_and_cost_no_result(copy, content):
    (next(copy.runs.glob("mixed-seed3-*")) / "probes.json").write_text(content)
    row = tabulate_comparison(copy)[1]
    assert (row.seeds, row.per_second) == (2, None)
    assert "seed 3: " in row.notes[0]
    assert "probes.json" in row.notes[0]


def test_the_csv_parses_back(copy):
    (folder,) = copy.runs.glob("none-seed0-*")
    write_json(folder / "probes.json", {"cost": [{"images_per_second": 1234.5}]})
    shutil.rmtree(next(copy.runs.glob("mixed-seed3-*")))
    rows = tabulate_comparison(copy)
    read = list(csv.DictReader(io.StringIO(format_comparison_csv(rows))))
    assert [each["label"] for each in read] == LABELS
    for row, each in zip(rows, read, strict=True):
        assert (int(each["seeds"]), int(each["planned"])) == (row.seeds, row.planned)
        assert (float(each["test_accuracy"]), float(each["test_accuracy_half"])) == row.score[:2]
        assert each["notes"] == "; ".join(row.notes)
        assert int(each["encoding_parameters"]) == row.encoding_parameters
    assert (read[0]["difference"], float(read[0]["images_per_second"])) == ("", 1234.5)
    assert float(read[2]["difference"]) == rows[2].difference.mean
    assert read[1]["notes"] == "seed 3 not begun"


def test_the_table_in_a_terminal(first):
    console = Console(file=io.StringIO(), width=100)
    console.print(make_rich_table(tabulate_comparison(first)))
    mixed = next(line for line in console.file.getvalue().splitlines() if "mixed" in line)
    row = tabulate_comparison(first)[1]
    assert f"{100 * row.score.mean:.2f} ± {100 * row.score.half:.2f}" in mixed
    assert f"{100 * row.difference.mean:+.2f} ± " in mixed


def test_a_comparison_is_rebuilt_from_its_file_wherever_it_lies(first, tmp_path):
    shutil.copytree(first.runs, tmp_path / "moved")
    found = Comparison.at(tmp_path / "moved" / first.path.name)
    assert found == replace(first, runs=tmp_path / "moved")
    assert tabulate_comparison(found) == tabulate_comparison(first)
    assert [run.path.parent for run in found.found()] == [tmp_path / "moved"] * 6
    assert found.config(found.members[4]) == replace(BASE, encoding="mixed", seed=3)


# Words


@pytest.mark.parametrize(
    ("said", "name", "options"),
    [
        ("liere:block=4", "liere", {"block": 4}),
        ("axial:learned=true,base=1e2", "axial", {"learned": True, "base": 100.0}),
        (("Learned_APE", {"interpolation": "bicubic"}), "learned-ape", {"interpolation": "bicubic"}),
        ("nope", "none", {}),
        ('chain:parts=[{"name":"mixed"},{"name":"alibi"}]', "chain", {"parts": [{"name": "mixed"}, {"name": "alibi"}]}),
        ("dinov3:min-period=0.5,max-period=9,base=null", "dinov3", {"min_period": 0.5, "max_period": 9, "base": None}),
        (("mixed", {"variant": "true"}), "mixed", {"variant": "true"}),
    ],
)
def test_encodings_with_options_and_labels_that_say_the_same(said, name, options):
    found = parse_encoding(said)
    assert (found.encoding, found.options) == (name, options)
    assert parse_encoding(found.label) == found


def test_labels_are_short():
    assert parse_encoding(("axial", {"learned": True, "base": 50})).label == "axial:base=50,learned=true"
    assert parse_encoding("none").label == "none"


REFUSED = [
    (["mixedd"], {}, r"'mixedd'.*Did you mean 'mixed'"),
    (["liere:blok=4"], {}, r"'blok' of liere.*Did you mean 'block'"),
    (["liere:block"], {}, "key=value, got 'block'"),
    (["liere:"], {}, "key=value, got ''"),
    (["mixed:heads=3"], {}, r"heads.*got.*mixed"),
    ([("mixed", {"base": {1}})], {}, r"mixed.*JSON"),
    (["mixed", "Mixed"], {}, r"differ.*got mixed"),
    (["mixed"], {"seeds": [1, 2, 1]}, r"seeds.*got 1"),
    (["mixed"], {"seeds": []}, "at least one seed"),
    (["mixed"], {"seeds": ["a"]}, "seed must be a whole number, got 'a'"),
    (["mixed"], {"baseline": "non"}, r"'non'.*Did you mean 'none'"),
    (["liere:block=99"], {}, r"liere:block=99.*block.*2.*head_dim=12"),
    (["rope"], {}, r"rope.*one axis.*have 2"),
    (["learned-ape:width=7"], {}, "learned-ape:width=7"),
]


@pytest.mark.parametrize(("encodings", "options", "words"), REFUSED)
def test_what_cannot_be_compared_is_refused_before_anything_is_trained(tmp_path, trained, encodings, options, words):
    with pytest.raises(CommandError, match=words):
        again(tmp_path / "runs", encodings, **options)
    assert trained == []
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"patch": 3}, r"patch.*got.*patch.*3.*8.*8"),
        ({"heads": 5}, r"heads.*width, got 5 heads.*width.*24"),
        ({"batch": 4096}, r"batch.*got.*batch.*4096.*38."),
        ({"validation": 0.0}, r"validation set.*digits.*validation.*0\.0"),
        ({"batch": 63}, r"batch.*2"),
        ({"data": "digit"}, r"'digit'.*Did you mean 'digits'"),
        ({"augment": ("flipp",)}, "flip"),
        (
            {"span": 4.0, "encoding": "mixed"},
            r"mixed:scale=2.*span.*4.0.*scale",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_is_trained(tmp_path, trained, settings, words):
    with pytest.raises(CommandError, match=words):
        again(tmp_path / "runs", ["mixed:scale=2"], replace(BASE, **settings))
    assert trained == []
    assert not (tmp_path / "runs").exists()


def test_a_span_is_for_all_that_turn_or_for_none(tmp_path, trained, monkeypatch):
    base = replace(BASE, span=4.0)
    chain = ("chain", {"parts": [{"name": "mixed"}, {"name": "learned-ape"}]})
    check_comparison(plan_comparison([chain], base, tmp_path, seeds=[0], baseline=chain), processes=1)
    found = again(tmp_path, ["mixed", "axial:learned=true"], base)
    assert {found.config(each).span for each in found.members} == {4.0}
    given = ("chain", {"parts": [{"name": "mixed", "scale": 2.0}, {"name": "learned-ape"}]})
    with pytest.raises(CommandError, match=r"span.*4\.0.*scale"):
        again(tmp_path, [given], base)
    patch_everywhere(monkeypatch, model_building, "SPAN_OPTIONS", ())
    with pytest.raises(CommandError, match=r"span.*4\.0"):
        again(tmp_path, ["golden"], base)


def test_the_test_set_is_not_read_to_check(tmp_path, trained, monkeypatch):
    splits, load = [], open_image_data

    def spied(config):
        data = load(config)
        batches = data.batches
        monkeypatch.setattr(
            data, "batches", lambda split, *rest, **more: splits.append(split) or batches(split, *rest, **more)
        )
        return data

    patch_everywhere(monkeypatch, classify, "open_image_data", spied)
    again(tmp_path)
    assert "test" not in splits


def test_a_place_that_cannot_be_written_is_refused(tmp_path, trained):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(CommandError, match="cannot be written"):
        again(tmp_path / "runs", ["mixed"])
    assert trained == []


# How far it is


class Clock:
    """A time that passes when it is told to."""

    now = 0.0

    def __call__(self):
        return self.now


def epochs(shown, clock, count, seconds):
    for epoch in range(1, count + 1):
        clock.now += seconds
        accuracy = {"validation_accuracy": epoch / 10} if epoch % 2 == 0 else {}
        shown.record({"epoch": epoch, "loss": 2.0 / epoch, **accuracy})


def test_plain_lines_say_how_far_it_is():
    console, clock = silent(), Clock()
    with ProgressLines(console, runs=3, epochs=4, clock=clock) as shown:
        shown.begin("mixed, seed 1")
        epochs(shown, clock, 4, 3.0)
        shown.end("test accuracy 40.0 %")
    assert console.file.getvalue().splitlines() == [
        "1 of 3  mixed, seed 1: epoch 2 of 4, loss 1, accuracy 20.0 %, 6 s left, 30 s of all",
        "1 of 3  mixed, seed 1: epoch 4 of 4, loss 0.5, accuracy 40.0 %, 0 s left, 24 s of all",
        "1 of 3  mixed, seed 1: test accuracy 40.0 %",
    ]


def test_what_is_no_terminal_gets_no_control_codes(tmp_path, trained):
    console = silent()
    found = again(tmp_path, ["mixed"], console=console)
    console.print(make_rich_table(tabulate_comparison(found)))
    text = console.file.getvalue()
    assert text.count("\n") >= 4 + 2
    assert "\x1b" not in text
    assert "\r" not in text
    assert "4 of 4  mixed, seed 3: test accuracy 76.6 %" in text.splitlines()


def test_a_terminal_gets_two_bars(tmp_path, monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None, legacy_windows=False)
    patch_everywhere(monkeypatch, train, "train_run", pretended)
    again(tmp_path, ["mixed"], console=console)
    text = console.file.getvalue()
    assert "\x1b[" in text
    assert "2 of 4 runs, " in text
    assert "mixed, seed 0: epoch 1 of 2, loss 1.5, accuracy 25.0 %" in text
    assert "4 of 4  mixed, seed 3: test accuracy 76.6 %" in text


def test_bars_go_away_when_interrupted(tmp_path, monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None, legacy_windows=False)

    def stopped(config, runs, *, watch):
        raise KeyboardInterrupt

    patch_everywhere(monkeypatch, train, "train_run", stopped)
    with pytest.raises(KeyboardInterrupt):
        again(tmp_path, ["mixed"], console=console)
    text = console.file.getvalue()
    assert "stopped: 0 of 4 runs are done" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (7380, "2 h 3 min"), (180_000, "2 d 2 h")],
)
def test_times_are_told_in_two_units(seconds, words):
    assert format_duration(seconds) == words

"""The verbs on runs: theory, fold, train, evaluate, compare and report, with one small run that all share."""

import dataclasses
import fcntl
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from accelerate import tracking
from rich.console import Console
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

import ropewalk as rw
from ropewalk import cli
from ropewalk.cli.run_verbs import _merge_encodings
from ropewalk.lab import progress_bars, run_store
from ropewalk.lab.console import make_console
from ropewalk.lab.inspect.theory_facts import analyze_encoding
from ropewalk.lab.probes import PROBES
from ropewalk.lab.progress_bars import ProgressLines, StageProgress
from ropewalk.lab.recipes import parse_settings
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json
from ropewalk.lab.tasks.trained_images import load_image_model
from ropewalk.lab.train import Trainer
from ropewalk.models import ViT
from tests.support.patch_everywhere import patch_everywhere

TINY = ["epochs=1", "width=16", "fraction=0.2", "batch=32", "learning_rate=0.02", "warmup=0"]
NAME = "comrope-ld:block=4"


def run(capsys, *words):
    status = cli.main([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


def refusal(capsys, *words, code=2):
    """What stands on the one line of an error."""
    status, out, err = run(capsys, *words)
    assert (status, out) == (code, "")
    assert err.startswith("ropewalk: ")
    assert err.count("\n") == 1
    return err


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """However slow the machine, nothing is said in between; and output has no width."""
    patch_everywhere(monkeypatch, progress_bars, "LINE_INTERVAL", math.inf)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The folder of the run that nobody changes."""
    runs = tmp_path_factory.mktemp("shared")
    assert cli.main(["train", NAME, "--runs", str(runs), "--set", *TINY]) == 0
    (path,) = runs.iterdir()
    return path


@pytest.fixture
def path(shared, tmp_path, monkeypatch):
    """A copy of it in runs/, with the current directory beside that."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(shared, Path("runs") / shared.name))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def unfinished(path):
    """The same run before its end."""
    (path / "result.json").unlink()
    return path


# theory


def test_theory_of_a_run_is_that_of_its_trained_numbers(capsys, path):
    status, out, err = run(capsys, "theory", path, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    encoding = rw.create("comrope-ld", head_dim=8, heads=2, axes=2, layers=2, size=(4, 4), block=4)
    fresh = analyze_encoding(encoding)["span"]
    encoding.load_state_dict(held(path))
    assert found["span"] == analyze_encoding(encoding)["span"] != fresh
    assert (found["weights"], found["seed"]) == (str(path / "checkpoint.safetensors"), 0)
    assert found["folds"]


def held(path):
    named = load_file(path / "checkpoint.safetensors")
    start = "model/encoding."
    return {name.removeprefix(start): value for name, value in named.items() if name.startswith(start)}


def test_theory_of_a_run_in_words_and_a_figure(capsys, path):
    status, out, err = run(capsys, "theory", unfinished(path))
    assert (status, err) == (0, "")
    assert out.startswith("instance     ComRoPELD(head_dim=8, heads=2, layers=2, size=(4, 4)")
    assert f"weights      {path}/checkpoint.safetensors" in out
    assert Path("out/comrope-ld-equivariance-light.png").is_file()


@pytest.mark.parametrize("words", [["heads=2"], ["--weights", "a.safetensors"], ["--seed", "3"]])
def test_a_run_takes_no_other_options_weights_or_seed(capsys, path, words):
    wanted = f"a run has options, weights and a seed of its own, and takes no others, got {' '.join(words)}\n"
    assert refusal(capsys, "theory", path, *words).endswith(wanted)


def test_names_of_encodings_come_before_folders(capsys, path):
    shutil.copytree(path, "mixed")
    shutil.copytree(path, "mine")
    assert json.loads(run(capsys, "theory", "mixed", "--json")[1])["name"] == "mixed"
    assert json.loads(run(capsys, "theory", "mine", "--json")[1])["name"] == "comrope-ld"


# fold


def test_fold_writes_a_model_that_answers_alike(capsys, path):
    status, out, err = run(capsys, "fold", path)
    assert (status, err) == (0, "")
    words, where = out.splitlines()
    assert where == str(path / "folded.safetensors")
    assert words.startswith("logits differ by at most ")
    assert words.endswith("; 0 of 64 predictions on validation images changed")
    with safe_open(where, framework="pt") as file:
        said = file.metadata()
    assert said["run"] == path.name
    assert rw.create(**json.loads(said["encoding"])).name == "mixed"
    folded = ViT(**json.loads(said["model"])).eval()
    folded.load_state_dict(load_file(where))
    model, images = load_image_model(RunFolder.at(path)), torch.randn(7, 1, 8, 8)
    logits = model(images)
    assert (folded(images) - logits).abs().max() < 1e-5
    told = float(words.split()[5])
    assert 0 < told < 1e-5
    folded.load_state_dict({**folded.state_dict(), **{n: v for n, v in model.state_dict().items() if "qkv" in n}})
    assert (folded(images) - logits).abs().max() > 1e-4  # the basis matters in this model


def test_fold_writes_where_it_is_told(capsys, path):
    status, out, _ = run(capsys, "fold", path, "--out", "a/b.safetensors")
    assert (status, out.splitlines()[-1]) == (0, "a/b.safetensors")
    assert not (path / "folded.safetensors").exists()
    assert [each.name for each in Path("a").iterdir()] == ["b.safetensors"]


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("a.pt", "folded weights go to a file that ends in .safetensors, got a.pt"),
        ("{run}/checkpoint.safetensors", "folded weights must not replace the run's own"),
        ("file/a.safetensors", "file/a.safetensors cannot be written: "),
    ],
)
def test_fold_refuses_places(capsys, path, out, reason):
    Path("file").write_text("")
    before = sorted(Path().rglob("*")), (path / "checkpoint.safetensors").read_bytes()
    assert reason in refusal(capsys, "fold", path, "--out", out.format(run=path))
    assert (sorted(Path().rglob("*")), (path / "checkpoint.safetensors").read_bytes()) == before


def test_what_does_not_commute_is_not_folded(capsys, elsewhere):
    assert run(capsys, "train", "liere:block=4", "--set", *TINY)[0] == 0
    (path,) = Path("runs").iterdir()
    before = sorted(path.iterdir())
    assert "the generators of liere do not commute, by " in refusal(capsys, "fold", path)
    assert sorted(path.iterdir()) == before


def test_only_runs_that_are_done_are_folded(capsys, path):
    assert "only a finished run can be folded" in refusal(capsys, "fold", unfinished(path))


def test_a_full_disk_leaves_the_folded_file_of_before(capsys, path, monkeypatch):
    (path / "folded.safetensors").write_bytes(b"before")
    there = sorted(path.iterdir())
    monkeypatch.setattr(run_store.os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert "folded.safetensors cannot be written: No space left on device" in refusal(capsys, "fold", path)
    assert (path / "folded.safetensors").read_bytes() == b"before"
    assert sorted(path.iterdir()) == there


# train


def test_train_says_what_it_came_to_and_where(capsys, path):
    status, out, err = run(capsys, "train", NAME, "--set", *TINY)
    accuracy = 100 * read_json(path / "result.json")["test_accuracy"]
    assert (status, err) == (0, "")
    assert out == f"1 of 1  {NAME}, seed 0: test accuracy {accuracy:.1f} %\n{path}\n"


def test_settings_replace_those_of_the_recipe(capsys, elsewhere):
    for words in (["augment=crop"], ["augment="]):
        assert run(capsys, "train", "none", "--seed", "3", "--set", *TINY, *words)[0] == 0
    found = [read_json(path) for path in Path("runs").glob("*/config.json")]
    assert sorted(each["augment"] for each in found) == [[], ["crop"]]
    assert [(each["seed"], each["width"], each["depth"]) for each in found] == [(3, 16, 2)] * 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["train", "mixd"], "Did you mean 'mixed'?"),
        (["train", "mixed:bas=3"], "Did you mean 'base'?"),
        (["train", "mixed:heads=3"], "heads is the same for all encodings"),
        (["train", "mixed:base=-3"], "base must be a number above zero, got -3"),
        (["train", "mixed", "--recipe", "digit"], "Unknown recipe 'digit'; expected one of digits"),
        (["train", "mixed", "--set", "epoch=3"], "Unknown setting 'epoch'; expected one of span"),
        (["train", "mixed", "--set", "epochs=ten"], "epochs must be a whole number, got 'ten'"),
        (["train", "mixed", "--set", "epochs=0"], "epochs must be 1 or more, got 0"),
        (["train", "mixed", "--set", "epochs"], "key=value, got 'epochs'"),
        (["train", "mixed", "--set", "seed=3"], "seed is not a setting: "),
        (["train", "mixed", "--set", "augment=flap"], "flap"),
        (["train", "mixed", "--set", "patch=3"], "got a patch of 3 and images of 8 × 8"),
        (["train", "mixed", "--set", "heads=5"], "heads must divide the width, got 5 heads and a width of 48"),
        (["train", "mixed", "--set", "batch=5000"], "a batch must be no larger than the data, got a batch of 5000"),
        (["train", "mixed", "--set", "data=cifar100"], "not found in data/cifar-100-python"),
        (["train", "mixed", "--set", "data=cifar100"], "torchvision.datasets.CIFAR100('data', download=True)"),
        (["train", "mixed", "--set", "data=digit"], "Did you mean 'digits'?"),
        (["train", "mixed", "--runs", "file/runs"], "file/runs"),
        (["train", "mixed", "--track", "tensorbord"], "Did you mean 'tensorboard'?"),
        (["compare", "mixed", "--baseline", "nowt"], "Unknown encoding 'nowt'"),
        (["compare", "mixed", "--seeds", "0"], "a comparison needs at least one seed, got none"),
        (["compare", "mixed", "mixed"], "encodings must differ, got mixed more than once"),
        (["compare", "mixed", "--probes", "cots"], "Did you mean 'cost'?"),
        (["compare", "mixed", "--set", "data=mnist"], "not found in data/MNIST/raw"),
        (
            ["compare", "mixed", "--no-report", "--probes", "cost"],
            "--no-report probes nothing and writes no report: leave out --probes",
        ),
        (["compare", "mixed", "--no-report", "--out", "a"], "leave out --out"),
        (["compare", "mixed", "--also", "axail"], "Did you mean 'axial'?"),
        (["compare", "mixed", "--recipe", "digts"], "Did you mean 'digits'?"),
        (["train", "mixed", "--task", "detct"], "Did you mean 'detect'?"),
        (["train", "mixed", "--task", "detect"], "detect"),
        (
            ["train", "mixed", "--model", "timm:vit_tiny_patch16_224", "--set", "width=32"],
            "width has no effect with model=timm:",
        ),
        (["train", "mixed", "--set", "head=linear"], "head"),
        (["train", "mixed", "--from", "nowhere"], "nowhere"),
        (["train", "mixed", "--import", "nowhere"], "No module named 'nowhere'"),
        (["evaluate", "nowhere", "--probes", "cots"], "Did you mean 'cost'?"),
        (["evaluate", "nowhere"], "no run found at nowhere: expected run directories, which have a config.json"),
        (["report", "nowhere"], "no run found at nowhere"),
        (["report"], "no run found at runs"),
        (["report", "file"], "file cannot be read"),
        (["fold", "nowhere"], "nowhere is not a run directory: there is no such directory"),
        (["theory", "runs/nowhere"], "runs/nowhere is not a run directory: there is no such directory"),
    ],
)
def test_refusals_are_one_line_and_leave_nothing_behind(capsys, elsewhere, words, reason):
    Path("file").write_text("no JSON")
    assert reason in refusal(capsys, *words)
    assert [path.name for path in Path().iterdir()] == ["file"]


def test_a_run_that_another_process_writes_is_refused(capsys, path):
    with (unfinished(path) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "is being written by another process" in refusal(capsys, "train", NAME, "--set", *TINY)
    assert run(capsys, "train", NAME, "--set", *TINY)[0] == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("result.json", ["train", NAME, "--set", *TINY]),
        ("result.json", ["evaluate", "{run}"]),
        ("probes.json", ["evaluate", "{run}"]),
        ("config.json", ["evaluate", "{run}"]),
        ("config.json", ["theory", "{run}"]),
        ("checkpoint.safetensors", ["theory", "{run}"]),
        ("checkpoint.safetensors", ["fold", "{run}"]),
    ],
)
def test_damaged_files_are_named(capsys, path, name, words):
    (path / name).write_text("{")
    assert f"{name} cannot be read" in refusal(capsys, *[word.format(run=path) for word in words])


def test_a_run_that_cannot_be_read_is_told_and_left_out(capsys, path):
    damaged = path.parent / "damaged"
    damaged.mkdir()
    (damaged / "config.json").write_text("{")
    status, out, err = run(capsys, "report", "runs", "--baseline", NAME)
    assert (status, out.splitlines()[-1]) == (0, Path("out/report/report.html").resolve().as_uri())
    assert "damaged is left out" in err


def test_what_is_trained_beside_is_known_however_it_is_spelt():
    assert _merge_encodings(["axial", "learned_ape"], ["learned-ape"], "none") == ["axial", "learned_ape"]
    assert _merge_encodings(["axial"], ["learned-ape"], "none") == ["axial", "learned-ape"]


def test_one_side_is_that_of_a_square():
    assert parse_settings("digits", ["size=16"]).size == (16, 16)


def test_a_gpu_that_is_not_there_is_refused(capsys, elsewhere, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cuda:0")
    for verb in ("train", "compare"):
        words = refusal(capsys, verb, "mixed", "--set", *TINY)
        assert all(part in words for part in ("ACCELERATE_TORCH_DEVICE", "cuda:0", "no GPU"))
    assert not list(Path().iterdir())


def test_a_loss_that_is_no_number_is_a_failure(capsys, elsewhere):
    wild = ["learning_rate=1e38" if word.startswith("learning_rate") else word for word in TINY]
    assert "the loss of epoch 1 is nan: step 0 made " in refusal(capsys, "train", "none", "--set", *wild, code=1)


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (OSError(28, "No space left on device", "a/b"), 2, "a/b: No space left on device"),
        (OSError("odd"), 2, "odd"),
        (SafetensorError("I/O error: No space left"), 2, "weights cannot be kept: I/O error: No space left"),
        (
            torch.OutOfMemoryError("CUDA out of memory"),
            1,
            "memory is used up, a smaller batch needs less: CUDA out of memory",
        ),
    ],
)
def test_what_ends_in_the_middle_ends_in_a_line_and_goes_on(capsys, elsewhere, monkeypatch, error, code, reason):
    def broken(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", broken)
        assert refusal(capsys, "train", "none", "--set", *TINY, code=code) == f"ropewalk: {reason}\n"
    assert run(capsys, "train", "none", "--set", *TINY)[0] == 0


def test_an_error_of_ours_is_not_hidden(elsewhere, monkeypatch):
    monkeypatch.setattr(Trainer, "train_step", lambda *_: [][1])
    with pytest.raises(IndexError):
        cli.main(["train", "none", "--set", *TINY])


def test_interrupted_training_says_that_it_goes_on(capsys, elsewhere, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(ProgressLines, "record", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(capsys, "train", "none", "--set", *TINY) == (130, "stopped; the same command resumes\n", "")
    assert run(capsys, "train", "none", "--set", *TINY)[0] == 0
    assert len(list(Path("runs").iterdir())) == 1


def test_ctrl_c_ends_the_command(tmp_path):
    call = [sys.executable, "-m", "ropewalk", "train", "none", "--runs", tmp_path, "--set", "epochs=100000"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(tmp_path.glob("*/metrics.jsonl")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert out.splitlines()[-1] == "stopped; the same command resumes"


# Trackers. None that could reach a network is ever made.


class Tracker(tracking.GeneralTracker):
    name, requires_logging_directory, seen = "tensorboard", False, []
    tracker = None

    def __init__(self, run_name, **_):
        super().__init__()

    def store_init_configuration(self, values):
        self.seen.append(values)

    def log(self, values, step, **_):
        self.seen.append(values | {"step": step})


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboard"), ("wandb", "wandb"), ("comet_ml", "comet-ml")])
def test_a_tracker_that_is_not_installed_is_refused(capsys, elsewhere, monkeypatch, name, package):
    monkeypatch.setattr(tracking, "get_available_trackers", list)
    words = refusal(capsys, "train", "none", "--set", *TINY, "--track", name)
    assert words == f"ropewalk: the tracker {name} is not installed: pip install {package}\n"
    assert not list(Path().iterdir())


def test_a_tracker_gets_settings_and_metrics(capsys, elsewhere, monkeypatch):
    monkeypatch.setattr(tracking, "get_available_trackers", lambda: [tracking.LoggerType("tensorboard")])
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "tensorboard", Tracker)
    monkeypatch.setattr(Tracker, "seen", [])
    assert run(capsys, "train", "none", "--set", *TINY, "--track", "tensorboard")[0] == 0
    settings, epoch = Tracker.seen
    assert (settings["encoding"], settings["width"]) == ("none", 16)
    assert epoch["epoch"] == 1
    assert epoch["step"] == 8
    assert {"loss", "validation_accuracy"} <= epoch.keys()


# evaluate


def test_evaluate_probes_and_says_where(capsys, path):
    status, out, err = run(capsys, "evaluate", path, "--probes", "reached", "cost")
    where, *lines = out.splitlines()
    assert (status, err, where) == (0, "", f"{path}/probes.json")
    rows = read_json(path / "probes.json")
    tables = {table[0]: table[1:] for table in (part.splitlines() for part in "\n".join(lines).strip().split("\n\n"))}
    assert list(tables) == ["reached", "cost"]
    for probe, (titles, *cells) in tables.items():
        assert titles.split() == list(rows[probe][0])
        assert len(cells) == len(rows[probe])
    assert f"{rows['cost'][0]['images_per_second']:.4g}" in tables["cost"][1].split()
    assert f"{rows['reached'][0]['accuracy']:.4g}" in tables["reached"][1].split()
    assert list(rows) == ["reached", "cost", "refused"]
    status, out, _ = run(capsys, "evaluate", "runs", "--probes", "frequencies", "--json")
    assert status == 0
    found = json.loads(out)
    assert list(found) == [str(path)]
    assert list(found[str(path)]) == ["reached", "cost", "frequencies", "refused"]


def test_evaluate_goes_on_when_one_run_cannot_be_probed(capsys, path):
    other = Path(shutil.copytree(path, "runs/another"))
    unfinished(other)
    status, out, err = run(capsys, "evaluate", "runs", "--probes", "reached")
    first, where, *rows = out.splitlines()
    assert (status, err, where) == (1, "", f"{path}/probes.json")
    assert rows[:2] == ["", "reached"]
    assert first.startswith("another could not be probed: only a finished run is probed")
    assert "only a finished run is probed" in refusal(capsys, "evaluate", other)


def set_measure(monkeypatch, measure):
    """Replace what the probe `cost` does."""
    monkeypatch.setitem(PROBES, "cost", dataclasses.replace(PROBES["cost"], measure=measure))


def test_interrupted_probing_says_that_it_goes_on(capsys, path, monkeypatch):
    set_measure(monkeypatch, lambda opened: (_ for _ in ()).throw(KeyboardInterrupt))
    words = ["evaluate", path, "--probes", "reached", "cost"]
    assert run(capsys, *words) == (130, "stopped; the same command resumes\n", "")
    assert "reached" in read_json(path / "probes.json")


def test_a_terminal_sees_how_far_it_is(capsys, path, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "120")
    _, out, err = run(capsys, "evaluate", path, "--probes", "reached", "frequencies")
    assert "2 of 2" in out
    assert f"{path.name}: frequencies" in out
    assert f"{path}/probes.json" in out
    _, out, err = run(capsys, "report", path)
    assert "a report of 1 run" in err
    url = Path("out/report/report.html").resolve().as_uri()
    assert re.search(rf"\x1b\]8;[^;]*;{re.escape(url)}\x1b\\", out)  # a hyperlink


def test_others_see_a_line_now_and_then(capsys, monkeypatch):
    patch_everywhere(monkeypatch, progress_bars, "LINE_INTERVAL", 5.0)
    times = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    with StageProgress(Console(width=80), 3, clock=lambda: next(times)) as shown:
        for number, word in enumerate("abc"):
            shown.begin(number, word)
    assert capsys.readouterr().out == "2 of 3  b\n"


def test_one_process_speaks_for_all(capsys, monkeypatch):
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        make_console().print(rank)
    assert capsys.readouterr().out == "0\n"


def test_a_probe_of_another_task_is_refused(capsys, path):
    words = refusal(capsys, "evaluate", path, "--probes", "reached", "passkey")
    assert "Unknown probe 'passkey' of these runs; expected one of " in words
    assert not (path / "probes.json").exists()


# compare and report


def test_a_baseline_of_a_report_is_among_its_runs(capsys, path):
    assert f"Unknown baseline 'axial'; expected one of {NAME}" in refusal(capsys, "report", "--baseline", "axial")
    assert "Did you mean 'mixed'?" in refusal(capsys, "report", "--baseline", "mixd")
    assert not Path("out").exists()
    assert run(capsys, "report")[0] == 0  # none is the default, among the runs or not


def test_compare_ends_with_a_table_and_a_report(capsys, path, monkeypatch):
    words = ["compare", NAME, "--seeds", "1", "--set", *TINY, "--probes", "reached", "cost", "--out", "page", "--also"]
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, "")
    first, second, *lines, page = out.splitlines()
    comparison = next(line for line in lines if line.startswith("runs/comparison-"))
    assert any("has the highest mean test accuracy" in line for line in lines)
    assert first.startswith("1 of 2  none, seed 0: test accuracy ")
    assert second.startswith(f"2 of 2  {NAME}, seed 0: done before, test accuracy ")
    (row,) = [line.split() for line in lines if line.startswith(f"  {NAME}")]
    assert [line.split()[0] for line in lines if line.startswith(("  none", f"  {NAME}"))] == ["none", NAME]
    rate = read_json(path / "probes.json")["cost"][0]["images_per_second"]
    assert row[-1] == f"{rate:,.0f}"
    assert page == Path("page/report.html").resolve().as_uri()
    assert NAME in Path("page/report.html").read_text()
    monkeypatch.setattr(Trainer, "train_step", lambda *_: pytest.fail("trained again"))
    set_measure(monkeypatch, lambda opened: pytest.fail("probed again"))
    assert run(capsys, *words)[0] == 0
    status, out, _ = run(capsys, "report", comparison, "--out", "again")
    assert (status, out.splitlines()[-1]) == (0, Path("again/report.html").resolve().as_uri())
    assert Path("again/report.html").read_bytes() == Path("page/report.html").read_bytes()


def test_compare_reports_though_probing_fails(capsys, path, monkeypatch):
    def broken(opened):
        raise RuntimeError(f"no {opened.config.encoding}")

    set_measure(monkeypatch, broken)
    status, out, err = run(capsys, "compare", NAME, "--also", "--seeds", "1", "--set", *TINY, "--probes", "cost")
    assert (status, err) == (1, "")
    assert f"{path.name} could not be probed: no comrope-ld" in out
    assert out.splitlines()[-1] == Path("out/report/report.html").resolve().as_uri()


def test_compare_without_a_report(capsys, path):
    status, out, _ = run(capsys, "compare", NAME, "--baseline", NAME, "--seeds", "1", "--set", *TINY, "--no-report")
    assert status == 0
    assert re.findall(r"^ *(\S+) +1 ", out, re.MULTILINE) == [NAME, "learned-ape"]
    assert out.splitlines()[-1].startswith("runs/comparison-")
    assert not Path("out").exists()
    assert not (path / "probes.json").exists()


@pytest.mark.parametrize("words", [["compare", "mixed"], ["report"]])
def test_reports_need_matplotlib(capsys, path, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "figures need matplotlib: pip install 'ropewalk[lab]'" in refusal(capsys, *words)

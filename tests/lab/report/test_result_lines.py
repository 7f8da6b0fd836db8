"""Lines of a study are runs again: the report of them is that of the folders, but for what lines do not hold."""

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

import reports
from ropewalk.cli import main
from ropewalk.lab import probes
from ropewalk.lab.config import Config
from ropewalk.lab.encoding_spec import parse_options
from ropewalk.lab.report import write_report
from ropewalk.lab.report.groups import group_runs
from ropewalk.lab.run_store import RunFolder, read_json, write_json
from ropewalk.lab.studies import ALL_STUDIES, lines
from ropewalk.lab.studies.lines import build_result_line, drop_unset_settings, get_line_settings, load_result_lines
from ropewalk.lab.studies.study import StudyPart
from ropewalk.lab.studies.unfolded import restore_line_runs
from tests.support.patch_everywhere import patch_everywhere

RESULTS = Path(__file__).parents[3] / "results"
SMALL = "patch=2 width=24 depth=1 heads=2 epochs=2 batch=64 fraction=0.3 compile=false precision=float32 warmup=0.1"
GIVEN = ("data=digits", "epochs=3", "every=2", "span=none", "augment=crop", "dropout=0.1")


def small():
    """A study whose second part begins with the runs of the first, and has one seed more."""
    base = Config.of(ALL_STUDIES["equivariance"].base.document() | parse_options(SMALL.split()))
    names = ("none", "liere-3")
    parts = {
        "first": StudyPart("", names, settings={"learning_rate": 0.02}, probed=False),
        "second": StudyPart("", names, seeds=(0, 1), after="first"),
    }
    return replace(ALL_STUDIES["equivariance"], name="small", base=base, parts=parts)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the runs of a study, and with their lines, whose numbers are not rounded."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch_everywhere(patch, lines, "LINE_DIGITS", 17)
        patch.setitem(ALL_STUDIES, "small", small())
        patch_everywhere(patch, probes, "IMAGE_PROBES", ("offset", "shuffle", "reached", "frequencies", "cost"))
        assert main(["compare", "--study", "small", "--runs", "runs", "--out", "out", "--set", *GIVEN]) == 0
        yield folder


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Where folders for a while are made."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


def originals(folder):
    """The runs of the second part, in the order of their lines."""
    runs = [RunFolder.at(path.parent) for path in Path("runs").glob("*/probes.json")]
    place = {(line["name"], line["seed"]): i for i, line in enumerate(load_result_lines(folder / "out" / "second.jsonl"))}
    return sorted(runs, key=lambda run: place[small().named(run.config), run.config.seed])


def validations(run):
    """What metrics have that lines hold."""
    left_out = ("loss", "learning_rate", "validation_loss", "seconds")
    return [{name: value for name, value in record.items() if name not in left_out} for record in run.metrics()]


def bared(run, runs):
    """A copy of a run among these, without what lines do not hold."""
    run = RunFolder.at(Path(shutil.copytree(run.path, runs / run.path.name)))
    records = "".join(json.dumps(record) + "\n" for record in validations(run))
    (run.path / "metrics.jsonl").write_text(records)
    probes = read_json(run.path / "probes.json")
    write_json(run.path / "probes.json", {name: rows for name, rows in probes.items() if name not in ("refused", "cost")})
    write_json(run.path / "result.json", timeless(run.result()))
    write_json(run.path / "environment.json", read_json(run.path / "environment.json") | {"restored": True})
    (run.path / "checkpoint.safetensors").unlink()
    return run


def timeless(result):
    """A result without what depends on the rest of the machine."""
    return {name: value for name, value in result.items() if name != "seconds"}


def test_folders_are_those_of_the_runs(made, tmp_path):
    runs = restore_line_runs(made / "out" / "second.jsonl", tmp_path)
    assert len(runs) == 4
    for run, own in zip(runs, originals(made), strict=True):
        assert replace(run.config, start=None) == replace(own.config, start=None)
        assert run.config.start == own.config.start
        assert run.path.name == own.path.name
        assert run.result() == timeless(own.result())
        assert validations(run) == validations(own)
        assert [record["epoch"] for record in run.metrics()] == [2, 3]


def test_lines_name_their_study_and_their_data(made):
    for part in ("first", "second"):
        assert {(line["study"], line["data"]) for line in load_result_lines(made / "out" / f"{part}.jsonl")} == {
            ("small", "digits")
        }
    run = originals(made)[0]
    for data, name in (("/mnt/somebody/scans.npz", "scans.npz"), ("more/photographs/", "photographs"), (".", made.name)):
        run.config = replace(run.config, data=data)
        assert build_result_line(small(), "second", run)["data"] == name


@pytest.mark.parametrize(
    ("named", "data"),
    [
        ({}, "data/imagenette160"),
        ({"data": "imagenette160"}, "data/imagenette160"),
        ({"data": "scans.npz"}, "scans.npz"),
    ],
)
def test_data_are_those_that_a_line_names_or_else_the_study_s(tmp_path, named, data):
    path = tmp_path / "lines.jsonl"
    path.write_text(json.dumps(load_result_lines(RESULTS / "equivariance" / "imagenette.jsonl")[0] | named))
    (run,) = restore_line_runs(path, tmp_path)
    assert run.config.data == data


def test_a_report_of_lines_is_that_of_the_folders(made, tmp_path, scratch):
    assert main(["report", "out/second.jsonl", "--question", "Which?", "--out", str(tmp_path / "one")]) == 0
    page = (tmp_path / "one" / "report.html").read_text()
    assert str(scratch) not in page
    assert not list(scratch.iterdir())
    assert "runs of the same encoding, 3 epochs of digits" in page
    assert "Made by ropewalk from lines of a study alone." in page
    assert "These runs are restored from lines of a study." in page
    assert "There is no checkpoint" not in page
    assert "No run that is done says what it cost." in page
    assert "Times are of the machine" not in page
    write_report([bared(run, tmp_path / "runs") for run in originals(made)], tmp_path / "own", question="Which?")
    assert page == (tmp_path / "own" / "report.html").read_text()
    assert (tmp_path / "one" / "report.csv").read_text() == (tmp_path / "own" / "report.csv").read_text()


@pytest.mark.parametrize("place", ["a", "z"])
def test_of_a_run_s_folder_and_its_line_the_folder_counts(made, place):
    """Wherever both lie, and in whatever order they come."""
    folders = [RunFolder.at(made / run.path) for run in originals(made)]
    restored = restore_line_runs(made / "out" / "second.jsonl", made / place)
    for runs in (folders + restored, restored + folders):
        (group,) = group_runs(runs)
        assert (len(group.runs), group.twice) == (4, 4)
        assert not any(found.restored for found in group.runs)


def test_a_line_counts_before_a_folder_that_is_not_done(made, tmp_path):
    own = originals(made)[0]
    begun = RunFolder.at(Path(shutil.copytree(own.path, tmp_path / "runs" / own.path.name)))
    (begun.path / "result.json").unlink()
    (group,) = group_runs([begun, restore_line_runs(made / "out" / "second.jsonl", tmp_path)[0]])
    assert [found.restored for found in group.runs] == [True]


def test_a_page_of_lines_and_folders_says_which_it_has(made, tmp_path):
    folders = [RunFolder.at(made / run.path) for run in originals(made)]
    restored = restore_line_runs(made / "out" / "second.jsonl", tmp_path / "scratch")
    for count, told in ((1, "1 of these runs is"), (3, "3 of these runs are")):
        page = write_report(restored[:count] + folders[count:], tmp_path / told).read_text()
        assert f"{told} restored from lines of a study. First weights, names of folders, and data" in page
        assert "times and memory are left out, since lines do not say what else ran there." in page
        assert "Made by ropewalk from the folders of runs and lines of a study alone." in page
        assert "There is no checkpoint" not in page
    page = write_report(folders, tmp_path / "folders").read_text()
    assert "restored" not in page
    assert "Made by ropewalk from the folders of runs alone." in page


def test_files_of_lines_are_reported_together(made, tmp_path, capsys):
    """Two files of one name, with runs of one name."""
    (tmp_path / "more").mkdir()
    both = load_result_lines(made / "out" / "second.jsonl")
    for path, seed in ((tmp_path / "second.jsonl", 0), (tmp_path / "more" / "second.jsonl", 1)):
        path.write_text("".join(f"{json.dumps(line)}\n" for line in both if line["seed"] == seed))
    paths = [str(tmp_path / "second.jsonl"), str(tmp_path / "more" / "second.jsonl")]
    assert main(["report", *paths, "--out", str(tmp_path / "out")]) == 0
    assert ", 4 runs, all done." in (tmp_path / "out" / "report.html").read_text()


def test_lines_twice_are_runs_twice(made, tmp_path):
    path = tmp_path / "both.jsonl"
    path.write_text(2 * (made / "out" / "second.jsonl").read_text())
    (group,) = group_runs(restore_line_runs(path, tmp_path / "runs"))
    assert (len(group.runs), group.twice) == (4, 4)


def test_detectors_are_one_group(tmp_path):
    path = RESULTS / "pedestrians" / "masks.jsonl"
    (group,) = group_runs(restore_line_runs(path, tmp_path))
    assert {len(seeds) for seeds in group.found.values()} == {3}
    assert set(group.found) == {"none", "learned-ape", "axial", "mixed", "spherical", "liere:block=8", "comrope-ld:block=8"}
    assert group.settings["start"] == "runs of the same encoding, 100 epochs of imagenette160"
    (line,) = (each for each in load_result_lines(path) if each["name"] == "axial" and each["seed"] == 2)
    metrics = group.found["axial"][2].metrics
    assert [record["step"] for record in metrics] == list(range(81, 1621, 81))
    assert [record["validation_box_ap"] for record in metrics] == line["box_curve"]
    assert [record["validation_mask_ap"] for record in metrics] == line["curve"]


def test_parts_of_one_name_are_told_apart_by_their_settings(tmp_path):
    """Two studies have a part that is named half."""
    (line, *_) = (each for each in load_result_lines(RESULTS / "volumes" / "half.jsonl") if each["name"] == "axial")
    pixels = get_line_settings(ALL_STUDIES["equivariance"].config("half", {}))
    other = line | {"settings": pixels, "epochs": 200, "curve": [0.5] * 100}
    path = tmp_path / "half.jsonl"
    path.write_text(f"{json.dumps(line)}\n{json.dumps(other)}\n")
    assert [run.config.data for run in restore_line_runs(path, tmp_path)] == [ALL_STUDIES["volumes"].base.data, "cifar100"]


OF_NO_PART = ("cudnn",)
"""Runs that were made twice, for the kernel of attention."""


@pytest.mark.parametrize(
    "path", sorted(path for path in RESULTS.glob("*/*.jsonl") if path.stem not in OF_NO_PART), ids=lambda path: path.stem
)
def test_settings_of_results_are_those_of_their_parts(path, tmp_path):
    for run, line in zip(restore_line_runs(path, tmp_path), load_result_lines(path), strict=True):
        assert get_line_settings(run.config) == drop_unset_settings(line["settings"])
        assert (run.config.seed, run.config.epochs) == (line["seed"], line["epochs"])
        assert run.config.encoding == line["encoding"]["name"]


@pytest.fixture(scope="module")
def one():
    """A line."""
    return load_result_lines(RESULTS / "equivariance" / "main.jsonl")[0]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"part": "mian"},
            "Did you mean 'main'?",
        ),
        ({"name": "sphericle"}, "Did you mean 'spherical'?"),
        ({"name": "mrope"}, "Unknown encoding 'mrope' of main"),
        ({"seed": "0"}, "it must have seed, a whole number from 0 to 1000000000000, got '0'"),
        ({"seed": -1}, "it must have seed, a whole number from 0 to 1000000000000, got -1"),
        ({"seed": 10**400}, "it must have seed, a whole number from 0 to 1000000000000, got 1000000"),
        ({"step": True}, "it must have step, a whole number from 0 to 1000000000000, got True"),
        ({"step": -5}, "it must have step, a whole number from 0 to 1000000000000, got -5"),
        ({"epochs": 0}, "it must have epochs, a whole number from 1 to 1000000000000, got 0"),
        ({"epochs": 10**12}, "curve must have a number for each of 1000000000000 validations, got 100"),
        ({"device": ""}, "it must have device, a name, got ''"),
        ({"data": 5}, "it must have data, a name, got 5"),
        ({"study": ""}, "it must have study, a name, got ''"),
        ({"study": 5}, "it must have study, a name, got 5"),
        ({"study": ["volumes"]}, "it must have study, a name, got ['volumes']"),
        ({"curve": None}, "it must have curve, a list of numbers, got none"),
        ({"curve": [0.1]}, "curve must have a number for each of 100 validations, got 1"),
        (
            {"curve": ["high"] * 100},
            "it must have curve, a list of numbers, got ['high', ",
        ),
        ({"box_curve": 5}, "it must have box_curve, a list of numbers, got 5"),
        ({"test_accuracy": None}, "it must have test_accuracy, a number, got none"),
        ({"test_accuracy": float("nan")}, "it must have test_accuracy, a number, got nan"),
        ({"test_accuracy": True}, "it must have test_accuracy, a number, got True"),
        ({"test_accuracy": 10**400}, "it must have test_accuracy, a number, got 1000000"),
        ({"encoding": {"name": "axial"}}, "what the study calls none, and name is 'axial' and not 'none'"),
        ({"study": "volumes"}, "Unknown part 'main'"),
        ({"study": "equivariance", "name": "mrope"}, "Unknown encoding 'mrope' of equivariance"),
        ({"study": "equivarience"}, "Did you mean 'equivariance'?"),
        ({"settings": {}}, "its settings must have validation, as each run has it, got none"),
    ],
)
def test_what_is_no_line_is_refused(one, tmp_path, monkeypatch, capsys, changes, told):
    monkeypatch.chdir(tmp_path)
    line = {name: value for name, value in {**one, **changes}.items() if value is not None}
    refused(json.dumps(line), told, capsys)


NAMED = {line["name"]: line for line in load_result_lines(RESULTS / "equivariance" / "screening.jsonl")}
PARTS_OF_CHAIN = NAMED["mixed-ape"]["encoding"]["parts"]


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("learned-axial", {"name": "axial"}, "what the study calls axial, and learned is True and not False"),
        ("axial", {"name": "learned-axial"}, "what the study calls learned-axial, and learned is False and not True"),
        ("liere-8", {"name": "liere-3"}, "what the study calls liere-3, and block is 8 and not 3"),
        ("liere-8", {"encoding": {"block": 48}}, "what the study calls liere-8, and block is 48 and not 8"),
        ("axial", {"encoding": {"base": 10.0}}, "what the study calls axial, and base is 10.0 and not 100.0"),
        ("uniform", {"name": "uniform-code"}, "what the study calls uniform-code, and variant is 'van-de-geijn' and not"),
        ("axial", {"settings": {"span": None}}, "what the study calls axial, and scale is 0.857"),
        ("mixed-ape", {"encoding": {"parts": PARTS_OF_CHAIN[::-1]}}, "what the study calls mixed-ape, and parts is [{"),
        ("axial", {"encoding": {"colour": 1}}, "Unknown option 'colour' of axial"),
        ("axial", {"encoding": {"head_dim": "wide"}}, "its encoding must have head_dim, a whole number from 1 to 1024"),
        ("axial", {"encoding": {"base": 10**400}}, "line 1 of lines.jsonl must be of a run of a study: int too large"),
        ("learned-ape", {"encoding": {"size": [10**10, 10**10]}}, "line 1 of lines.jsonl must be of a run of a study"),
    ],
)
def test_an_encoding_that_is_not_the_study_s_is_refused(tmp_path, monkeypatch, capsys, name, changes, told):
    monkeypatch.chdir(tmp_path)
    line = NAMED[name]
    inside = {key: line[key] | value for key, value in changes.items() if isinstance(value, dict)}
    refused(json.dumps(line | changes | inside), told, capsys)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"colour": "red"}, "no setting is named colour"),
        ({"seed": 5, "start": "runs/first"}, "its settings must not have seed, start, which lines say elsewhere or not"),
        ({"patch": None}, "its settings must have patch, as each run has it, got None"),
        ({"learning_rate": 10**400}, "learning_rate must be float, got 1000000"),
    ],
)
def test_settings_that_no_line_has_are_refused(one, tmp_path, monkeypatch, capsys, changes, told):
    monkeypatch.chdir(tmp_path)
    refused(json.dumps(one | {"settings": one["settings"] | changes}), told, capsys)


def test_a_study_that_is_null_is_refused(one, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused(json.dumps(one | {"study": None}), "it must have study, a name, got None", capsys)


def test_curves_of_boxes_are_as_long_as_those_of_masks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = load_result_lines(RESULTS / "pedestrians" / "masks.jsonl")[0] | {"box_curve": [0.1]}
    refused(json.dumps(line), "box_curve must have a number for each of 20 validations, got 1", capsys)


def test_epochs_without_a_validation_are_not_counted_one_by_one(one, tmp_path):
    rare = one | {"epochs": 10**12, "curve": [0.5], "settings": one["settings"] | {"every": 10**12}}
    (tmp_path / "lines.jsonl").write_text(json.dumps(rare))
    (run,) = restore_line_runs(tmp_path / "lines.jsonl", tmp_path)
    assert run.metrics() == [{"step": one["step"], "epoch": 10**12, "validation_accuracy": 0.5}]


def test_a_file_that_is_no_text_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused(b"\xff\xfe{}", "lines.jsonl must be text in UTF-8, got other bytes", capsys)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "line 1 of lines.jsonl must be JSON"),
        (5000 * "9", "line 1 of lines.jsonl must be JSON"),
        (100_000 * "[", "line 1 of lines.jsonl must be JSON"),
        ("[1]", "it must be an object, got [1]"),
        ("", "no run is at lines.jsonl: a run is a folder with a config.json, or a line in a file of a study, .jsonl"),
    ],
)
def test_what_is_no_file_of_lines_is_refused(tmp_path, monkeypatch, capsys, text, told):
    monkeypatch.chdir(tmp_path)
    refused(text, told, capsys)


def refused(text, told, capsys):
    """Whether a file with this text is, in these words, and leaves nothing behind."""
    Path("lines.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["report", "lines.jsonl"]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (["nosuch.jsonl"], "a file of lines must be there, and there is no nosuch.jsonl"),
        (["runs"], "runs holds lines and no run: give the .jsonl files themselves, got their folder"),
        (["runs/main.jsonl", "runs"], "runs holds lines and no run: give the .jsonl files themselves"),
    ],
)
def test_lines_that_are_not_there_and_folders_of_lines_are_refused(tmp_path, monkeypatch, capsys, paths, told):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/main.jsonl").write_text((RESULTS / "volumes" / "whole.jsonl").read_text())
    assert main(["report", *paths]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_folder_of_runs_may_hold_lines_and_be_named_like_them(made, tmp_path):
    runs = tmp_path / "runs.jsonl"
    shutil.copytree(originals(made)[0].path, runs / originals(made)[0].path.name)
    (runs / "main.jsonl").touch()
    assert main(["report", str(runs), "--out", str(tmp_path / "out")]) == 0
    assert ", 1 run, all done." in (tmp_path / "out" / "report.html").read_text()


def test_lines_are_not_probed(capsys):
    assert main(["evaluate", str(RESULTS / "volumes" / "whole.jsonl")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "lines of a study hold no weights: wanted are folders of runs, got" in said


def test_studies_are_reported_beside_their_pages(tmp_path, scratch):
    (tmp_path / "studies").mkdir()
    reports.write("equivariance", tmp_path)
    page = (tmp_path / "studies" / "equivariance-report.html").read_text()
    assert "<h1>Does RoPE need to be equivariant for vision?</h1>" in page
    assert (
        f"12 encodings on cifar100.npz, {len(load_result_lines(RESULTS / 'equivariance' / 'main.jsonl'))} runs, all done."
        in page
    )
    assert "These runs are restored from lines of a study." in page
    assert "uniform has 81 % of the sum of their variances" in page
    assert "Points above learned-ape" in page
    assert "No run that is done has weights" in page
    assert "Training loss" not in page
    assert "must have a checkpoint" not in page
    assert str(scratch) not in page
    assert not list(scratch.iterdir())


def test_every_study_of_the_site_has_lines_to_report():
    for name, part in reports.PARTS.items():
        assert part in ALL_STUDIES[name].parts
        assert (RESULTS / name / f"{part}.jsonl").is_file()
        assert (Path(reports.__file__).parent / "studies" / f"{name}.md").is_file()

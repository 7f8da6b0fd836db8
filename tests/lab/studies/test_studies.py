"""Studies: what they consist of, and that any row of one is made alone, kept, and written down once."""

import contextlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from ropewalk.cli import main
from ropewalk.lab.config import Config
from ropewalk.lab.encoding_spec import parse_encoding, parse_options
from ropewalk.lab.errors import CommandError
from ropewalk.lab.model_building import build_model, compute_max_span
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.lines import load_result_lines, write_result_lines
from ropewalk.lab.studies.study import StudyPart
from ropewalk.lab.verbs import run_compare_command, run_train_command
from tests.support.patch_everywhere import patch_everywhere

STUDY = ALL_STUDIES["equivariance"]
SMALL = (
    "data=digits patch=2 width=24 depth=1 heads=2 epochs=1 batch=64 fraction=0.3 compile=false precision=float32 warmup=0.1"
)
NEEDED = {"none", "learned-ape", "axial", "learned-axial", "uniform", "mixed", "spherical", "learned-spherical"}


def run(folder, *words):
    """The code of `ropewalk compare --study equivariance` with small settings."""
    place = ["--runs", str(folder / "runs"), "--out", str(folder / "out")]
    small = [each for each in SMALL.split() if each.partition("=")[0] not in "".join(words)]
    given = words if "--set" in words else (*words, "--set")
    return main(["compare", "--study", "equivariance", *given, *small, *place])


def test_help_names_every_study_and_every_recipe():
    assert all(re.search(rf"\b{name}[, ]", inspect.getdoc(run_compare_command)) for name in ALL_STUDIES)
    assert all(re.search(rf"\b{name}[,.]", inspect.getdoc(run_train_command)) for name in RECIPES)


def test_parts_have_what_they_say():
    for part in STUDY.parts.values():
        assert set(part.encodings) <= set(STUDY.encodings)
    assert set(STUDY.parts["screening"].encodings) == set(STUDY.encodings) - {"uniform-code"}
    assert "uniform-code" in STUDY.parts["own"].encodings
    main_part = STUDY.parts["main"]
    assert NEEDED | {"spherical-symmetric", "liere-8", "comrope-ld-8"} <= set(main_part.encodings)
    assert len(main_part.seeds) == 3
    assert STUDY.config("main", {}).epochs >= 100
    labels = [parse_encoding(said).label for said in STUDY.encodings.values()]
    assert len(set(labels)) == len(labels)


def test_recipes_are_tried_on_learned_ape_alone():
    tried = [part for name, part in STUDY.parts.items() if name.startswith("recipe-")]
    assert len(tried) > 3
    assert {part.encodings for part in tried} == {("learned-ape",)}
    assert STUDY.base.validation == 0.1


@pytest.mark.parametrize("name", STUDY.encodings)
def test_all_that_turn_have_one_span(name):
    said = parse_encoding(STUDY.encodings[name])
    config = replace(STUDY.config("main", {}), encoding=said.encoding, options=said.options, depth=2)
    assert STUDY.named(config) == name
    encoding = build_model(config, size=(32, 32), channels=3, classes=100).encoding
    parts = encoding._parts() if said.encoding == "chain" else [encoding]
    for part in parts:
        if part.traits.rotary:
            assert compute_max_span(part) == pytest.approx(6.0, rel=1e-5)


def test_a_row_is_made_alone_and_written_down_once(tmp_path, capsys):
    assert run(tmp_path, "--part", "screening", "--only", "spherical", "none", "--seed", "1") == 0
    path = tmp_path / "out" / "screening.jsonl"
    assert str(path) in capsys.readouterr().out
    lines = load_result_lines(path)
    assert [(each["name"], each["seed"], each["part"]) for each in lines] == [
        ("none", 1, "screening"),
        ("spherical", 1, "screening"),
    ]
    (found,) = (RunFolder.at(each) for each in (tmp_path / "runs").iterdir() if each.name.startswith("spherical-"))
    assert lines[1]["test_accuracy"] == pytest.approx(found.result()["test_accuracy"], rel=1e-4)
    assert lines[1]["encoding"]["scale"] != 1.0
    assert lines[1]["encoding"]["name"] == "spherical"
    assert len(lines[1]["curve"]) == lines[1]["epochs"] == 1
    assert {"resolution", "offset", "equivariance"} <= set(lines[1]["probes"])
    assert lines[1]["settings"]["span"] == 6.0
    before = {each: each.stat().st_mtime_ns for each in (tmp_path / "runs").glob("*/result.json")}
    assert run(tmp_path, "--part", "screening", "--only", "spherical", "none", "--seed", "1") == 0
    assert {each: each.stat().st_mtime_ns for each in (tmp_path / "runs").glob("*/result.json")} == before
    assert load_result_lines(path) == lines
    shutil.rmtree(tmp_path / "runs")  # as on another machine
    assert run(tmp_path, "--part", "screening", "--only", "spherical", "none", "axial", "--seed", "1") == 0
    assert [each.name.partition("-")[0] for each in (tmp_path / "runs").glob("*/")] == ["axial"]
    assert load_result_lines(path)[:2] == lines
    told = [each.split() for each in capsys.readouterr().out.splitlines() if each.startswith(("none ", "spherical "))]
    assert ["spherical", "1", f"{100 * lines[1]['test_accuracy']:.2f}"] in told
    assert run(tmp_path, "--part", "screening", "--only", "none", "--seed", "1", "--set", "epochs=2") == 0
    assert [each["epochs"] for each in load_result_lines(path)] == [1, 1, 1, 2]


def test_each_run_is_written_down_before_the_next_begins(tmp_path, monkeypatch):
    from ropewalk.lab import train
    from ropewalk.lab.train import train_run

    begun = []

    def train_once(config, runs, **options):
        if begun:
            raise KeyboardInterrupt
        begun.append(config.name)
        return train_one(config, runs, **options)

    train_one = train_run
    patch_everywhere(monkeypatch, train, "train_run", train_once)
    with contextlib.suppress(KeyboardInterrupt):
        run(tmp_path, "--part", "screening", "--only", "spherical", "none")
    assert [each["name"] for each in load_result_lines(tmp_path / "out" / "screening.jsonl")] == ["none"]


def test_a_run_that_cannot_be_probed_has_no_line(tmp_path, monkeypatch, capsys):
    def broken(run, names, **options):
        raise RuntimeError("no images today")

    monkeypatch.setattr("ropewalk.lab.probes.probe_run", broken)
    assert run(tmp_path, "--part", "screening", "--only", "none") == 1
    assert "could not be probed, and has no line: no images today" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "out" / "screening.jsonl").exists()


def test_a_run_that_another_process_probes_is_passed_over(tmp_path):
    words = ("--part", "screening", "--only", "none", "--seed", "0")
    assert run(tmp_path, *words) == 0
    path = tmp_path / "out" / "screening.jsonl"
    path.unlink()
    (folder,) = (each.parent for each in (tmp_path / "runs").glob("*/result.json"))
    other = RunFolder.at(folder)
    other.lock_folder()
    assert run(tmp_path, *words) == 1
    assert not path.exists()
    other.release()
    assert run(tmp_path, *words) == 0
    assert len(load_result_lines(path)) == 1


def test_processes_that_write_lines_at_once_lose_none(tmp_path):
    code = (
        "import sys; from pathlib import Path; from ropewalk.lab.studies.lines import write\n"
        "path, name, other = Path(sys.argv[1]), *sys.argv[2:]\n"
        "(path.parent / name).touch()\n"
        "while not (path.parent / other).exists(): pass\n"
        "for i in range(40): write(path, [{'name': name, 'seed': i, 'epochs': 1}])"
    )
    path = tmp_path / "main.jsonl"
    names = ("axial", "mixed")
    both = [subprocess.Popen([sys.executable, "-c", code, str(path), *some]) for some in (names, names[::-1])]
    assert [each.wait() for each in both] == [0, 0]
    assert len(load_result_lines(path)) == 80


def test_lines_of_other_runs_stay(tmp_path):
    one, two = ({"name": name, "seed": 0, "epochs": 5, "test_accuracy": 0.5} for name in ("mixed", "axial"))
    path = write_result_lines(tmp_path / "more" / "main.jsonl", [one])
    write_result_lines(path, [two])
    write_result_lines(path, [one | {"test_accuracy": 0.6}, two | {"epochs": 6}])
    assert [(each["name"], each["epochs"], each["test_accuracy"]) for each in load_result_lines(path)] == [
        ("mixed", 5, 0.6),
        ("axial", 5, 0.5),
        ("axial", 6, 0.5),
    ]
    path.write_text(json.dumps(one) + "\n{")
    with pytest.raises(ValueError, match=r"2.*main\.jsonl.*JSON"):
        load_result_lines(path)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--part", "mani"], "Did you mean 'main'?"),
        (["--part", "main", "--only", "sphericle"], "Did you mean 'spherical'?"),
        (["--part", "main", "--seed", "-1"], "seeds must be 0 or more, got -1"),
        (["mixed"], "a study has its encodings: choose among them by --only, got mixed"),
    ],
)
def test_what_there_is_not_is_refused(tmp_path, capsys, words, told):
    assert run(tmp_path, *words) != 0
    assert told in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_compare_needs_encodings_or_a_study(capsys):
    for words in ([], ["mixed", "--only", "mixed"]):
        assert main(["compare", *words]) != 0
        assert "compare needs the names of encodings, or --study" in capsys.readouterr().err


def test_an_encoding_that_a_part_has_not_is_passed_over(tmp_path):
    assert "sincos" not in STUDY.parts["half"].encodings
    assert run(tmp_path, "--part", "half", "--only", "sincos") == 0
    assert not (tmp_path / "out").exists()


def test_names_are_found_again():
    with pytest.raises(CommandError, match="Unknown part"):
        STUDY.chosen(["nothing"])
    assert STUDY.chosen() == list(STUDY.parts)


@pytest.fixture
def going_on(monkeypatch):
    """A study whose second part begins with the runs of the first."""
    base = Config.of(STUDY.base.document() | parse_options(SMALL.split()) | {"epochs": 4, "learning_rate": 0.02})
    parts = {
        "first": StudyPart("", ("none", "axial"), probed=False),
        "second": StudyPart(
            "", ("none", "axial"), seeds=(0, 1), settings={"learning_rate": 1e-9}, probed=False, after="first"
        ),
    }
    monkeypatch.setitem(ALL_STUDIES, "going-on", replace(STUDY, name="going-on", base=base, parts=parts))


def test_runs_begin_with_those_of_their_own_encoding(tmp_path, going_on):
    place = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(["compare", "--study", "going-on", *place]) == 0
    first, second = (load_result_lines(tmp_path / "out" / f"{part}.jsonl") for part in ("first", "second"))
    scores = {line["name"]: line["test_loss"] for line in first}
    assert abs(scores["none"] - scores["axial"]) > 1e-4
    assert [(line["name"], line["seed"]) for line in second] == [("none", 0), ("axial", 0), ("none", 1), ("axial", 1)]
    for line in second:  # at that rate nothing is learned
        assert line["test_loss"] == pytest.approx(scores[line["name"]], abs=3e-4)
    assert main(["compare", "--study", "going-on", *place]) == 0
    assert load_result_lines(tmp_path / "out" / "second.jsonl") == second


def test_a_part_whose_first_runs_are_not_made_is_refused(tmp_path, going_on, capsys):
    place = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(["compare", "--study", "going-on", "--part", "second", *place]) == 2
    assert "second begins with runs of first, and of none, seed 0" in " ".join(capsys.readouterr().err.split())


def test_settings_that_came_later_leave_lines_as_they_are(tmp_path):
    assert run(tmp_path, "--part", "screening", "--only", "none", "--seed", "0") == 0
    path = tmp_path / "out" / "screening.jsonl"
    (line,) = load_result_lines(path)
    older = {**line, "settings": {**line["settings"], "keys": None}}
    older["settings"].pop("task", None)
    path.write_text(json.dumps(older) + "\n")
    shutil.rmtree(tmp_path / "runs")
    assert run(tmp_path, "--part", "screening", "--only", "none", "--seed", "0") == 0
    assert not list((tmp_path / "runs").glob("*/config.json"))


def test_pedestrians_are_found_by_the_vits_that_learned_classes():
    study = ALL_STUDIES["pedestrians"]
    classes, masks = (study.config(part, {}) for part in ("backbones", "masks"))
    assert (classes.task, masks.task) == (None, "masks")
    assert all(
        getattr(classes, name) == getattr(masks, name) for name in ("patch", "width", "depth", "heads", "pool", "span")
    )
    assert len(study.parts["masks"].seeds) == len(study.parts["backbones"].seeds) == 3
    assert classes == ALL_STUDIES["equivariance-imagenette"].config("imagenette", {})


def test_photographs_are_trained_as_small_images_are():
    """The rate goes by the root of the batch, and images move by the same share of their side."""
    small, large = (ALL_STUDIES[name].base for name in ("equivariance", "equivariance-imagenette"))
    assert large.learning_rate == pytest.approx(small.learning_rate * (large.batch / small.batch) ** 0.5)
    assert large.strength["pad"] / large.size[0] == 4 / 32


@pytest.mark.parametrize(("part", "times"), [("half", 2), ("fifth", 5)])
def test_less_data_is_seen_as_often_again(part, times):
    whole, fewer = (ALL_STUDIES["equivariance"].config(name, {}) for name in ("main", part))
    assert fewer.fraction == pytest.approx(1 / times)
    assert (fewer.epochs, fewer.warmup, fewer.every) == (times * whole.epochs, times * whole.warmup, times * whole.every)


def test_spans_of_their_own_are_of_what_has_a_span():
    study = ALL_STUDIES["equivariance"]
    assert {*study.parts["own"].encodings} == {*study.parts["main"].encodings, "uniform-code"} - {"none", "learned-ape"}

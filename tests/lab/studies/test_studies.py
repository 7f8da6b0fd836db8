"""Studies: what they consist of; each of their runs can be made alone, and is recorded once."""

import contextlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ropewalk.cli import main
from ropewalk.lab import probes
from ropewalk.lab.config import Config
from ropewalk.lab.encoding_spec import parse_encoding, parse_options
from ropewalk.lab.errors import CommandError, DamagedFileError
from ropewalk.lab.model_building import build_model, compute_max_span
from ropewalk.lab.record import RunRecord, unpack_bits
from ropewalk.lab.record_lines import load_records, write_records
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.run import (
    PartRequest,
    _find_origin,
    format_part_table,
    load_part_records,
    make_study_record,
)
from ropewalk.lab.studies.study import Study, StudyPart
from tests.support.patch_everywhere import patch_everywhere

STUDY = ALL_STUDIES["equivariance"]
RESULTS = Path(__file__).parents[3] / "results"
SMALL = (
    "data=digits patch=2 width=24 depth=1 heads=2 epochs=1 batch=64 fraction=0.3 compile=false precision=float32 warmup=0.1"
)
NEEDED = {"none", "learned-ape", "axial", "learned-axial", "uniform", "mixed", "spherical", "learned-spherical"}


def run(folder, *words):
    """The exit code of `ropewalk study equivariance` with small settings."""
    place = ["--runs", str(folder / "runs"), "--out", str(folder / "out")]
    small = [each for each in SMALL.split() if each.partition("=")[0] not in "".join(words)]
    given = words if "--set" in words else (*words, "--set")
    return main(["study", "equivariance", *given, *small, *place])


def test_studies_are_listed_with_their_questions_and_parts(capsys):
    assert main(["study"]) == 0
    out = capsys.readouterr().out
    for study in ALL_STUDIES.values():
        assert f"{study.name}: {study.question}" in out
        for name, part in study.parts.items():
            runs = len(part.encodings) * len(part.seeds)
            assert re.search(rf"^  {name} +{runs} runs? +{re.escape(part.about)}$", out, re.MULTILINE), name


def test_parts_have_what_they_say():
    for part in STUDY.parts.values():
        assert set(part.encodings) <= set(STUDY.encodings)
    assert set(STUDY.parts["screening"].encodings) == set(STUDY.encodings) - {"uniform-code"}
    assert "uniform-code" in STUDY.parts["own"].encodings
    main_part = STUDY.parts["main"]
    assert NEEDED | {"spherical-symmetric", "liere-8", "comrope-ld-8"} <= set(main_part.encodings)
    assert len(main_part.seeds) == 3
    assert STUDY.config("main").epochs >= 100
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
    config = replace(STUDY.config("main"), encoding=said.encoding, options=said.options, depth=2)
    assert STUDY.find_name(config) == name
    encoding = build_model(config, size=(32, 32), channels=3, classes=100).encoding
    parts = encoding._parts() if said.encoding == "chain" else [encoding]
    for part in parts:
        if part.traits.rotary:
            assert compute_max_span(part) == pytest.approx(6.0, rel=1e-5)


def test_a_run_is_made_alone_and_recorded_once(tmp_path, capsys):
    assert run(tmp_path, "--part", "screening", "--only", "spherical", "none", "--seed", "1") == 0
    path = tmp_path / "out" / "screening.jsonl"
    assert str(path) in capsys.readouterr().out
    records = load_records(path)
    assert [(each.study, each.part, each.name, each.config.seed) for each in records] == [
        ("equivariance", "screening", "none", 1),
        ("equivariance", "screening", "spherical", 1),
    ]
    (found,) = (RunFolder.at(each) for each in (tmp_path / "runs").iterdir() if each.name.startswith("spherical-"))
    assert records[1].score == pytest.approx(found.result()["test_accuracy"], rel=1e-4)
    assert records[1].encoding["scale"] != 1.0
    assert records[1].encoding["name"] == "spherical"
    assert len(records[1].list_metric("validation_accuracy")) == records[1].config.epochs == 1
    assert {"resolution", "offset", "equivariance"} <= set(records[1].probes)
    assert records[1].config == found.config
    assert records[1].run == found.path.name
    before = {each: each.stat().st_mtime_ns for each in (tmp_path / "runs").glob("*/result.json")}
    assert run(tmp_path, "--part", "screening", "--only", "spherical", "none", "--seed", "1") == 0
    assert {each: each.stat().st_mtime_ns for each in (tmp_path / "runs").glob("*/result.json")} == before
    assert load_records(path) == records
    shutil.rmtree(tmp_path / "runs")  # as on another machine
    assert run(tmp_path, "--part", "screening", "--only", "spherical", "none", "axial", "--seed", "1") == 0
    assert [each.name.partition("-")[0] for each in (tmp_path / "runs").glob("*/")] == ["axial"]
    assert load_records(path)[:2] == records
    printed = [each.split()[:3] for each in capsys.readouterr().out.splitlines() if each.startswith("spherical ")]
    assert ["spherical", "1", f"{100 * records[1].score:.2f}"] in printed
    assert run(tmp_path, "--part", "screening", "--only", "none", "--seed", "1", "--set", "epochs=2") == 0
    assert [each.config.epochs for each in load_records(path)] == [1, 1, 1, 2]


def test_a_record_has_what_the_run_directory_has(tmp_path):
    """Also after it was written and read: bits of test images, seed of the split, commit, versions, data."""
    assert run(tmp_path, "--part", "screening", "--only", "axial", "--seed", "0", "1") == 0
    records = load_records(tmp_path / "out" / "screening.jsonl")
    assert ["waves" in record.probes for record in records] == [True, False]
    for seed, written in enumerate(records):
        folder = RunFolder.at(tmp_path / "runs" / written.run)
        bits = unpack_bits(written.test_correct, written.data["counts"]["test"])
        assert sum(bits) / len(bits) == pytest.approx(written.score, abs=1e-5)
        path = write_records(tmp_path / "again.jsonl", [make_study_record(STUDY, "screening", folder)], digits=17)
        record, found = load_records(path)[-1], load_run(folder.path)
        left_out = {"probes": record.probes, "location": None}
        assert record == replace(found, study="equivariance", part="screening", name="axial", **left_out)
        assert record.probes == {name: rows for name, rows in found.probes.items() if name != "waves" or seed == 0}
        assert (record.index_seed, unpack_bits(record.test_correct, len(bits))) == (seed, bits)


def test_a_run_of_an_earlier_version_has_a_record(tmp_path):
    """Their environment.json lacks the encoding, which is read from the checkpoint."""
    assert run(tmp_path, "--part", "screening", "--only", "axial", "--seed", "0") == 0
    (path,) = (tmp_path / "runs").glob("axial-*/environment.json")
    environment = json.loads(path.read_text())
    encoding = environment.pop("encoding")
    path.write_text(json.dumps({name: environment[name] for name in ("machine", "versions")}))
    record = make_study_record(STUDY, "screening", RunFolder.at(path.parent))
    assert record.encoding == encoding
    assert (record.commit, record.index_seed, record.data) == (None, None, None)
    (path.parent / "probes.json").write_text("{")
    with pytest.raises(DamagedFileError, match=r"probes\.json"):
        make_study_record(STUDY, "screening", RunFolder.at(path.parent))
    (path.parent / "result.json").unlink()
    (path.parent / "probes.json").unlink()
    with pytest.raises(ValueError, match=r"result\.json"):
        make_study_record(STUDY, "screening", RunFolder.at(path.parent))


def test_each_run_is_recorded_before_the_next_begins(tmp_path, monkeypatch):
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
    assert [each.name for each in load_records(tmp_path / "out" / "screening.jsonl")] == ["none"]


def test_a_run_that_cannot_be_probed_has_no_record(tmp_path, monkeypatch, capsys):
    def broken(run, names, **options):
        raise RuntimeError("no images today")

    patch_everywhere(monkeypatch, probes, "probe_run", broken)
    assert run(tmp_path, "--part", "screening", "--only", "none") == 1
    assert "could not be probed, and has no record: no images today" in " ".join(capsys.readouterr().out.split())
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
    assert len(load_records(path)) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--part", "mani"], "Did you mean 'main'?"),
        (["--part", "main", "--only", "sphericle"], "Did you mean 'spherical'?"),
        (["--part", "main", "--seed", "-1"], "seeds must be 0 or more, got -1"),
        (["--part", "main", "--set", "epoch=3"], "Did you mean 'epochs'?"),
        (["--part", "main", "--set", "seed=3"], "seed is not a setting"),
        (["--part", "half", "--only", "sincos"], "nothing to run: half of equivariance: has none of sincos"),
        (["--part", "half", "main", "--only", "sincos"], "nothing to run: half, main of equivariance: has none of sincos"),
    ],
)
def test_what_there_is_not_is_refused(tmp_path, capsys, words, told):
    assert run(tmp_path, *words) != 0
    assert told in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["compare"], "compare needs encodings"),
        (["compare", "--study", "equivariance"], "`ropewalk study NAME`"),
        (["compare", "--study=equivariance", "--recipe", "nosuch"], "`ropewalk study NAME`"),
        (["study", "equivarience"], "Did you mean 'equivariance'?"),
        (["study", "--part", "main"], "to run one, give its name before --part"),
        (["study", "--left"], "to run one, give its name before --left"),
        (["study", "--out", "a", "--together", "2"], "to run one, give its name before --out, --together"),
    ],
)
def test_studies_are_run_by_name(tmp_path, monkeypatch, capsys, words, reason):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert reason in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", ["--recipe nosuch", "--model timm:x", "--baseline none", "--seeds 2", "--no-report"])
def test_a_study_takes_no_options_of_compare(capsys, words):
    assert main(["study", "equivariance", *words.split(), "--part", "half"]) == 2
    assert f"Unknown option '{words.split()[0]}' of study; expected one of --part" in capsys.readouterr().err


def test_a_study_takes_no_encodings():
    with pytest.raises(SystemExit) as stopped:
        main(["study", "equivariance", "mixed", "--part", "half"])
    assert stopped.value.code == 2


def test_an_encoding_that_a_part_has_not_is_passed_over(tmp_path, capsys):
    assert "sincos" not in STUDY.parts["half"].encodings
    assert run(tmp_path, "--part", "half", "screening", "--only", "sincos") == 0
    assert [path.name for path in (tmp_path / "out").glob("*.jsonl")] == ["screening.jsonl"]
    out = capsys.readouterr().out
    assert STUDY.parts["half"].about not in out
    assert "half: has none of sincos" in out


def test_missing_runs_are_listed_and_not_made(tmp_path, capsys):
    words = ("--part", "screening", "--only", "none", "axial", "--seed", "0", "1", "--left")
    assert run(tmp_path, *words) == 1
    assert capsys.readouterr().out.splitlines() == [
        "screening: 0 of 4 runs are recorded",
        "  missing: none, seeds 0 1",
        "  missing: axial, seeds 0 1",
    ]
    assert not list(tmp_path.iterdir())
    assert run(tmp_path, "--part", "screening", "--only", "none", "--seed", "1") == 0
    capsys.readouterr()
    assert run(tmp_path, *words) == 1
    first, *rest = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"screening: 1 of 4 runs are recorded, trained in \S+( \S+)?", first)
    assert rest == ["  missing: none, seed 0", "  missing: axial, seeds 0 1"]
    assert run(tmp_path, "--part", "screening", "--only", "none", "--seed", "1", "--left") == 0
    assert run(tmp_path, "--part", "screening", "--only", "none", "--seed", "1", "--left", "--set", "epochs=2") == 1


def test_names_are_found_again():
    with pytest.raises(CommandError, match="Unknown part"):
        STUDY.select_parts(["nothing"])
    assert STUDY.select_parts() == list(STUDY.parts)


@pytest.fixture
def going_on(monkeypatch):
    """A study whose second part is initialized from the runs of the first."""
    base = Config.of(STUDY.base.document() | parse_options(SMALL.split()) | {"epochs": 4, "learning_rate": 0.02})
    parts = {
        "first": StudyPart("", ("none", "axial"), probed=False),
        "second": StudyPart(
            "", ("none", "axial"), seeds=(0, 1), settings={"learning_rate": 1e-9}, probed=False, after="first"
        ),
    }
    monkeypatch.setitem(ALL_STUDIES, "going-on", replace(STUDY, name="going-on", base=base, parts=parts))


def test_runs_are_initialized_from_those_of_their_own_encoding(tmp_path, going_on):
    place = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(["study", "going-on", *place]) == 0
    first, second = (load_records(tmp_path / "out" / f"{part}.jsonl") for part in ("first", "second"))
    scores = {record.name: record.result["test_loss"] for record in first}
    assert abs(scores["none"] - scores["axial"]) > 1e-4
    assert [(each.name, each.config.seed) for each in second] == [("none", 0), ("axial", 0), ("none", 1), ("axial", 1)]
    for record in second:  # at that rate nothing is learned
        assert record.result["test_loss"] == pytest.approx(scores[record.name], abs=3e-4)
        (origin,) = record.origins
        assert (origin.name, origin.seed) == (Path(record.config.start).name, 0)
    assert main(["study", "going-on", *place]) == 0
    assert load_records(tmp_path / "out" / "second.jsonl") == second


def test_a_part_whose_first_runs_are_not_made_is_refused(tmp_path, going_on, capsys):
    place = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(["study", "going-on", "--part", "second", *place]) == 2
    assert "second is initialized from runs of first" in " ".join(capsys.readouterr().err.split())


def test_a_recorded_run_is_not_made_again_wherever_its_data_were(tmp_path):
    words = ("--part", "screening", "--only", "none", "--seed", "0")
    assert run(tmp_path, *words) == 0
    path = tmp_path / "out" / "screening.jsonl"
    document = json.loads(path.read_text())
    config = document["config"] | {"data": "elsewhere/digits.npz", "root": None, "workers": None, "checkpoint": None}
    path.write_text(json.dumps(document | {"run": None, "config": config}) + "\n")
    shutil.rmtree(tmp_path / "runs")
    assert run(tmp_path, *words) == 0
    assert not list((tmp_path / "runs").glob("*/config.json"))
    path.write_text(json.dumps(document | {"run": None, "config": config | {"batch": 32}}) + "\n")
    assert run(tmp_path, *words) == 0
    assert len(list((tmp_path / "runs").glob("*/config.json"))) == 1


def request_part(tmp_path, part, records, study=STUDY):
    path = write_records(tmp_path / f"{part}.jsonl", records)
    return PartRequest(study, part, study.parts[part].encodings, (0, 1), {}, study.config(part), path)


def record_part(part, name, study=STUDY, score=0.5, **settings):
    config = replace(study.run_config(part, name, 0), **settings)
    result = {"test_accuracy": score} if score is not None else {"test_loss": 1.0}
    return RunRecord(config=config, run=config.name, study=study.name, part=part, name=name, result=result)


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        ({}, True),
        ({"data": "CIFAR100"}, True),
        ({"data": "/mnt/cifar100.npz", "root": "/mnt", "workers": 0}, True),
        ({"data": "cifar10"}, False),
        ({"data": "digits"}, False),
        ({"data": "cifar100/images"}, False),
        ({"start": "runs/mixed-seed0-0123456789"}, False),
        ({"batch": 7}, False),
        ({"encoding": "axial"}, False),
        ({"options": {"scale": 2.0}}, False),
        ({"score": None}, False),
    ],
)
def test_only_records_of_the_data_and_settings_of_a_part_count_as_made(tmp_path, settings, counts):
    record = record_part("screening", "mixed", **settings)
    request = request_part(tmp_path, "screening", [record])
    assert [each.name for each in load_part_records(request)] == ["mixed"] * counts
    assert ("mixed" not in request.list_missing(0)) is counts
    assert "mixed" in request.list_missing(1)
    assert any(line.split()[:1] == ["mixed"] for line in format_part_table(request)) is counts


def test_records_of_encodings_that_a_study_does_not_name_do_not_count(tmp_path):
    record = replace(record_part("screening", "mixed"), name="blended")
    assert load_part_records(request_part(tmp_path, "screening", [record])) == []


@pytest.mark.parametrize(
    ("settings", "counts"), [({}, True), ({"data": "/mnt/imagenette160"}, True), ({"epochs": 7}, False)]
)
def test_only_runs_that_begin_with_those_of_the_other_part_count_as_made(tmp_path, settings, counts):
    study = ALL_STUDIES["pedestrians"]
    origin = replace(study.origin_config("masks", "mixed", 0), **settings)
    record = record_part("masks", "mixed", study, start=f"elsewhere/{origin.name}")
    record = replace(record, origins=(origin,), result={"test_mask_ap": 0.5})
    request = request_part(tmp_path, "masks", [record], study)
    assert ("mixed" not in request.list_missing(0)) is counts
    assert load_part_records(request_part(tmp_path, "masks", [replace(record, origins=())], study)) == []


@pytest.mark.parametrize("encoding", ["mixed", "mypackage.own:Class", "mypackage.own:Class[int]"])
def test_the_run_to_begin_with_is_found_by_its_settings(tmp_path, going_on, monkeypatch, encoding):
    """Whatever characters its encoding has, and beside directories that cannot be read."""
    study, wanted = ALL_STUDIES["going-on"], Config(encoding=encoding)
    monkeypatch.setattr(Study, "origin_config", lambda *words: wanted)
    torn = tmp_path / f"{wanted.name.rpartition('-')[0]}-0000000000"
    torn.mkdir()
    for name in ("config.json", "result.json"):
        (torn / name).write_text("{")
    request = PartRequest(study, "second", ("none",), (1,), {}, study.config("second"), tmp_path / "second.jsonl")
    for settings in ({"batch": 7}, {"data": "elsewhere/digits.npz"}):
        with pytest.raises(CommandError, match="has no finished run of none, seed 0"):
            _find_origin(request, "none", 1, tmp_path)
        run = RunFolder(tmp_path, replace(wanted, **settings))
        run.acquire({})
        run.release()
        run.finish(test_accuracy=0.5)
    assert _find_origin(request, "none", 1, tmp_path) == run.path


UNFINISHED = {("equivariance", "perturbed"), ("equivariance", "half"), ("equivariance", "fifth")}
UNFINISHED |= {("degree", part) for part in ALL_STUDIES["degree"].parts if part != "e1"}
FOLDERS = {"equivariance-imagenette": "equivariance"}


@pytest.mark.parametrize("study", ALL_STUDIES.values(), ids=ALL_STUDIES)
def test_recorded_results_count_as_made(study):
    """A study is resumed from results/: each record there has the settings of its part, and a score."""
    folder = RESULTS / FOLDERS.get(study.name, study.name)
    records = [record for path in folder.glob("*.jsonl") for record in load_records(path) if record.study == study.name]
    for part in study.parts:
        own = [record for record in records if record.part == part]
        assert bool(own) == ((study.name, part) not in UNFINISHED)
        path = folder / f"{part}.jsonl"
        request = PartRequest(study, part, study.parts[part].encodings, (), {}, study.config(part), path)
        seeds = {*range(6), *study.parts[part].seeds}
        missing = {(name, seed) for seed in seeds for name in request.list_missing(seed)}
        assert len(own) == len({(record.name, record.config.seed) for record in own})
        assert missing == {(name, seed) for name in request.names for seed in seeds} - {
            (record.name, record.config.seed) for record in own
        }
        for record in own:
            spec = parse_encoding(study.encodings[record.name])
            assert (record.config.encoding, record.config.options) == (spec.encoding, spec.options)


def test_pedestrians_are_found_by_the_vits_that_learned_classes():
    study = ALL_STUDIES["pedestrians"]
    classes, masks = (study.config(part) for part in ("backbones", "masks"))
    assert (classes.task, masks.task) == (None, "masks")
    assert all(
        getattr(classes, name) == getattr(masks, name) for name in ("patch", "width", "depth", "heads", "pool", "span")
    )
    assert len(study.parts["masks"].seeds) == len(study.parts["backbones"].seeds) == 3
    assert classes == ALL_STUDIES["equivariance-imagenette"].config("imagenette")


def test_photographs_are_trained_as_small_images_are():
    """The rate goes by the root of the batch, and images move by the same share of their side."""
    small, large = (ALL_STUDIES[name].base for name in ("equivariance", "equivariance-imagenette"))
    assert large.learning_rate == pytest.approx(small.learning_rate * (large.batch / small.batch) ** 0.5)
    assert large.strength["pad"] / large.size[0] == 4 / 32


@pytest.mark.parametrize(("part", "times"), [("half", 2), ("fifth", 5)])
def test_less_data_is_seen_as_often_again(part, times):
    whole, fewer = (ALL_STUDIES["equivariance"].config(name) for name in ("main", part))
    assert fewer.fraction == pytest.approx(1 / times)
    assert (fewer.epochs, fewer.warmup, fewer.every) == (times * whole.epochs, times * whole.warmup, times * whole.every)


def test_spans_of_their_own_are_of_what_has_a_span():
    study = ALL_STUDIES["equivariance"]
    assert {*study.parts["own"].encodings} == {*study.parts["main"].encodings, "uniform-code"} - {"none", "learned-ape"}

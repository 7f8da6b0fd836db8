"""Results of earlier versions become records without losing a number; what is not such a line is refused."""

import importlib.util
import json
from pathlib import Path

import pytest

from ropewalk.lab.record import RunRecord
from ropewalk.lab.record_lines import load_records, write_records
from ropewalk.lab.studies import ALL_STUDIES

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ("encoding", "options", "seed", "epochs", "data", "root", "workers", "checkpoint", "start")
"""Settings that earlier lines had elsewhere or not at all."""


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("migrate_results", ROOT / "benchmarks" / "migrate_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_line(study="equivariance", part="main", name="liere-8", seed=1, *, changes=None):
    """A line as earlier versions wrote it. Changed fields that are None are left out."""
    config = ALL_STUDIES[study].run_config(part, name, seed)
    settings = {key: value for key, value in config.document().items() if key not in SETTINGS and value is not None}
    count = len(config.validation_epochs) + 1
    line = {
        "study": study,
        "part": part,
        "name": name,
        "encoding": {"name": config.encoding, "head_dim": 48, "scale": 1 / 3, **config.document()["options"]},
        "seed": seed,
        "data": Path(config.data).name,
        "epochs": config.epochs,
        "test_accuracy": 2 / 3,
        "validation_loss": 1.5,
        "step": 43 * config.epochs,
        "seconds": 305.08,
        "parameters": 5_367_460,
        "encoding_parameters": 768,
        "curve": [i / 1000 for i in range(count)],
        "probes": {"offset": [{"rho": 0.0, "accuracy": 2 / 3}], "cost": [{"milliseconds": 1.25}]},
        "device": "NVIDIA H200",
        "torch": "2.11.0+cu130",
        "settings": settings,
    }
    return {key: value for key, value in (line | (changes or {})).items() if value is not None}


def make_detector():
    line = make_line("pedestrians", "masks", "axial")
    scores = {"test_accuracy": None, "test_mask_ap": 0.35, "test_box_ap": 0.4, "box_curve": [i / 100 for i in range(20)]}
    return {key: value for key, value in (line | scores).items() if value is not None}


def migrate(benchmark, tmp_path, *lines):
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    benchmark.migrate_file(path)
    return load_records(path)


def collect_numbers(value):
    if isinstance(value, dict):
        return [number for each in value.values() for number in collect_numbers(each)]
    if isinstance(value, list):
        return [number for each in value for number in collect_numbers(each)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_a_line_is_a_record(benchmark, tmp_path):
    line = make_line()
    (record,) = migrate(benchmark, tmp_path, line)
    study = ALL_STUDIES["equivariance"]
    assert record.config == study.run_config("main", "liere-8", 1)
    assert (record.study, record.part, record.name) == ("equivariance", "main", "liere-8")
    assert record.encoding == line["encoding"]
    assert record.result == {
        "test_accuracy": 2 / 3,
        "validation_loss": 1.5,
        "step": 4300,
        "seconds": 305.08,
        "parameters": 5_367_460,
        "encoding_parameters": 768,
    }
    assert record.metrics[:2] == [
        {"step": 43, "epoch": 1, "validation_accuracy": 0.0},
        {"step": 86, "epoch": 2, "validation_accuracy": 0.001},
    ]
    assert record.metrics[-1] == {"step": 4300, "epoch": 100, "validation_accuracy": 0.099}
    assert record.probes == line["probes"]
    assert (record.machine, record.versions) == ({"device": "NVIDIA H200"}, {"torch": "2.11.0+cu130"})
    assert record.data == {"name": "cifar100"}


def test_what_was_never_recorded_is_null(benchmark, tmp_path):
    (record,) = migrate(benchmark, tmp_path, make_line(changes={"data": None}))
    names = ("run", "commit", "attention_kernel", "processes", "neighbors", "data", "created", "test_correct", "index_seed")
    assert [getattr(record, name) for name in names] == [None] * len(names)
    document = json.loads((tmp_path / "lines.jsonl").read_text())
    assert [document["config"][name] for name in ("root", "workers", "checkpoint")] == [None] * 3


@pytest.mark.parametrize("make", [make_line, make_detector])
def test_every_number_of_a_line_is_in_its_record(benchmark, tmp_path, make):
    line = make()
    migrate(benchmark, tmp_path, line)
    kept = collect_numbers(json.loads((tmp_path / "lines.jsonl").read_text()))
    for number in collect_numbers(line):
        assert number in kept
        kept.remove(number)


def test_a_file_that_would_lose_a_number_is_left_as_it_is(benchmark, tmp_path, monkeypatch):
    own = benchmark.convert_line

    def forget(line):
        record = own(line)
        record.result.pop("seconds")
        return record

    monkeypatch.setattr(benchmark, "convert_line", forget)
    path = tmp_path / "lines.jsonl"
    path.write_text(json.dumps(make_line()))
    with pytest.raises(KeyError, match="seconds"):
        benchmark.migrate_file(path)
    assert json.loads(path.read_text()) == make_line()


def test_detectors_are_initialized_from_their_classifiers(benchmark, tmp_path):
    (record,) = migrate(benchmark, tmp_path, make_detector())
    (origin,) = record.origins
    assert origin == ALL_STUDIES["pedestrians"].run_config("backbones", "axial", 1)
    assert record.config.start == f"runs/{origin.name}"
    assert [row["step"] for row in record.metrics] == [43 * epoch for epoch in range(3, 61, 3)]
    assert record.list_metric("validation_box_ap") == [i / 100 for i in range(20)]
    assert record.score == 0.35


@pytest.mark.parametrize(
    ("part", "expected"), [("main", "equivariance"), ("imagenette", "equivariance-imagenette"), ("half", "equivariance")]
)
def test_lines_without_a_study_belong_to_the_one_with_the_nearest_settings(benchmark, tmp_path, part, expected):
    """Two studies have a part that is named half."""
    line = make_line(expected, part, "axial", changes={"study": None})
    (record,) = migrate(benchmark, tmp_path, line)
    assert record.study == expected
    line = make_line("volumes", "half", "axial", changes={"study": None})
    assert migrate(benchmark, tmp_path, line)[0].study == "volumes"


def test_lines_of_other_parts_keep_their_part(benchmark, tmp_path):
    line = make_line(changes={"study": None, "part": "cudnn"})
    (record,) = migrate(benchmark, tmp_path, line)
    assert (record.study, record.part) == ("equivariance", "cudnn")
    assert record.config == ALL_STUDIES["equivariance"].run_config("main", "liere-8", 1)


@pytest.mark.parametrize(("data", "path"), [("scans.npz", "scans.npz"), ("imagenette160", "data/imagenette160")])
def test_data_are_those_that_a_line_names(benchmark, tmp_path, data, path):
    (record,) = migrate(
        benchmark, tmp_path, make_line("equivariance-imagenette", "imagenette", "axial", changes={"data": data})
    )
    assert (record.config.data, record.data) == (path, {"name": data})


def test_settings_are_those_of_the_line(benchmark, tmp_path):
    line = make_line()
    line["settings"] |= {"span": None, "batch": 64, "keys": None, "start": None}
    line |= {"epochs": 10, "curve": [0.5] * 5}
    line["settings"]["every"] = 2
    (record,) = migrate(benchmark, tmp_path, line)
    assert (record.config.span, record.config.batch, record.config.epochs, record.config.every) == (None, 64, 10, 2)


def test_records_are_kept_and_not_converted_twice(benchmark, tmp_path):
    (record,) = migrate(benchmark, tmp_path, make_line())
    path = tmp_path / "lines.jsonl"
    before = path.read_bytes()
    assert benchmark.migrate_file(path) == 0
    assert path.read_bytes() == before
    path.write_text(before.decode() + json.dumps(make_line(seed=2)))
    assert benchmark.migrate_file(path) == 1
    both = load_records(path)
    assert (both[0], [each.config.seed for each in both]) == (record, [1, 2])


def test_results_are_converted(benchmark):
    """Each record of the results can be written as an earlier line, and that line is converted to the same record."""
    checked = 0
    for path in sorted((ROOT / "results").glob("*/*.jsonl")):
        for record in load_records(path):
            if record.run is None:
                line = benchmark.recover_line(record)
                line["settings"] = {key: value for key, value in line["settings"].items() if key not in SETTINGS}
                dropped = ("box_curve",) if record.config.task != "masks" else ()
                line = {key: value for key, value in line.items() if key not in dropped and value is not None}
                assert benchmark.convert_line(line) == record
                checked += 1
    assert checked == 184


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"study": "equivarience"}, ["Unknown study", "Did you mean 'equivariance'"]),
        ({"name": "sphericle"}, ["no study", "'sphericle'"]),
        ({"curve": None}, ["missing", "curve"]),
        ({"curve": [0.1]}, ["curve", "100 validations", "got 1"]),
        ({"curve": ["high"] * 100}, ["numbers"]),
        ({"box_curve": [0.1]}, ["box_curve"]),
        ({"test_accuracy": None}, ["missing", "test_accuracy"]),
        ({"test_accuracy": "high"}, ["result", "numbers"]),
        ({"encoding": {"name": "axial"}}, ["encoding", "liere-8"]),
        ({"encoding": {"name": "liere", "block": 48}}, ["encoding", "liere-8"]),
        ({"name": "liere-3"}, ["encoding", "liere-3"]),
        ({"settings": {}}, ["validation", "none"]),
        ({"epochs": 0}, ["epochs", "1 or more"]),
        ({"colour": "red"}, ["unknown", "colour"]),
        ({"device": 5, "torch": None}, ["missing", "torch"]),
    ],
)
def test_what_is_not_an_earlier_line_is_refused(benchmark, tmp_path, changes, words):
    path = tmp_path / "lines.jsonl"
    path.write_text(json.dumps(make_line(seed=0)) + "\n" + json.dumps(make_line(changes=changes)) + "\n")
    before = path.read_bytes()
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        benchmark.migrate_file(path)
    for word in ["line 2 of", *words]:
        assert word in str(raised.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "word"), [({"colour": "red"}, "colour"), ({"seed": 5}, "seed"), ({"patch": None}, "patch must be")]
)
def test_settings_that_no_line_has_are_refused(benchmark, tmp_path, settings, word):
    line = make_line()
    line["settings"] |= settings
    with pytest.raises(ValueError, match=word):
        migrate(benchmark, tmp_path, line)


@pytest.mark.parametrize("text", ["{", "[1]", '{"format": "ropewalk record 99"}', "\n"])
def test_what_is_not_a_file_of_lines_is_refused(benchmark, tmp_path, text):
    path = tmp_path / "lines.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match="line 1 of"):
        benchmark.migrate_file(path)


def test_runs_that_are_there_twice_are_refused(benchmark, tmp_path):
    with pytest.raises(ValueError, match="2 lines of 1 run"):
        migrate(benchmark, tmp_path, make_line(), make_line())


def test_records_that_are_written_can_be_read(benchmark, tmp_path):
    record = benchmark.convert_line(make_line())
    assert isinstance(record, RunRecord)
    assert load_records(write_records(tmp_path / "a.jsonl", [record], digits=17)) == [record]

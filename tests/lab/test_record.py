"""Records of runs: what a run directory and a JSON line hold, and which lines are refused."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ropewalk.lab.config import Config
from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.record import MAX_ORIGINS, RunRecord, pack_bits, unpack_bits
from ropewalk.lab.record_lines import load_records, write_records
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import write_json

CONFIG = Config(encoding="axial", options={"learned": True}, span=6.0, epochs=2, clip=None, augment=("flip",), size=(8, 8))
RESULTS = Path(__file__).parents[2] / "results"
BITS = [True, False, True, True, False, False, False, True, True]


def full():
    """A record all of whose fields are set, but for those that are not part of a JSON line."""
    first = Config(encoding="axial", data="else\u2028where", epochs=1)
    config = replace(CONFIG, start=f"runs/{first.name}")
    return RunRecord(
        config=config,
        run=config.name,
        origins=(first,),
        encoding={"name": "axial", "scale": 2 / 3},
        study="equivariance",
        part="main",
        name="learned-axial",
        result={"test_accuracy": 0.5, "step": 20},
        metrics=[{"step": 10, "epoch": 1, "loss": 2.0}, {"step": 20, "epoch": 2, "loss": 1.0, "validation_accuracy": 0.5}],
        probes={"offset": [{"rho": 0.0, "accuracy": 0.5}], "cost": []},
        commit="ec166b6",
        versions={"torch": "2.11.0"},
        machine={"device": "CPU", "cores": 2},
        attention_kernel="math",
        processes=1,
        neighbors=0,
        data={"name": "digits", "sha256": "ab" * 32, "counts": {"train": 80, "validation": 9, "test": len(BITS)}},
        created="2026-11-19T04:00:00+00:00",
        test_correct=pack_bits(BITS),
        index_seed=0,
        failure="ValueError: line\u2028separator, \ud800, “quotes”",
    )


def make_folder(tmp_path, config=CONFIG):
    run = RunFolder(tmp_path, config)
    run.path.mkdir(parents=True)
    write_json(run.path / "config.json", config.document())
    return run


def test_records_of_a_file_are_those_that_were_written(tmp_path):
    path = write_records(tmp_path / "more" / "main.jsonl", [full(), RunRecord(config=CONFIG, run=CONFIG.name)])
    assert load_records(path) == [full(), RunRecord(config=CONFIG, run=CONFIG.name)]
    assert [json.loads(line)["format"] for line in path.read_text().split("\n")[:-1]] == ["ropewalk record 1"] * 2
    (tmp_path / "empty.jsonl").touch()
    assert load_records(tmp_path / "empty.jsonl") == []


def test_results_are_rounded_in_files_and_settings_are_not(tmp_path):
    third = 1 / 3
    config = replace(CONFIG, learning_rate=third)
    record = RunRecord(
        config=config,
        run=config.name,
        encoding={"name": "axial", "scale": third},
        result={"test_accuracy": third},
        metrics=[{"step": 1, "loss": third}],
        probes={"offset": [{"rho": third}]},
    )
    (found,) = load_records(write_records(tmp_path / "main.jsonl", [record]))
    assert (found.config, found.encoding) == (config, record.encoding)
    assert (found.result, found.metrics, found.probes) == (
        {"test_accuracy": 0.33333},
        [{"step": 1, "loss": 0.33333}],
        {"offset": [{"rho": 0.33333}]},
    )
    assert load_records(write_records(tmp_path / "full.jsonl", [record], digits=17)) == [record]


def test_records_of_the_same_run_are_replaced_and_others_kept(tmp_path):
    def make(seed, accuracy, part="main"):
        config = replace(CONFIG, seed=seed)
        return RunRecord(config=config, run=config.name, part=part, result={"test_accuracy": accuracy})

    path = write_records(tmp_path / "main.jsonl", [make(0, 0.1), make(1, 0.2)])
    write_records(path, [make(2, 0.3), make(0, 0.4), make(1, 0.5, part="again")])
    assert [(each.part, each.config.seed, each.result["test_accuracy"]) for each in load_records(path)] == [
        ("main", 0, 0.4),
        ("main", 1, 0.2),
        ("main", 2, 0.3),
        ("again", 1, 0.5),
    ]


def test_lines_that_are_in_a_file_keep_their_bytes(tmp_path):
    """Digits, order and fields of another version, also of a record that is written again as it is."""
    third = RunRecord(config=CONFIG, run=CONFIG.name, result={"test_accuracy": 1 / 3})
    path = write_records(tmp_path / "main.jsonl", [third], digits=17)
    document = json.loads(path.read_text())
    path.write_text(json.dumps({"colour": "red", **dict(reversed(document.items()))}, indent=None) + "\r\n")
    before = path.read_bytes()
    other = replace(CONFIG, seed=1)
    write_records(path, [RunRecord(config=other, run=other.name, result={"test_accuracy": 2 / 3}), third])
    assert path.read_bytes().startswith(before)
    assert [each.result["test_accuracy"] for each in load_records(path)] == [1 / 3, 0.66667]
    write_records(path, [replace(third, result={"test_accuracy": 0.25})])
    assert [each.result["test_accuracy"] for each in load_records(path)] == [0.25, 0.66667]


def test_recorded_results_are_written_as_they_are(tmp_path):
    for path in sorted(RESULTS.glob("*/*.jsonl")):
        copy = tmp_path / path.name
        copy.write_bytes(path.read_bytes())
        write_records(copy, load_records(path)[:1])
        assert copy.read_bytes() == path.read_bytes()


def test_what_was_never_recorded_is_null(tmp_path):
    nulls = ("root", "workers", "checkpoint")
    record = RunRecord(config=CONFIG, run=None, origins=(Config(encoding="mixed"),), unrecorded=nulls)
    path = write_records(tmp_path / "main.jsonl", [record])
    assert load_records(write_records(path, load_records(path))) == [record]
    document = json.loads(path.read_text())
    assert [document[name] for name in ("run", "commit", "versions", "created", "test_correct")] == [None] * 5
    for config in (document["config"], *document["origins"]):
        assert [name for name in nulls if config[name] is not None] == []
    path.write_text(json.dumps(document | {"config": document["config"] | {"data": None}}))
    with pytest.raises(DamagedFileError, match="data must be a string, got none"):
        load_records(path)


def test_metrics_and_score_are_those_of_the_task():
    record = full()
    assert record.score == 0.5
    assert (record.list_metric("loss"), record.list_metric("validation_accuracy")) == ([2.0, 1.0], [0.5])
    assert replace(record, config=replace(CONFIG, task="detect")).score is None


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    code = (
        "import sys; from pathlib import Path; from ropewalk.lab.config import Config\n"
        "from ropewalk.lab.record import RunRecord\n"
        "from ropewalk.lab.record_lines import write_records\n"
        "path, name, other = Path(sys.argv[1]), *sys.argv[2:]\n"
        "configs = [Config(encoding=name, seed=seed) for seed in range(20)]\n"
        "(path.parent / name).touch()\n"
        "while not (path.parent / other).exists(): pass\n"
        "for config in configs: write_records(path, [RunRecord(config=config, run=config.name)])"
    )
    path = tmp_path / "main.jsonl"
    names = ("axial", "mixed")
    both = [subprocess.Popen([sys.executable, "-c", code, str(path), *some]) for some in (names, names[::-1])]
    assert [each.wait() for each in both] == [0, 0]
    assert len(load_records(path)) == 40


def test_bits_are_one_for_each_image():
    assert pack_bits(BITS) == "sYA="  # 10110001 1, big-endian
    assert unpack_bits(pack_bits(BITS), len(BITS)) == BITS
    with pytest.raises(ValueError, match="17 bits, got 2 bytes"):
        unpack_bits(pack_bits(BITS), 17)


def test_a_run_directory_is_loaded(tmp_path):
    wanted = full()
    run = make_folder(tmp_path, wanted.config)
    make_folder(tmp_path, wanted.origins[0])  # beside the run, and not where its settings say
    for each in wanted.metrics:
        run.log(**each)
    provenance = ("encoding", "commit", "versions", "machine", "attention_kernel", "processes", "neighbors", "data")
    write_json(
        run.path / "environment.json", {name: getattr(wanted, name) for name in (*provenance, "created", "index_seed")}
    )
    write_json(run.path / "probes.json", wanted.probes)
    run.finish(**wanted.result, test_correct=wanted.test_correct)
    unplaced = replace(wanted, study=None, part=None, name=None, failure=None)
    assert load_run(run.path) == replace(unplaced, location=str(run.path))
    (found,) = load_records(write_records(tmp_path / "main.jsonl", [load_run(str(run.path))]))
    assert found == unplaced


def test_what_a_directory_does_not_have_is_none(tmp_path):
    run = make_folder(tmp_path)
    assert load_run(run.path) == RunRecord(config=CONFIG, run=CONFIG.name, location=str(run.path))
    (run.path / "failed.txt").write_text("ValueError: no images\n")
    assert load_run(run.path).failure == "ValueError: no images"
    run.finish(test_accuracy=float("nan"), test_loss=float("inf"), step=3)
    (run.path / "probes.json").write_text('{"cost": [{"seconds": NaN, "size": [1, Infinity]}, 3], "offset": 5}')
    found = load_run(run.path)
    assert (found.failure, found.result) == (None, {"step": 3})
    assert found.probes == {"cost": [{"seconds": None, "size": [1, None]}]}
    with pytest.raises(ValueError, match=r"not a run directory: it has no config\.json"):
        load_run(tmp_path)


@pytest.mark.parametrize("name", ["environment.json", "metrics.jsonl", "probes.json", "result.json"])
def test_what_is_no_file_is_a_problem_and_the_rest_is_loaded(tmp_path, name):
    """Neither can a file be read that one has no right to, which tests of an administrator cannot show."""
    run = make_folder(tmp_path)
    run.log(step=1, loss=2.0)
    run.write_document("environment.json", {"commit": "ec166b6"})
    run.write_document("probes.json", {"cost": []})
    run.finish(test_accuracy=0.5)
    (run.path / name).unlink()
    (run.path / name).mkdir()
    found = load_run(run.path)
    (problem,) = found.problems
    assert name in problem
    assert found.config == CONFIG
    if name != "result.json":
        assert found.result == {"test_accuracy": 0.5}


def test_runs_that_are_initialized_from_each_other_are_followed_so_far(tmp_path, monkeypatch):
    """Of two names that are swapped: no run begins with itself, but a directory may have been replaced."""
    opened, at = [], RunFolder.at

    def count(place):
        opened.append(place)
        assert len(opened) < 3 * MAX_ORIGINS, "it goes on for ever"
        return at(place)

    monkeypatch.setattr(RunFolder, "at", count)
    one, two = (replace(CONFIG, start=str(tmp_path / name)) for name in ("two", "one"))
    for name, config in (("one", one), ("two", two)):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "config.json", config.document())
    assert load_run(tmp_path / "one").origins == (two, one) * (MAX_ORIGINS // 2)


@pytest.mark.parametrize("name", ["environment.json", "metrics.jsonl", "probes.json", "result.json"])
def test_a_file_that_cannot_be_read_is_a_problem_and_the_rest_is_loaded(tmp_path, name):
    run = make_folder(tmp_path)
    run.log(step=1, loss=2.0)
    for other in ("environment.json", "probes.json", "result.json"):
        write_json(run.path / other, {})
    (run.path / name).write_text("{]\n")
    found = load_run(run.path)
    (problem,) = found.problems
    assert name in problem
    assert str(tmp_path) not in problem
    assert found.config == CONFIG


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "ropewalk record 2"}, "format must be 'ropewalk record 1', got 'ropewalk record 2'"),
        ({"config": 5}, "it must have config, an object, got 5"),
        ({"config": {"encoding": "sphericle"}}, "sphericle"),
        ({"config": CONFIG.document() | {"colour": "red"}}, "Unknown setting 'colour'"),
        ({"config": CONFIG.document() | {"seed": "0"}}, "seed must be a whole number, got '0'"),
        ({"config": CONFIG.document() | {"epochs": 3}}, "run must be the name of its config, 'axial-seed0-"),
        ({"origins": [CONFIG.document()] * 17}, "it must have origins, a list of at most 16 objects"),
        ({"origins": [{"colour": "red"}]}, "Unknown setting 'colour'"),
        ({"encoding": {"name": "mixed"}}, "encoding must have the name 'axial', got 'mixed'"),
        ({"encoding": []}, "it must have encoding, an object or null, got []"),
        ({"study": 5}, "it must have study, a name or null, got 5"),
        ({"part": ""}, "it must have part, a name or null, got ''"),
        ({"result": {"test_accuracy": "high"}}, "it must have result, an object of finite numbers or null"),
        ({"result": {"test_accuracy": True}}, "it must have result, an object of finite numbers or null"),
        ({"result": {"test_accuracy": 10**400}}, "it must have result, an object of finite numbers or null"),
        ({"result": {"test_accuracy": float("nan")}}, "numbers must be finite, got NaN"),
        ({"metrics": [{"step": 1}]}, "it must have metrics, an object of lists of finite numbers, got [{"),
        ({"metrics": {"step": [1, "2"]}}, "it must have metrics, an object of lists of finite numbers"),
        ({"metrics": {"step": [1, 2], "loss": [1.0]}}, "columns of metrics must have equal lengths, got {'step': 2"),
        ({"probes": {"cost": [5]}}, "it must have probes, an object of lists of objects"),
        ({"probes": {"cost": [{"seconds": float("inf")}]}}, "numbers must be finite, got Infinity"),
        ({"neighbors": -1}, "it must have neighbors, a whole number from 0 to 1000000000000 or null, got -1"),
        ({"processes": True}, "it must have processes, a whole number from 0"),
        ({"machine": "GPU"}, "it must have machine, an object or null, got 'GPU'"),
        ({"data": {"counts": {"test": -1}}}, "it must have data, an object with name, sha256 and counts of samples or null"),
        ({"test_correct": "!"}, "it must have test_correct, base64 or null, got '!'"),
        ({"test_correct": "AAAA"}, "test_correct must hold 9 bits, got 3 bytes"),
    ],
)  # fmt: skip
def test_a_line_that_is_damaged_is_refused(tmp_path, changes, message):
    path = tmp_path / "main.jsonl"
    document = full().to_dict()
    path.write_text(f"{json.dumps(document)}\n{json.dumps(document | changes)}\n")
    with pytest.raises(DamagedFileError) as error:
        load_records(path)
    assert str(error.value).startswith(f"line 2 of {path} is not a valid record: ")
    assert message in str(error.value)


def test_fields_of_a_later_version_are_ignored_and_those_it_has_not_are_none(tmp_path):
    path, document = tmp_path / "main.jsonl", full().to_dict()
    nullable = {*document} - set(NEEDED_FIELDS)
    path.write_text(json.dumps({name: document[name] for name in NEEDED_FIELDS} | {"colour": {"of": ["red"]}}))
    (found,) = load_records(path)
    assert {name: getattr(found, name) for name in nullable} == dict.fromkeys(nullable)
    assert (found.config, found.origins, found.metrics) == (full().config, full().origins, full().metrics)


NEEDED_FIELDS = ("format", "config", "origins", "metrics", "probes")


@pytest.mark.parametrize("name", NEEDED_FIELDS)
def test_a_line_without_a_field_is_refused(tmp_path, name):
    path = tmp_path / "main.jsonl"
    path.write_text(json.dumps({key: value for key, value in full().to_dict().items() if key != name}))
    with pytest.raises(DamagedFileError, match=rf"line 1 of .*main\.jsonl is not a valid record: .*\b{name}\b"):
        load_records(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "line 1 of main.jsonl must be JSON"),
        (b"\n\n", "line 1 of main.jsonl must be JSON"),
        (5000 * b"9", "line 1 of main.jsonl is not a valid record"),
        (100_000 * b"[", "line 1 of main.jsonl is not a valid record"),
        (b"[1]", "line 1 of main.jsonl is not a valid record: it must be an object, got list"),
        (b"\xff\xfe{}", "main.jsonl must be text in UTF-8"),
        (b'{"part": "main", "settings": {}, "curve": []}', "convert the file with benchmarks/migrate_results.py"),
    ],
)
def test_what_is_no_file_of_records_is_refused(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.jsonl").write_bytes(content)
    with pytest.raises(DamagedFileError) as error:
        load_records("main.jsonl")
    assert message in str(error.value)


def test_lines_that_are_too_long_and_files_that_are_missing_are_refused(tmp_path, monkeypatch):
    path = write_records(tmp_path / "main.jsonl", [full()])
    monkeypatch.setattr("ropewalk.lab.record_lines.MAX_LINE_BYTES", 100)
    with pytest.raises(DamagedFileError, match=r"it must have at most 100 characters, got [0-9,]+"):
        load_records(path)
    with pytest.raises(DamagedFileError, match=r"other\.jsonl cannot be read: No such file"):
        load_records(tmp_path / "other.jsonl")

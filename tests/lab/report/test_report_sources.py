"""Reports from JSON lines: their numbers are those of the run directories; what lines do not hold is named."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ropewalk.cli import main
from ropewalk.lab.config import Config
from ropewalk.lab.errors import CommandError
from ropewalk.lab.record_lines import load_records, write_records
from ropewalk.lab.record_search import find_records, find_run_folders
from ropewalk.lab.report import write_report
from ropewalk.lab.report.groups import group_records
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import write_json

BASE = Config(data="digits", patch=2, width=24, depth=2, heads=2, ratio=2.0, epochs=3, batch=64, workers=0, augment=())


def make_run(runs, config, *, accuracy=0.5, environment=None):
    run = RunFolder(runs, config)
    run.acquire({"machine": {"device": "CPU"}, "versions": {"torch": "9.9"}, **(environment or {})})
    run.release()
    for epoch in range(1, config.epochs + 1):
        run.log(step=5 * epoch, epoch=epoch, loss=2.0 / epoch, validation_accuracy=0.1 * epoch + config.seed / 70)
    run.finish(test_accuracy=accuracy, seconds=1.5, parameters=38_000, encoding_parameters=96)
    probes = {
        "offset": [{"rho": rho, "accuracy": accuracy - 0.01 * rho} for rho in (0, 0.5, 8)],
        "cost": [{"images_per_second": 8000.0, "without_encoding": 10000.0, "peak_bytes": 2**20}],
    }
    write_json(run.path / "probes.json", probes)
    return run


@pytest.fixture
def runs(tmp_path):
    """Runs of two encodings and seeds, each initialised from a run of its own encoding and seed."""
    found = []
    for encoding in ("none", "mixed"):
        for seed in (0, 1):
            own = replace(BASE, encoding=encoding, seed=seed)
            first = make_run(tmp_path / "runs", replace(own, epochs=2))
            begun = replace(own, start=str(first.path))
            found.append(make_run(tmp_path / "runs", begun, accuracy=0.5 + (encoding == "mixed") / 7 + seed / 90))
    return found


@pytest.fixture
def lines(runs, tmp_path):
    """The same as a file of JSON lines, with all digits."""
    return write_records(tmp_path / "main.jsonl", [load_run(run.path) for run in runs], digits=17)


def read_rows(folder):
    return list(csv.DictReader((folder / "report.csv").read_text().splitlines()))


TIMES = ("seconds", "images_per_second", "inference_ratio", "peak_bytes")


def test_a_report_of_lines_has_the_numbers_of_the_directories(runs, lines, tmp_path):
    assert main(["report", str(lines), "--question", "Which?", "--out", str(tmp_path / "one")]) == 0
    write_report(runs, tmp_path / "own", question="Which?")
    told, own = read_rows(tmp_path / "one"), read_rows(tmp_path / "own")
    assert [row["label"] for row in told] == ["none", "mixed"]
    for one, other in zip(told, own, strict=True):
        assert one == other | dict.fromkeys(TIMES, "")
        assert all(other[name] for name in TIMES)
    page = (tmp_path / "one" / "report.html").read_text()
    assert "runs of the same encoding, 2 epochs of digits" in page
    assert "JSON lines" in page
    assert "JSON lines" not in (tmp_path / "own" / "report.html").read_text()
    assert (tmp_path / "one" / "figures" / "offset.png").is_file()


def test_lines_and_their_records_give_the_same_page(runs, lines, tmp_path):
    bare = [replace(load_run(run.path), location=None) for run in runs]
    first = write_report(bare, tmp_path / "a")
    second = write_report(load_records(lines)[::-1], tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()


def test_times_are_kept_where_the_load_of_the_machine_is_known(tmp_path):
    run = make_run(tmp_path / "runs", BASE, environment={"neighbors": 0})
    path = write_records(tmp_path / "main.jsonl", [load_run(run.path)])
    write_report(load_records(path), tmp_path / "out")
    (row,) = read_rows(tmp_path / "out")
    assert (float(row["seconds"]), float(row["images_per_second"])) == (1.5, 8000.0)


def test_the_directory_of_a_run_is_preferred_to_its_line(runs, lines):
    folders, read = [load_run(run.path) for run in runs], load_records(lines)
    for records in (folders + read, read + folders):
        (group,) = group_records(records)
        assert (len(group.runs), group.twice) == (4, 4)
        assert all(record.location for record in group.runs)


def test_a_line_is_preferred_to_a_directory_that_is_not_finished(runs, lines):
    (runs[0].path / "result.json").unlink()
    (group,) = group_records([load_run(runs[0].path), load_records(lines)[0]])
    assert [record.location for record in group.runs] == [None]
    assert group.twice == 1


def test_origins_are_compared_by_their_settings(runs, lines):
    """One run whose origin was trained otherwise is in a group of its own; folders are not looked at."""
    first, *others = load_records(lines)
    other = replace(first, origins=(replace(first.origins[0], learning_rate=0.5),))
    one, two = group_records([other, *others])
    assert [len(one.runs), len(two.runs)] == [3, 1]


def test_origins_of_origins_are_compared(lines):
    """Chains of two, which differ in a setting of the last: in one seed of each encoding, so that no run has a double."""
    records = load_records(lines)
    first = replace(BASE, start="runs/last")
    chains = {seed: (first, replace(BASE, epochs=9, learning_rate=rate)) for seed, rate in enumerate((0.1, 0.2))}
    found = [replace(record, origins=chains[record.config.seed]) for record in records]
    assert [{record.config.seed for record in group.runs} for group in group_records(found)] in ([{0}, {1}], [{1}, {0}])
    alike = [replace(record, origins=chains[0]) for record in records]
    assert len(group_records(alike)) == 1


def test_all_kinds_of_paths_are_found(runs, lines, tmp_path):
    names = {record.config.name for record in find_records([lines])}
    assert names == {run.config.name for run in runs}
    assert {record.config.name for record in find_records([tmp_path / "runs"])} > names
    assert [record.location for record in find_records([runs[0].path, lines])] == [str(runs[0].path), None, None, None, None]
    assert [run.path for run in find_run_folders([runs[0].path])] == [runs[0].path]


def test_a_directory_of_runs_may_hold_lines_and_be_named_like_them(runs, tmp_path):
    folder = tmp_path / "runs.jsonl"
    shutil.copytree(runs[0].path, folder / runs[0].path.name)
    (folder / "main.jsonl").touch()
    assert [record.location for record in find_records([folder])] == [str(folder / runs[0].path.name)]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["nosuch.jsonl"], r"nosuch\.jsonl"),
        (["nosuch"], r"no run found at .*nosuch.*config\.json.*\.jsonl"),
        (["empty.jsonl"], r"no run found at .*empty\.jsonl"),
        (["folder"], r"folder holds no run directories.*give the files.*main\.jsonl"),
        (["folder/main.jsonl", "folder"], r"folder holds no run directories"),
        (["torn.jsonl"], r"line 2 of .*torn\.jsonl must be JSON"),
    ],
)
def test_paths_without_runs_are_refused(lines, tmp_path, names, words):
    (tmp_path / "folder").mkdir()
    shutil.copy(lines, tmp_path / "folder" / "main.jsonl")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "torn.jsonl").write_text(lines.read_text().splitlines()[0] + "\n{")
    with pytest.raises(CommandError, match=words):
        find_records([tmp_path / name for name in names])


def test_paths_may_be_urls_of_this_machine(runs, lines):
    urls = [f"file://{runs[0].path}", Path(f"file://{lines}")]
    assert [record.location for record in find_records(urls)] == [str(runs[0].path), None, None, None, None]
    assert [run.path for run in find_run_folders(urls[:1])] == [runs[0].path]


@pytest.mark.parametrize("find", [find_records, find_run_folders])
@pytest.mark.parametrize("location", ["s3://bucket/runs", Path("gs://bucket/main.jsonl"), "file://elsewhere/runs"])
def test_urls_of_other_machines_are_refused(find, location):
    with pytest.raises(CommandError, match=r"must be a path or a file:// URL of this machine, got .*copy the run"):
        find([location])


def test_lines_hold_no_weights(lines, capsys):
    with pytest.raises(CommandError, match=r"weights.*JSON lines"):
        find_run_folders([lines])
    assert main(["evaluate", str(lines)]) == 2
    assert "JSON lines" in " ".join(capsys.readouterr().err.split())


def test_an_unreadable_directory_is_left_out(runs, tmp_path, capsys):
    (runs[0].path / "config.json").write_text("{")
    found = find_run_folders([tmp_path / "runs"])
    assert runs[0].path not in [run.path for run in found]
    assert len(found) == 7
    assert "is left out" in " ".join(capsys.readouterr().err.split())


def test_files_of_lines_are_reported_together(lines, tmp_path):
    (tmp_path / "more").mkdir()
    both = load_records(lines)
    paths = [tmp_path / "some.jsonl", tmp_path / "more" / "some.jsonl"]
    for seed, path in enumerate(paths):
        write_records(path, [each for each in both if each.config.seed == seed])
    assert main(["report", *map(str, paths), "--out", str(tmp_path / "out")]) == 0
    assert [row["seeds"] for row in read_rows(tmp_path / "out")] == ["0 1", "0 1"]


def test_repeated_lines_count_once(lines, tmp_path):
    both = tmp_path / "both.jsonl"
    both.write_text(2 * lines.read_text())
    (group,) = group_records(load_records(both))
    assert (len(group.runs), group.twice) == (4, 4)


def test_text_of_lines_is_escaped(lines, tmp_path):
    nasty = "<script>alert(1)</script>"
    first, *_ = (json.loads(line) for line in lines.read_text().splitlines())
    first["machine"] = {"device": nasty}
    first["result"] = None
    first["failure"] = nasty
    (tmp_path / "nasty.jsonl").write_text(json.dumps(first))
    page = write_report(load_records(tmp_path / "nasty.jsonl"), tmp_path / "out").read_text()
    assert nasty not in page
    assert page.count("&lt;script&gt;alert(1)") >= 2

"""An encoding of another module, as module:Class, in every verb; its runs are read with and without the module."""

import json
import math
import sys
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk import cli, factory
from ropewalk.lab import progress_bars
from ropewalk.lab.bench import steps
from ropewalk.lab.config import Config
from ropewalk.lab.encoding_spec import find_encoding_class, parse_encoding
from ropewalk.lab.errors import CommandError
from ropewalk.lab.record_lines import load_records, write_records
from ropewalk.lab.run_loading import load_run
from tests.support.patch_everywhere import patch_everywhere

MODULE = '''
from ropewalk import Mixed

class Diagonal(Mixed):
    """An encoding of another package.

    Beware: it exists in a test.
    """

    name = "diagonal"

    @classmethod
    def examples(cls):
        yield cls(head_dim=8, heads=2)
'''
OWN = "strangers:Diagonal"
TINY = ["epochs=1", "width=16", "fraction=0.2", "batch=32", "learning_rate=0.02", "warmup=0", "span=none"]
IMPORT = ["--import", "strangers"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """The module is in the current directory, and not imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    patch_everywhere(monkeypatch, progress_bars, "LINE_INTERVAL", math.inf)
    monkeypatch.delenv("COLUMNS", raising=False)
    Path("strangers.py").write_text(MODULE)
    yield
    sys.modules.pop("strangers", None)


def run(capsys, *words):
    code = cli.main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


def train(capsys, name=OWN):
    path = Path(run(capsys, "train", name, "--set", *TINY).splitlines()[-1])
    sys.modules.pop("strangers")
    return path


def test_it_is_listed_beside_the_others(capsys):
    rows = json.loads(run(capsys, "list", OWN, OWN, "--json"))
    assert [row["name"] for row in rows] == [*rw.names(), OWN]
    assert rows[-1]["class"] == "Diagonal"
    assert run(capsys, "list", OWN).splitlines()[-1].startswith(OWN)


def test_it_is_shown_checked_drawn_and_analyzed(capsys, monkeypatch):
    card = json.loads(run(capsys, "show", OWN, "size=3,5", "--json"))
    assert card["config"]["name"] == OWN
    assert repr(rw.create(**card["config"])) == card["repr"]
    assert run(capsys, "draw", OWN, "size=3,5", "--figure", "turns") == "out/diagonal-turns-light.png\n"
    assert json.loads(run(capsys, "theory", OWN, "size=3,5", "--json"))["turns"] == "diagonal"
    monkeypatch.setattr("ropewalk.testing.checks_for", lambda encoding: [])
    assert run(capsys, "check", OWN).endswith("0 checks of 1 instance, none failed\n")


def test_it_is_part_of_a_chain(capsys):
    parts = json.dumps([{"name": OWN}, {"name": "alibi"}])
    card = json.loads(run(capsys, "show", "chain", f"parts={parts}", "--json"))
    assert [part["name"] for part in card["config"]["parts"]] == [OWN, "alibi"]


@pytest.mark.parametrize("name", [OWN, f"{OWN}:base=30.0"])
def test_its_run_is_read_again_with_its_module(capsys, name):
    path = train(capsys, name)
    assert path.name.startswith("strangers.Diagonal-seed0-")
    assert run(capsys, "evaluate", path, "--probes", "reached", *IMPORT).splitlines()[0] == f"{path}/probes.json"
    assert run(capsys, "fold", path, *IMPORT).splitlines()[-1] == f"{path}/folded.safetensors"
    found = json.loads(run(capsys, "theory", path, "--json", *IMPORT))
    assert (found["turns"], found["weights"]) == ("diagonal", f"{path}/checkpoint.safetensors")
    assert cli.main(["report", "runs", "--baseline", name]) == 0
    page = Path("out/report/report.html").read_text()
    assert name in page
    assert f"ropewalk train {name} --recipe digits" in page
    line = run(capsys, "train", name, "--set", *TINY).splitlines()[0]
    assert "done" not in line  # a finished run is shown with its score


@pytest.mark.parametrize("verb", ["evaluate", "fold", "theory"])
def test_a_run_imports_nothing_by_itself(capsys, verb):
    path = train(capsys)
    assert cli.main([verb, str(path)]) == 2
    assert "import strangers first, or pass --import strangers" in capsys.readouterr().err
    assert "strangers" not in sys.modules


def test_its_records_and_report_need_no_module(capsys):
    path = train(capsys)
    record = load_run(path)
    assert record.label == OWN
    assert record.encoding["name"] == OWN
    write_records(Path("a.jsonl"), [record])
    (line,) = load_records(Path("a.jsonl"))
    assert (line.config, line.run) == (record.config, path.name)
    assert cli.main(["report", "runs", "a.jsonl"]) == 0
    assert OWN in Path("out/report/report.html").read_text()
    assert "strangers" not in sys.modules


def test_it_is_compared(capsys):
    out = run(capsys, "compare", OWN, "--seeds", "1", "--also", "--no-report", "--set", *TINY)
    assert [line.split()[0] for line in out.splitlines() if OWN in line][-1] == OWN
    (document,) = (json.loads(path.read_text()) for path in Path("runs").glob("comparison-*.json"))
    assert [each["encoding"] for each in document["encodings"]] == ["none", OWN]


def test_it_is_benchmarked(capsys, monkeypatch):
    measured = {"train ms": 1.0, "train ms ratio": 1.0, "infer ms": 1.0, "infer ms ratio": 1.0, "parameters": 0}
    made = []

    def measure(field, make):
        made.append(make(field.setting).encoding)
        return dict(measured)

    monkeypatch.setattr(steps.StepField, "measure", measure)
    words = ["bench", "steps", "--names", OWN, "--modes", "eager", "--out", "bench.json", "--json"]
    code = cli.main(words)
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert code == 0
    assert [row["name"] for row in rows] == ["none", OWN]
    assert type(made[1]).__name__ == "Diagonal"


@pytest.mark.parametrize(
    ("spec", "encoding", "options"),
    [
        (OWN, OWN, {}),
        (f"{OWN}:base=3,scale=2", OWN, {"base": 3, "scale": 2}),
        ("mixed:base=3", "mixed", {"base": 3}),
        ("ropewalk.encodings.mixed:Mixed:base=3", "mixed", {"base": 3}),
    ],
)
def test_specs_with_modules_are_parsed(spec, encoding, options):
    parsed = parse_encoding(spec, load=True)
    assert (parsed.encoding, parsed.options) == (encoding, options)
    assert parse_encoding(parsed.label) == parsed


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("strangers:Diagonl", "Did you mean 'Diagonal'"),
        (f"{OWN}:bas=3", "Unknown option 'bas' of strangers:Diagonal"),
        (f"{OWN}:heads=3", "heads is the same for all encodings"),
        ("nowhere:Diagonal", "No module named 'nowhere'"),
        ("mixed:Diagonal", "options are key=value, got 'Diagonal'"),
    ],
)
def test_wrong_specs_are_refused(spec, reason):
    with pytest.raises(CommandError, match=reason):
        parse_encoding(spec, load=True)


def test_names_from_files_import_nothing():
    with pytest.raises(CommandError, match="pass --import strangers"):
        parse_encoding(OWN)
    assert Config(encoding=OWN).name.startswith("strangers.Diagonal-seed0-")
    assert "strangers" not in sys.modules


def test_a_registered_class_is_trained_by_name(capsys, monkeypatch):
    monkeypatch.setattr(factory, "REGISTRY", dict(factory.REGISTRY))
    rw.register(find_encoding_class(OWN))
    path = Path(run(capsys, "train", "diagonal", "--set", *TINY).splitlines()[-1])
    assert path.name.startswith("diagonal-seed0-")
    record = load_run(path)
    assert (record.config.encoding, record.encoding["name"]) == ("diagonal", OWN)

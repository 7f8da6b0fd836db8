import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk import cli, testing
from ropewalk.lab import choose, describe

SETTLED = ["list", "show", "check", "draw", "theory", "fold", "train", "evaluate", "compare", "report", "bench"]

STRANGERS = """
from ropewalk import Axial

class Diagonal(Axial):
    '''Of another package.'''
    name = "diagonal"

    @classmethod
    def examples(cls):
        yield cls(head_dim=8, heads=2)

class Shy(Axial):
    '''Yields nothing.'''
    name = "shy"

    @classmethod
    def examples(cls):
        return iter(())

class Picky(Axial):
    '''Takes nothing.'''
    name = "picky"

    def __init__(self, **options):
        raise TypeError("not these")

class Stranger:
    '''No encoding.'''
"""


def check_good(encoding: rw.Encoding) -> None:
    """It is good.

    And more.
    """


def check_bad(encoding: rw.Encoding) -> None:
    """It is not bad."""
    raise AssertionError(f"{encoding.heads} heads\n  are [bad]")


def check_broken(encoding: rw.Encoding) -> None:
    """It is not broken."""
    raise RuntimeError("broken")


@pytest.fixture
def strangers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "strangers.py").write_text(STRANGERS)
    yield "strangers"
    sys.modules.pop("strangers", None)


@pytest.fixture
def contract(monkeypatch):
    def use(*checks):
        monkeypatch.setattr(testing, "checks_for", lambda encoding: list(checks))

    return use


def run(capsys, *words):
    status = cli.main(words)
    out, err = capsys.readouterr()
    return status, out, err


def refusal(capsys, *words):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("ropewalk: ")
    assert err.count("\n") == 1
    return err


def test_verbs_keep_to_the_settled_list():
    verbs = list(cli.VERBS)
    assert verbs == [verb for verb in SETTLED if verb in verbs]
    assert verbs[:3] == ["list", "show", "check"]


@pytest.mark.parametrize("words", [["--help"], ["list", "--help"], ["show", "--help"], ["check", "--help"]])
def test_help(capsys, words):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 0
    assert "usage: ropewalk" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["lst"], ["list", "--yaml"], ["show"]])
def test_words_that_make_no_command(capsys, words):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert not out
    assert "Traceback" not in err


def test_list_through_a_pipe_has_a_line_for_each_encoding(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    status, out, err = run(capsys, "list")
    head, *lines = out.splitlines()
    assert (status, err) == (0, "")
    assert head.split()[:3] == ["name", "class", "axes"]
    assert [line.split()[0] for line in lines] == rw.names()
    assert "\x1b" not in out
    cells = re.split(r"\s{2,}", next(line for line in lines if line.startswith("spherical")).strip())
    assert cells[:7] == ["spherical", "Spherical", "2 (to 3)", "no, yes", "optional", "yes", "triplets"]
    assert float(cells[7]) == rw.Spherical(head_dim=48).traits.reach
    assert cells[8:] == ["2511.08368", "van-de-geijn, van-de-geijn-paper"]


@pytest.mark.parametrize("columns", [80, 100])
def test_list_on_a_narrow_terminal_breaks_no_name(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = run(capsys, "list")
    assert max(map(len, out.splitlines())) <= columns
    assert "…" not in out
    for row in json.loads(run(capsys, "list", "--json")[1]):
        for word in (row["name"], row["class"], *(row["variants"] if columns == 100 else [])):
            assert re.search(rf"(?<![\w-]){word}(?![\w-])", out)


def test_list_json_says_what_the_classes_say(capsys):
    status, out, _ = run(capsys, "list", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert status == 0
    assert list(rows) == rw.names()
    assert {name: row["acts_on"] for name, row in rows.items() if name in ("axial", "liere", "alibi", "sincos", "none")} == {
        "axial": "pairs",
        "liere": "blocks",
        "alibi": "logits",
        "sincos": "tokens",
        "none": "nothing",
    }
    assert rows["mixed"]["learned"] == "yes"
    assert rows["axial"]["learned"] == "optional"
    assert rows["axial"]["variants"] == list(rw.Axial.variants)
    assert rows["spherical"]["axes"] == {"default": 2, "most": 3}


def test_show(capsys):
    status, out, err = run(capsys, "show", "spherical", "size=3,5", "learned=true")
    encoding = rw.create("spherical", head_dim=48, heads=8, size=(3, 5), learned=True)
    assert (status, err) == (0, "")
    assert out.startswith("Spherical, arXiv:2511.08368\n\nSpherical RoPE of arXiv 2511.08368")
    assert "both read [-pi, pi]" in out
    for words in (repr(encoding), "256 parameters", "frequency (8, 16, 2)", "relative=[false, true]", "pi: from -pi to pi"):
        assert words in out
    assert "van-de-geijn (this one)" in out
    config = next(line for line in out.splitlines() if line.startswith("config"))
    assert json.loads(config.removeprefix("config")) == encoding.config()


@pytest.mark.parametrize("name", [*rw.names(), "nope", "LEARNED_ape"])
def test_show_json_rebuilds(capsys, name):
    status, out, err = run(capsys, "show", name, "--json")
    card = json.loads(out)
    assert (status, err) == (0, "")
    encoding = rw.create(**card["config"])
    assert card["repr"] == repr(encoding)
    assert card["parameter_count"] == sum(value.numel() for value in encoding.parameters())
    assert card["description"].startswith((type(encoding).__doc__ or "").split("\n")[0])


def test_show_gives_a_size_only_where_it_must(capsys):
    assert json.loads(run(capsys, "show", "learned-ape", "axes=3", "--json")[1])["config"]["size"] == [14, 14, 14]
    assert json.loads(run(capsys, "show", "axial", "--json")[1])["config"]["size"] is None


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("8", 8),
        ("1e4", 1e4),
        ("true", True),
        ("False", False),
        ("null", None),
        ("None", None),
        ("3,5", [3, 5]),
        ("[3,5]", [3, 5]),
        ("heo-paper", "heo-paper"),
        ('"8"', "8"),
        ("a=b", "a=b"),
        ('{"rope_type": "yarn", "factor": 2}', {"rope_type": "yarn", "factor": 2}),
        ("", ""),
    ],
)
def test_options_are_nearly_json(word, value):
    assert choose.parse([f"some-key={word}"]) == {"some_key": value}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["show", "axail"], "did you mean 'axial'"),
        (["show", "axial", "bass=3"], "axial has no option bass; it takes head_dim"),
        (["show", "axial", "base=-1"], "base must be a number above zero, got -1"),
        (["show", "axial", "learned=perhaps"], "learned must be True or False, got 'perhaps'"),
        (["show", "axial", "variant=eve"], "variant must be one of 'heo'"),
        (["show", "axial", "size=3,5,7"], "size must have one number"),
        (["show", "axial", "learned"], "key=value, got 'learned'"),
        (["show", "axial", "base=1", "base=2"], "base twice"),
        (["show", "learned-ape", "interpolation=no"], "interpolation must be one of"),
        (["show", "t5-bias", "axes=2"], "takes one axis"),
        (["check", "axail", "--json"], "did you mean 'axial'"),
        (["check", "nowhere:Thing"], "No module named 'nowhere'"),
        (["check", ":Thing"], "module ''"),
        (["check", "strangers:Nobody"], "module strangers has no class 'Nobody'"),
        (["check", "strangers:Stranger"], "must be a subclass of ropewalk.Encoding"),
        (["check", "strangers:Picky", "heads=2"], "ropewalk: not these"),
        (["check", "strangers:Shy"], "must yield at least one instance"),
        (["check", "ropewalk:Encoding"], "is abstract: it must define encode, examples, initial, traits"),
    ],
)
def test_refusals_are_one_line(capsys, strangers, words, reason):
    assert reason in refusal(capsys, *words)


def test_a_module_that_fails_is_one_line(capsys, strangers, tmp_path):
    (tmp_path / "faulty.py").write_text("def broken(:\n")
    assert "SyntaxError" in refusal(capsys, "check", "faulty:Thing")


def test_check_of_examples(capsys, contract):
    contract(check_good)
    status, out, err = run(capsys, "check", "axial")
    instances = list(rw.Axial.examples())
    assert (status, err) == (0, "")
    assert out.count("✓ good         It is good.\n") == len(instances)
    assert all(repr(instance) in out for instance in instances)
    assert out.endswith(f"axial: {len(instances)} checks of {len(instances)} instances, none failed\n")


def test_check_with_options_is_of_one_instance(capsys, contract):
    contract(check_good, check_bad, check_broken)
    status, out, _ = run(capsys, "check", "axial", "heads=2")
    assert status == 1
    assert out.splitlines() == [
        repr(rw.create("axial", head_dim=48, heads=2)),
        "✓ good         It is good.",
        "✗ bad          2 heads are [bad]",
        "✗ broken       RuntimeError: broken",
        "",
        "axial: 3 checks of 1 instance, 2 failed",
    ]


def test_check_json(capsys, contract):
    def check_chatty(encoding):
        print("by the way")

    contract(check_bad, check_chatty)
    status, out, err = run(capsys, "check", "rope", "heads=2", "--json")
    report = json.loads(out)
    assert (status, report["passed"], report["name"]) == (1, False, "rope")
    assert [result["passed"] for result in report["checks"]] == [False, True]
    assert report["checks"][0] | {"encoding": ""} == {
        "encoding": "",
        "check": "check_bad",
        "promise": "It is not bad.",
        "passed": False,
        "message": "2 heads are [bad]",
    }
    assert err == "by the way\n"


def test_check_of_a_class_from_the_current_directory(capsys, contract, strangers):
    contract(check_good)
    assert run(capsys, "check", "strangers:Diagonal")[0] == 0
    assert "Diagonal(head_dim=16, heads=8" in run(capsys, "check", "strangers:Diagonal", "head_dim=16")[1]


def test_check_runs_the_public_contract(capsys):
    status, out, _ = run(capsys, "check", "none", "axes=2", "heads=2", "--json")
    wanted = testing.checks_for(rw.create("none", head_dim=48, heads=2, axes=2))
    assert status == 0
    assert [result["check"] for result in json.loads(out)["checks"]] == [check.__name__ for check in wanted]


def test_a_terminal_sees_which_check_runs(capsys, contract, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "90")
    contract(check_good)
    _, out, _ = run(capsys, "check", "axial", "heads=2")
    assert "good, 1 of 1" in out
    _, out, err = run(capsys, "check", "axial", "heads=2", "--json")
    assert json.loads(out)["passed"]
    assert "good, 1 of 1" in err


def test_interruption_is_quiet(capsys, contract):
    def check_endless(encoding):
        raise KeyboardInterrupt

    contract(check_endless)
    status, _, err = run(capsys, "check", "none")
    assert (status, err) == (130, "")


def test_output_that_cannot_be_spelled_is_replaced(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    assert cli.main(["show", "rope"]) == 0
    assert b"R_{n-m} k" in raw.getvalue()


@pytest.mark.parametrize("missing", ["rich", "tyro"])
def test_without_the_extra_it_says_what_to_install(capsys, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    assert "pip install 'ropewalk[lab]'" in refusal(capsys, "list")


def test_a_reach_without_bound_is_json(capsys, monkeypatch):
    monkeypatch.setattr(rw.NoPE, "traits", rw.Traits(axes=1, relative=(True,), reach=float("inf")))
    assert describe.row(rw.NoPE)["reach"] is None


def test_the_command_is_installed_and_dies_quietly():
    command = Path(sys.executable).with_name("ropewalk")
    assert subprocess.run([command, "show", "axial", "bass=3"], capture_output=True).returncode == 2
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run([command, "list", "--json"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (gone.returncode, gone.stderr) == (141, b"")

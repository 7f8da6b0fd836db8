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
from ropewalk.lab.encoding_spec import parse_options
from ropewalk.lab.inspect.encoding_facts import summarize_encoding

SETTLED = ["list", "show", "check", "draw", "theory", "fold", "train", "evaluate", "compare", "study", "report", "bench"]

PNG, SVG = b"\x89PNG", b"<?xml"

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
    assert list(cli.VERBS) == SETTLED


@pytest.mark.parametrize("words", [["--help"], *[[verb, "--help"] for verb in cli.VERBS]])
def test_help(capsys, words):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 0
    assert "usage: ropewalk" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["show"], ["draw"], ["draw", "rope", "--theme", "red"]])
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
    assert cells[:8] == ["spherical", "Spherical", "2 (to 3)", "no, yes", "yes", "no", "0 or 3,024", "triplets"]
    assert float(cells[8]) == rw.Spherical(head_dim=48).traits.reach
    assert cells[9:] == ["2511.08368", "van-de-geijn, van-de-geijn-paper"]
    titles = ["name", "class", "axes", "relative", "oblique", "needs learning", "ViT-S parameters", "acts on", "reach"]
    assert re.split(r"\s{2,}", head) == [*titles, "paper", "variants"]


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_list_on_a_narrow_terminal_breaks_no_name(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = run(capsys, "list")
    assert max(map(len, out.splitlines())) <= columns
    assert "…" not in out
    for row in json.loads(run(capsys, "list", "--json")[1]):
        for word in (row["name"], row["class"], *row["variants"], row["paper"].removeprefix("arXiv:")):
            assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", out)
    above, below = out.splitlines()[:2]
    assert above.split() == ["needs", "ViT-S"]
    assert below.split() == ["name", "axes", "relative", "oblique", "learning", "parameters", "acts", "on", "reach"]
    assert [above.index(word) for word in above.split()] == [below.index(word) for word in ("learning", "parameters")]


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


def test_list_has_the_columns_of_table_1(capsys):
    rows = {row["name"]: row for row in json.loads(run(capsys, "list", "--json")[1])}
    said = {name: (all(row["relative"]), row["oblique"], row["needs_learning"]) for name, row in rows.items()}
    # relative, oblique, needs learning, as arXiv 2511.08368 has them
    assert said["axial"] == (True, False, False)
    assert said["uniform"] == (True, False, False)
    assert said["mixed"] == (True, True, True)
    assert said["liere"] == (False, True, True)
    assert said["spherical"] == (False, True, False)


def test_list_counts_the_parameters_of_a_vit_s(capsys):
    rows = {row["name"]: row["parameters"] for row in json.loads(run(capsys, "list", "--json")[1])}
    layers, heads, width = 12, 6, 64
    assert rows["mixed"] == {"fixed": None, "learned": layers * heads * width}
    assert rows["axial"] == {"fixed": 0, "learned": layers * heads * width // 2}
    assert rows["spherical"] == {"fixed": 0, "learned": layers * heads * (width // 3) * 2}
    assert rows["liere"] == {"fixed": None, "learned": layers * heads * 2 * (width // 8) * 28}
    assert rows["learned-ape"] == {"fixed": None, "learned": 14 * 14 * heads * width}
    assert rows["alibi"] == {"fixed": 0, "learned": None}
    assert rows["t5-bias"] == {"fixed": None, "learned": layers * heads * 32}
    assert rows["mrope"] == {"fixed": 0, "learned": None}


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
    assert json.loads(run(capsys, "show", "learned-ape", "axes=3", "--json")[1])["config"]["size"] == [8, 14, 14]
    assert json.loads(run(capsys, "show", "axial", "--json")[1])["config"]["size"] is None


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return monkeypatch


@pytest.mark.parametrize(("name", "titles"), [("axial", "pair 1 pair 13 head 1"), ("alibi", "head 1 head 2 head 3")])
def test_show_draws_in_a_terminal(capsys, terminal, name, titles):
    status, out, _ = run(capsys, "show", name)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in out.splitlines()]
    assert status == 0
    drawn = [line for line in lines if "▀" in line]
    assert drawn == ["   ".join(["▀" * 20] * 3)] * 10
    assert lines[lines.index(drawn[0]) - 1].split() == titles.split()
    assert len(set(re.findall(r"38;2;\d+;\d+;\d+", out))) > 10


def test_what_show_draws_is_the_pattern(capsys, terminal):
    out = run(capsys, "show", "axial", "heads=1", "head_dim=4", "variant=eva", "size=3,5")[1]
    runs = [re.findall(r"38;2;([\d;]+);48;2;([\d;]+)m(▀+)", line) for line in out.splitlines() if "▀" in line]
    lines = [[colours for *colours, blocks in line for _ in blocks] for line in runs]
    assert [len(line) for line in lines] == [60] * 6  # 3 x 5 patches are wider than tall
    rows, columns = ([line[first : first + 20] for line in lines] for first in (0, 20))
    assert all(pixel == line[0] for line in rows for pixel in line)
    assert all(line == columns[0] for line in columns)
    upper, lower = ({line[0][half] for line in rows} for half in (0, 1))
    assert len(upper | lower) > 6
    assert len({pixel[0] for pixel in columns[0]}) > 6


@pytest.mark.parametrize(
    "values",
    [{"TTY_COMPATIBLE": "0"}, {"TERM": "dumb"}, {"NO_COLOR": "1"}, {"TERM": "xterm", "COLORTERM": ""}],
    ids=["pipe", "dumb", "no colour", "few colours"],
)
def test_show_draws_nowhere_else(capsys, terminal, values):
    for key, value in values.items():
        terminal.setenv(key, value)
    status, out, _ = run(capsys, "show", "axial")
    assert status == 0
    assert "▀" not in out
    assert "\x1b[38" not in out


def test_json_is_never_drawn(capsys, terminal):
    assert json.loads(run(capsys, "show", "axial", "--json")[1])["name"] == "axial"
    assert "--json prints a document and draws nothing" in refusal(capsys, "show", "axial", "--json", "--draw", "a.png")


def test_show_draws_to_a_file_instead(capsys, terminal, tmp_path):
    path = tmp_path / "a" / "picture.png"
    status, out, _ = run(capsys, "show", "mixed", "--draw", str(path))
    assert status == 0
    assert out.splitlines()[-1].startswith("drawn to")
    assert "▀" not in out
    assert path.read_bytes().startswith(PNG)
    assert run(capsys, "show", "mixed", "--draw", str(tmp_path / "b.png"))[0] == 0
    assert path.read_bytes() == (tmp_path / "b.png").read_bytes()


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
    assert parse_options([f"some-key={word}"]) == {"some_key": value}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["lst"], "Unknown verb 'lst'; expected one of list, show"),
        (["lst"], "Did you mean 'list'"),
        (["show", "axail"], "Did you mean 'axial'"),
        (["show", "axial", "bass=3"], "Unknown option 'bass' of axial; expected one of head_dim"),
        (["show", "axial", "base=-1"], "base must be a number above zero, got -1"),
        (["show", "axial", "learned=perhaps"], "learned must be True or False, got 'perhaps'"),
        (["show", "axial", "variant=eve"], "Unknown variant 'eve'; expected one of heo"),
        (["show", "axial", "size=3,5,7"], "size must have one number"),
        (["show", "axial", "learned"], "key=value, got 'learned'"),
        (["show", "axial", "base=1", "base=2"], "base twice"),
        (["show", "learned-ape", "interpolation=no"], "Unknown interpolation 'no'; expected one of bilinear"),
        (["show", "t5-bias", "axes=2"], "takes one axis"),
        (["show", "axial", "--draw", "a.gif"], "a file that ends in .png or .svg, got a.gif"),
        (["draw", "axail"], "Did you mean 'axial'"),
        (["draw", "axial", "bass=3"], "Unknown option 'bass' of axial"),
        (
            ["draw", "axial", "--figure", "cube"],
            "Unknown figure 'cube'; expected one of patterns, frequencies, sphere, decay",
        ),
        (
            ["draw", "axial", "--figure", "sphere"],
            "axial has no figure 'sphere'; expected one of patterns, frequencies, decay, turns, tables",
        ),
        (["draw", "none", "--figure", "turns"], "none has no figure 'turns'; expected one of patterns"),
        (["draw", "axial", "--out", "a.pdf"], "a folder or to a file that ends in .png or .svg, got a.pdf"),
        (["draw", "axial", "--out", "a.png"], "a file holds one figure: --figure must choose one of patterns, frequencies"),
        (["draw", "none", "--out", "a.png", "--format", "svg"], "a file that ends in .svg, got a.png"),
        (["draw", "none", "--out", "strangers.py/a.png"], "strangers.py/a.png cannot be written: "),
        (["draw", "none", "--out", "strangers.py/a"], "none-patterns-light.png cannot be written: "),
        (["check", "axail", "--json"], "Did you mean 'axial'"),
        (["check", "strangers:Diagonl"], "Did you mean 'Diagonal'"),
        (["draw", "axial", "--figure", "decy"], "Did you mean 'decay'"),
        (["theory", "axail"], "Did you mean 'axial'"),
        (["list", "strangers:Diagonl"], "Did you mean 'Diagonal'"),
        (["list", "nope"], "encodings of your own, as module:Class"),
        (["list", "axail"], "Did you mean 'axial'"),
        (["list", "--yaml"], "Unknown option '--yaml' of list; expected one of --recipes, --settings"),
        (["list", "--settngs"], "Did you mean '--settings'? See `ropewalk list --help`"),
        (["train", "mixed", "--bogus", "3"], "See `ropewalk train --help`"),
        (["train", "--task", "help"], "expected one of classify, detect, masks, segment, text. `ropewalk list --tasks`"),
        (["compare", "mixed", "--task=clasify"], "Did you mean 'classify'"),
        (["list", "axial", "--recipes"], "--recipes lists no encodings, got axial"),
        (["list", "--recipes", "--settings"], "give --recipes or --settings, not several"),
        (["theory", "axial", "--json", "--out", "a.png"], "--json prints a document and draws nothing, got --out a.png"),
        (["theory", "axial", "--json", "--theme", "dark"], "got --theme dark"),
        (["theory", "alibi", "--out", "a.png"], "alibi rotates no channels, and has no such figure, got --out a.png"),
        (["bench", "stps"], "Did you mean 'steps'"),
        (["bench", "ops", "--modes", "eager"], "modes are those of the steps"),
        (["bench", "steps", "--names", "axail"], "Did you mean 'axial'"),
        (["bench", "steps", "--names", "strangers:Diagonl"], "Did you mean 'Diagonal'"),
        (["bench", "--out", "a.txt"], "a file that ends in .json, got a.txt"),
        (["check", "nowhere:Thing"], "No module named 'nowhere'"),
        (["check", ":Thing"], "module ''"),
        (["check", "strangers:Nobody"], "Unknown class 'Nobody' of strangers; expected one of Diagonal, Shy, Picky"),
        (["check", "strangers:Stranger"], "must be a subclass of ropewalk.Encoding"),
        (["check", "strangers:Picky", "heads=2"], "ropewalk: not these"),
        (["check", "strangers:Shy"], "must yield at least one instance"),
        (["check", "ropewalk:Encoding"], "is abstract: it must define encode, examples, initial, traits"),
    ],
)
def test_refusals_are_one_line_and_leave_nothing_behind(capsys, strangers, words, reason):
    assert reason in refusal(capsys, *words)
    assert {path.name for path in Path().iterdir()} <= {"strangers.py", "__pycache__"}


def test_a_module_that_fails_is_one_line(capsys, strangers, tmp_path):
    (tmp_path / "faulty.py").write_text("def broken(:\n")
    assert "SyntaxError" in refusal(capsys, "check", "faulty:Thing")


def test_draw_writes_all_figures_and_says_where(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, "draw", "alibi", "axes=2", "size=3,5")
    assert (status, err) == (0, "")
    assert out.split() == [f"out/alibi-{figure}-light.png" for figure in ("patterns", "decay", "tables")]
    assert sorted(str(path) for path in Path("out").iterdir()) == sorted(out.split())
    assert all(Path(path).read_bytes().startswith(PNG) for path in out.split())


def test_draw_one_figure_to_a_folder_or_a_file(capsys, strangers, tmp_path):
    (tmp_path / "here.png").mkdir()
    cases = {
        ("--out", "a/b"): "a/b/diagonal-turns-light.png",
        ("--out", "c.d/"): "c.d/diagonal-turns-light.png",
        ("--out", "here.png"): "here.png/diagonal-turns-light.png",
        ("--out", "a", "--theme", "dark", "--format", "svg"): "a/diagonal-turns-dark.svg",
        ("--out", "x.SVG"): "x.SVG",
        ("--out", "a/y.png"): "a/y.png",
    }
    for words, path in cases.items():
        status, out, _ = run(capsys, "draw", "strangers:Diagonal", "size=3,5", "--figure", "turns", *words)
        assert (status, out) == (0, f"{path}\n")
        assert Path(path).read_bytes().startswith(SVG if path.lower().endswith("svg") else PNG)


@pytest.mark.parametrize("format", ["png", "svg"])
def test_draw_is_the_same_every_time_and_another_with_another_seed(capsys, tmp_path, monkeypatch, format):
    monkeypatch.chdir(tmp_path)
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        out = f"{name}.{format}"
        assert run(capsys, "draw", "mixed", "size=3,5", "--figure", "frequencies", "--out", out, "--seed", seed)[0] == 0
    first, again, other = (Path(f"{name}.{format}").read_bytes() for name in "abc")
    assert first == again != other
    assert run(capsys, "draw", "mixed", "size=3,5", "--figure", "frequencies", "--out", f"d.{format}")[0] == 0
    assert Path(f"d.{format}").read_bytes() == first


def test_draw_overwrites_whole_files_only(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.png").write_bytes(b"before")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert "a.png cannot be written: No space left on device" in refusal(
        capsys, "draw", "none", "--out", "a.png", "--figure", "patterns"
    )
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.png", b"before")]


def test_draw_draws_everything_before_it_writes(capsys, tmp_path, monkeypatch):
    from ropewalk.lab.figures import FIGURES

    def fail(encoding, theme):
        raise ValueError("no tables today")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(FIGURES, "tables", fail)
    assert "no tables today" in refusal(capsys, "draw", "alibi")
    assert not list(tmp_path.iterdir())


def test_draw_without_matplotlib_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "figures need matplotlib: pip install 'ropewalk[lab]'" in refusal(capsys, "draw", "axial")


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
    assert summarize_encoding(rw.NoPE)["reach"] is None


def test_the_command_is_installed_and_dies_quietly():
    command = Path(sys.executable).with_name("ropewalk")
    assert subprocess.run([command, "show", "axial", "bass=3"], capture_output=True).returncode == 2
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run([command, "list", "--json"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (gone.returncode, gone.stderr) == (141, b"")


@pytest.mark.parametrize("words", ["list", "list --json", "show mixed"])
def test_a_reader_that_goes_away_is_no_failed_check(words):
    command = f"{sys.executable} -c 'import sys; from ropewalk.cli import main; sys.exit(main(sys.argv[1:]))' {words}"
    script = f"{command} | head -c 1 > /dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.returncode in (0, 141), done.stderr
    assert "Traceback" not in done.stderr

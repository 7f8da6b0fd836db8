"""Output of commands: no character of a file or a label controls a terminal, and what the machine cannot do is one line."""

import io
import json
import sys
import warnings
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from ropewalk import cli
from ropewalk.lab.config import Config
from ropewalk.lab.console import escape_control_characters, escape_warnings, make_console, print_json, print_line
from ropewalk.lab.encoding_spec import find_encoding_class, import_modules
from ropewalk.lab.errors import CommandError
from ropewalk.lab.progress_bars import ProgressBars, make_progress
from ropewalk.lab.run_store import RunFolder

HOSTILE = "a\x1b[31mb\x07c\x9b2Jd\re\u202ef\x7fg\udc80"
ESCAPED = r"a\x1b[31mb\x07c\x9b2Jd\re\u202ef\x7fg\udc80"


def test_control_characters_are_escaped_and_others_stay():
    assert escape_control_characters(HOSTILE) == ESCAPED
    assert escape_control_characters(ESCAPED) == ESCAPED
    assert escape_control_characters("a\u200bb\u061cc\ufeffd\xade\U000e0041") == r"a\u200bb\u061cc\ufeffd\xade\U000e0041"
    assert escape_control_characters("a\u2028b\u2029") == r"a\u2028b\u2029"
    for words in ("plain\n\ttext", "± ✓ é 漢字 \\x1b", ""):
        assert escape_control_characters(words) == words


def make_table(words):
    table = Table(title=words)
    table.add_column(words)
    table.add_row(words)
    return table


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("make", [str, Text, make_table, lambda words: Text(words, style="red")])
def test_consoles_escape(terminal, make):
    console = make_console()
    console.file, console._force_terminal = io.StringIO(), terminal
    console.print(make(HOSTILE))
    shown = console.file.getvalue()
    assert r"\x1b" in shown
    for bad in ("\x1b[31mb", "\x07", "\x9b", "\u202e", "\x7f", "\udc80"):
        assert bad not in shown


def test_progress_bars_escape(monkeypatch):
    console = make_console()
    console.file, console._force_terminal = io.StringIO(), True
    monkeypatch.setenv("TERM", "xterm")
    with make_progress(console, runs=1, epochs=1) as shown:
        assert isinstance(shown, ProgressBars)
        shown.begin(HOSTILE)
        shown.say(HOSTILE)
        shown.end(HOSTILE)
    assert r"\x1b[31mb" in console.file.getvalue()
    assert "\x1b[31mb" not in console.file.getvalue()
    assert "\x07" not in console.file.getvalue()


def test_lines_json_and_warnings_escape(capsys):
    print_line(Path(HOSTILE))
    assert capsys.readouterr().out == f"{ESCAPED}\n"
    print_json({HOSTILE: HOSTILE})
    out = capsys.readouterr().out
    assert json.loads(out) == {HOSTILE: HOSTILE}
    assert out.isascii()
    assert "\x7f" not in out
    before = warnings.formatwarning
    try:
        escape_warnings()
        escape_warnings()
        said = warnings.formatwarning(UserWarning(HOSTILE), UserWarning, "file.py", 1)
    finally:
        warnings.formatwarning = before
    assert ESCAPED in said
    assert "\x1b" not in said


def run_cli(monkeypatch, capsys, error):
    def verb() -> int:
        """A verb."""
        raise error

    monkeypatch.setitem(cli.VERBS, "list", verb)
    return cli.main(["list"]), capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "ropewalk: memory is used up"),
        (MemoryError("Unable to allocate 1 TiB"), "Unable to allocate 1 TiB"),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply: maximum recursion depth exceeded"),
    ],
)
def test_what_the_machine_cannot_do_is_told_in_a_line(monkeypatch, capsys, error, words):
    code, said = run_cli(monkeypatch, capsys, error)
    assert code == 2
    assert words in said
    assert said.count("\n") == 1


def test_errors_are_escaped(monkeypatch, capsys):
    code, said = run_cli(monkeypatch, capsys, CommandError(HOSTILE))
    assert code == 2
    assert "\x1b" not in said
    assert r"a\x1b[31mb\x07c\x9b2Jd e" in said


def test_names_of_files_are_escaped_by_a_command(tmp_path, capsys):
    run = RunFolder(tmp_path / "a\x1b[31m", Config())
    run.acquire({})
    run.release()
    (run.path / "config.json").write_text("{")
    assert cli.main(["report", str(tmp_path / "a\x1b[31m"), "--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert r"a\x1b[31m" in captured.err


def test_a_config_that_is_nested_a_million_deep_is_refused_in_a_line(tmp_path, capsys):
    run = RunFolder(tmp_path, Config())
    run.acquire({})
    run.release()
    (run.path / "config.json").write_text('{"options": ' + "[" * 10**6 + "]" * 10**6 + "}")
    assert cli.main(["evaluate", str(run.path)]) == 2
    said = capsys.readouterr().err
    assert "nested at most 100 deep, got 1,000,001" in said
    assert said.count("\n") == 1


# The current directory


def test_the_current_directory_comes_last_and_only_for_modules_that_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
    before = [*sys.path]
    find_encoding_class("axial")
    import_modules([])
    assert sys.path == before
    (tmp_path / "gate_test_module.py").write_text("")
    import_modules(["gate_test_module"])
    assert sys.path == [*before, str(tmp_path)]
    (tmp_path / "html.py").write_text("raise RuntimeError('another html was imported')")
    monkeypatch.delitem(sys.modules, "html", raising=False)
    import_modules(["html"])

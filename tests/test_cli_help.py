"""The help of the command line: every verb has examples that can be given, and `--help` does not wait for torch."""

import functools
import inspect
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk import cli
from ropewalk.lab.encoding_spec import find_encoding_class, parse_encoding
from ropewalk.lab.figures import FIGURES
from ropewalk.lab.probes import PROBES
from ropewalk.lab.recipes import RECIPES, describe_recipes, parse_settings
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.task_types import TASK_TYPES

HEAVY = ("torch", "numpy", "matplotlib", "rich", "timm", "transformers", "accelerate", "torchvision", "scipy")
OWN_MODULE = "from ropewalk import Mixed\n\nclass MyEncoding(Mixed):\n    '''An encoding of one's own.'''\n"


def examples(verb):
    return re.findall(r"^ +(ropewalk .*)$", inspect.getdoc(verb), re.MULTILINE)


EXAMPLES = [command for verb in cli.VERBS.values() for command in examples(verb)]
QUICK = [command for command in EXAMPLES if command.split()[1] in ("list", "study") and len(command.split()) < 4]
QUICK += [command for command in EXAMPLES if command.split()[1] == "show"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("mymodule.py").write_text(OWN_MODULE)
    yield
    sys.modules.pop("mymodule", None)


def get_help(capsys, *words):
    with pytest.raises(SystemExit) as stopped:
        cli.main([*words, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", cli.VERBS)
def test_help_of_a_verb(capsys, verb):
    shown = get_help(capsys, verb)
    assert shown.startswith(f"usage: ropewalk {verb} ")
    found = examples(cli.VERBS[verb])
    assert found
    assert all(f"    {command}\n" in shown and command.startswith(f"ropewalk {verb}") for command in found)
    assert not re.search(r"\(default: ?\)|\(default: None\)|\(default: False\)|\(default: ''\)|\{None\}|_ ", shown)
    parameters = inspect.signature(cli.VERBS[verb]).parameters.values()
    flags = {f"--{each.name.rstrip('_').replace('_', '-')}" for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert flags | {"--help"} == set(re.findall(r"^\W (?:-h, )?(--[a-z-]+)", shown, re.MULTILINE))


def test_optional_names_have_brackets(capsys):
    assert get_help(capsys, "study").splitlines()[0].endswith(" [NAME]")
    assert get_help(capsys, "show").splitlines()[0].startswith("usage: ropewalk show [-h] NAME ")


def test_descriptions_are_wrapped_by_the_terminal_alone(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert "or encodings of your own, as module:Class, for the steps." in get_help(capsys, "bench")


def test_every_parameter_is_described(capsys):
    for verb, function in cli.VERBS.items():
        described = re.findall(r"^    (\w+): \S", inspect.getdoc(function), re.MULTILINE)
        assert described == list(inspect.signature(function).parameters), verb


def test_help_of_all_verbs(capsys):
    shown = get_help(capsys)
    assert re.findall(r"^\W   \W (\w+)", shown, re.MULTILINE) == list(cli.VERBS)
    assert all(command in shown for command in EXAMPLES)


@pytest.mark.parametrize(
    ("verb", "option"),
    [("draw", "--figures"), ("evaluate", "--probes"), ("train", "--settings"), ("train", "--tasks"), ("compare", "--tasks")],
)
def test_help_says_where_names_are_listed(capsys, verb, option):
    assert f"`ropewalk list {option}`" in " ".join(get_help(capsys, verb).replace("│", "").split())


@pytest.fixture
def given(monkeypatch):
    """Gives a command without running it: the verb, and the arguments with which it is called."""
    seen = {}

    def stand_in(name, verb):
        @functools.wraps(verb)
        def call(*values, **options):
            bound = inspect.signature(verb).bind(*values, **options)
            bound.apply_defaults()
            seen["call"] = name, bound.arguments
            return 0

        return call

    monkeypatch.setattr(cli, "VERBS", {name: stand_in(name, verb) for name, verb in cli.VERBS.items()})

    def give(words):
        assert cli.main(words) == 0
        return seen["call"]

    return give


@pytest.mark.parametrize("command", EXAMPLES)
def test_examples_can_be_given(given, command):
    _, *words = shlex.split(command)
    verb, arguments = given(words)
    assert verb == words[0]
    if verb in ("train", "compare"):
        parse_settings(arguments["recipe"], arguments["set"])
        for name in arguments.get("encodings", [arguments.get("name")]):
            parse_encoding(name, load=True)
    if verb in ("list", "show", "check", "draw") or (verb == "theory" and "/" not in arguments["name"]):
        for name in arguments.get("classes", [arguments.get("name")]):
            find_encoding_class(name)
    if verb == "study" and arguments["name"]:
        study = ALL_STUDIES[arguments["name"]]
        for part in study.select_parts(arguments["part"]):
            names, _ = study.select_members(part, arguments["only"], arguments["seed"])
            assert names
    if verb != "list":
        assert set(arguments.get("probes", ())) <= set(PROBES)
    assert arguments.get("figure", "all") in (*FIGURES, "all")


@pytest.mark.parametrize("command", QUICK)
def test_quick_examples_are_run(capsys, command):
    assert cli.main(shlex.split(command)[1:]) == 0
    out, err = capsys.readouterr()
    assert out
    assert not err


@pytest.mark.parametrize(("option", "registry"), [("--tasks", TASK_TYPES), ("--probes", PROBES), ("--figures", FIGURES)])
def test_probes_and_figures_are_listed_from_their_registries(capsys, option, registry):
    assert cli.main(["list", option]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(registry)
    assert all(line.endswith(".") and len(line.split()) > 3 for line in lines)
    assert cli.main(["list", option, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == list(registry)


def test_tasks_of_a_probe_are_listed(capsys):
    assert cli.main(["list", "--probes"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["offset"].endswith(" Tasks: classify.")
    assert lines["cost"].endswith(f" Tasks: {', '.join(TASK_TYPES)}.")


def test_recipes_and_settings_are_listed(capsys):
    assert cli.main(["list", "--recipes"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == list(RECIPES) == list(describe_recipes())
    assert cli.main(["list", "--settings"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^Training$", out, re.MULTILINE)
    assert re.search(r"^  epochs +\S.* Default: 50$", out, re.MULTILINE)
    assert re.search(r"^  augment +\S.* Default: flip,crop$", out, re.MULTILINE)
    assert not re.search(r"^  seed ", out, re.MULTILINE)  # --set does not take it


def test_help_imports_nothing_heavy():
    script = """
import sys
from ropewalk.cli import VERBS, main

def list_heavy():
    return [name for name in sys.argv[1:] if name in sys.modules]

for words in [[], *([verb] for verb in VERBS)]:
    try:
        main([*words, "--help"])
    except SystemExit:
        pass
    print("HEAVY", *words, *list_heavy())
main(["list", "--json"])
print("HEAVY after a verb", *list_heavy())
"""
    done = subprocess.run([sys.executable, "-c", script, *HEAVY], capture_output=True, text=True, check=True)
    *helps, after = [line.split() for line in done.stdout.splitlines() if line.startswith("HEAVY")]
    assert helps == [["HEAVY"], *(["HEAVY", verb] for verb in cli.VERBS)]
    assert "torch" in after  # what is looked for is found

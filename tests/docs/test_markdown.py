"""The Python in our pages runs as it stands, those that are generated included; and their commands can be given."""

import functools
import inspect
import re
import shlex
from pathlib import Path

import mypy.api
import pytest

import encoding_pages
import ropewalk as rw
from ropewalk import cli
from ropewalk.encodings import REGISTRY
from ropewalk.lab.encoding_spec import parse_encoding
from ropewalk.lab.probes import choose_probes
from ropewalk.lab.recipes import parse_settings

ROOT = Path(__file__).parents[2]
FRONT = sorted(ROOT.glob("*.md"))
PAGES = [*FRONT, *sorted(ROOT.glob("docs/pages/**/*.md"))]


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def commands(text):
    """What follows `ropewalk` in blocks that have no language, and in prose after a verb; and `--set` alone."""
    fences = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", flags=re.MULTILINE | re.DOTALL)
    plain = "\n".join(block for language, block in fences.findall(text) if not language)
    inside = re.findall(r"(?<!\S)ropewalk ([^#\n]+)", plain)
    prose = fences.sub("", text)
    alone = [f"train none {words}" for words in re.findall(r"`(--set [^`]+)`", prose)]
    return [command.rstrip(" &") for command in inside] + re.findall(r"`ropewalk (\w+ [^`]+)`", prose) + alone


def verbs(text):
    return re.findall(r"`ropewalk (\w+)`", text)


def run(name, text):
    namespace = {"__name__": name}
    for number, block in enumerate(blocks(text)):
        exec(compile(block, f"{name}, block {number}", "exec"), namespace)
    return namespace


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """An empty folder for what pages write, and a registry that forgets what they add."""
    monkeypatch.chdir(tmp_path)
    known = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(known)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page.read_text())], ids=name_of)
def test_code_blocks_run_in_order(page):
    assert len(run(page.stem, page.read_text())) > 2


@pytest.fixture
def given(monkeypatch):
    """Gives a command without running it: the verb and what it is called with."""
    seen = {}

    def standing_in(name, verb):
        @functools.wraps(verb)
        def called(*args, **options):
            seen["called"] = name, inspect.signature(verb).bind(*args, **options).arguments
            return 0

        return called

    monkeypatch.setattr(cli, "VERBS", {name: standing_in(name, verb) for name, verb in cli.VERBS.items()})

    def give(command):
        if status := cli.main(shlex.split(command)):
            raise SystemExit(status)
        return seen["called"]

    return give


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page.read_text())], ids=name_of)
def test_commands_can_be_given(page, given):
    for command in commands(page.read_text()):
        _, options = given(command)
        if "recipe" in options or "set" in options:
            parse_settings(options.get("recipe", "digits"), options.get("set", ()))
        for said in [*options.get("encodings", ()), options.get("baseline") or "none"]:
            parse_encoding(said)
        if isinstance(probes := options.get("probes", ()), tuple | list):  # for `list` it is a flag
            choose_probes(probes)


@pytest.mark.parametrize("page", [page for page in PAGES if verbs(page.read_text())], ids=name_of)
def test_verbs_in_prose_are_there(page):
    assert set(verbs(page.read_text())) <= set(cli.VERBS)


def test_the_pages_of_the_lab_show_its_verbs(given):
    shown = {given(command)[0] for page in ROOT.glob("docs/pages/lab-*.md") for command in commands(page.read_text())}
    assert shown >= {"train", "evaluate", "compare", "report", "theory", "fold"}


@pytest.mark.parametrize("command", ["compare axial --seed three", "train", "fly runs", "compare axial --seeds three"])
def test_commands_that_cannot_be_given_are_found(command, given, capsys):
    with pytest.raises(SystemExit):
        given(command)


def test_commands_are_found():
    text = "`ropewalk list` `ropewalk show axial` x\n```\nA=1 ropewalk train b c  # d\nwait; ropewalk e &\n```\n"
    text += "```python\nropewalk f\n```\n    ```\n    run -m ropewalk g\n    ```\nropewalk h `--set i=1`\n"
    assert commands(text) == ["train b c", "e", "g", "show axial", "train none --set i=1"]
    assert verbs(text) == ["list"]


@pytest.mark.usefixtures("elsewhere")
def test_the_page_on_runs_knows_every_file():
    text = (ROOT / "docs/pages/lab-runs.md").read_text()
    made = run("lab-runs", "".join(f"```python\n{block}```\n" for block in blocks(text)[:3]))["run"].path
    told = re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\| (.*?) \|", text, flags=re.MULTILINE)))
    there = {path.name for path in made.iterdir()} - {"lock"}
    assert len(there) > 5
    assert there <= set(told)


@pytest.mark.parametrize("name", REGISTRY)
def test_the_code_of_an_encoding_s_page_makes_it(name):
    made = run(name, encoding_pages.format_encoding_page(REGISTRY[name], {}))
    assert type(made["encoding"]) is REGISTRY[name]
    assert "out" in made or "x" in made


@pytest.mark.parametrize("page", FRONT, ids=name_of)
def test_links_lead_somewhere(page):
    local = re.findall(r"\]\(([^)#]+)\)|(?:src|srcset)=\"([^\"]+)\"", page.read_text())
    targets = [link for pair in local for link in pair if link and "://" not in link]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_readme_lists_only_what_there_is():
    table = re.findall(r"^\| `([a-z0-9-]+)` \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert len(table) > 10
    assert set(table) <= set(rw.names())


def test_the_worked_example_passes_the_type_checker(tmp_path):
    (tmp_path / "kerple.py").write_text(blocks((ROOT / "CONTRIBUTING.md").read_text())[0])
    out, _, status = mypy.api.run(["--config-file", str(ROOT / "pyproject.toml"), str(tmp_path / "kerple.py")])
    assert status == 0, out


def test_the_pages_with_code_are_these():
    assert [name_of(page) for page in PAGES if blocks(page.read_text())] == [
        "CONTRIBUTING.md",
        "README.md",
        "docs/pages/adapter-llama.md",
        "docs/pages/adapter-vit.md",
        "docs/pages/folding.md",
        "docs/pages/functional.md",
        "docs/pages/image-sizes.md",
        "docs/pages/lab-detect.md",
        "docs/pages/lab-recipes.md",
        "docs/pages/lab-runs.md",
        "docs/pages/lab-segment.md",
        "docs/pages/lab-text.md",
        "docs/pages/lab-volumes.md",
        "docs/pages/longer.md",
        "docs/pages/model.md",
        "docs/pages/positions.md",
        "docs/pages/reference/index.md",
        "docs/pages/reference/plots.md",
        "docs/pages/retrofit.md",
        "docs/pages/start.md",
        "docs/pages/yarn.md",
    ]

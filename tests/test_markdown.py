"""The Python in our pages runs as it stands, those that are generated included."""

import re
from pathlib import Path

import mypy.api
import pytest

import gallery
import ropewalk as rw
from ropewalk.encodings import REGISTRY

ROOT = Path(__file__).parent.parent
FRONT = sorted(ROOT.glob("*.md"))
PAGES = [*FRONT, *sorted(ROOT.glob("docs/pages/**/*.md"))]


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def run(name, text):
    namespace = {"__name__": name}
    for number, block in enumerate(blocks(text)):
        exec(compile(block, f"{name}, block {number}", "exec"), namespace)
    return namespace


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page.read_text())], ids=name_of)
def test_code_blocks_run_in_order(page):
    assert len(run(page.stem, page.read_text())) > 2


@pytest.mark.parametrize("name", REGISTRY)
def test_the_code_of_an_encoding_s_page_makes_it(name):
    made = run(name, gallery.page(REGISTRY[name], {}))
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
        "docs/pages/folding.md",
        "docs/pages/longer.md",
        "docs/pages/model.md",
        "docs/pages/positions.md",
        "docs/pages/reference/index.md",
        "docs/pages/reference/plots.md",
        "docs/pages/start.md",
        "docs/pages/yarn.md",
    ]

"""The Python in our pages runs as it stands."""

import re
from pathlib import Path

import mypy.api
import pytest

import ropewalk as rw

ROOT = Path(__file__).parent.parent
PAGES = sorted(page for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_code_blocks_run_in_order(page):
    namespace = {"__name__": page.stem}
    for number, block in enumerate(blocks(page)):
        exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)
    assert len(namespace) > 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    local = re.findall(r"\]\(([^)#]+)\)|(?:src|srcset)=\"([^\"]+)\"", page.read_text())
    targets = [link for pair in local for link in pair if link and "://" not in link]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_readme_lists_only_what_there_is():
    table = re.findall(r"^\| `([a-z0-9-]+)` \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert len(table) > 10
    assert set(table) <= set(rw.names())


def test_the_worked_example_passes_the_type_checker(tmp_path):
    (tmp_path / "kerple.py").write_text(blocks(ROOT / "CONTRIBUTING.md")[0])
    out, _, status = mypy.api.run(["--config-file", str(ROOT / "pyproject.toml"), str(tmp_path / "kerple.py")])
    assert status == 0, out


def test_the_pages_with_code_are_these():
    assert [page.name for page in PAGES if blocks(page)] == ["CONTRIBUTING.md", "README.md"]

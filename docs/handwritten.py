"""Pages that are written by hand, in docs/pages and docs/studies. A line in double braces stands for what is said elsewhere:

{{ README.md # Install }}    a section of a file in the root, without its heading
{{ CONTRIBUTING.md }}        a whole one
{{ checks }}                 a table of `tables.py`, `speed.py`, `recipes.py`, `longer.py`, `context.py`,
                             `tuned.py` or of a study: `equivariance.py`, `volumes.py`, `pedestrians.py`
"""

import re
import shutil
from pathlib import Path

import context
import dense_sizes
import equivariance
import longer
import pedestrians
import recipes
import speed
import tables
import tuned
import volumes
from ropewalk.encodings import REGISTRY

HERE = Path(__file__).parent
ROOT = HERE.parent
# Where the files of the root stand in the site; all pages that include them lie at its top.
PLACES = {"README.md": "start.md", "CONTRIBUTING.md": "adding.md", "CHANGELOG.md": "changelog.md", "LOG.md": "log.md"}


def write(folder: Path) -> None:
    """All hand-written pages, with what they include, and the pictures of the README."""
    shutil.copytree(HERE / "pages", folder, dirs_exist_ok=True)
    shutil.copytree(HERE / "images", folder / "images")
    shutil.copytree(HERE / "studies", folder / "studies")
    for root, place in ((HERE / "pages", folder), (HERE / "studies", folder / "studies")):
        for page in root.rglob("*.md"):
            (place / page.relative_to(root)).write_text(filled(page.read_text()))


def filled(text: str) -> str:
    """A page with what its braces stand for."""
    return re.sub(r"^\{\{ (\S+)(?: # (.+))? \}\}$", lambda found: _said(*found.groups()), text, flags=re.MULTILINE)


def _said(source: str, heading: str | None) -> str:
    if not source.endswith(".md"):
        modules = (tables, speed, dense_sizes, recipes, longer, context, tuned, equivariance, volumes, pedestrians)
        return next(module.TABLES[source] for module in modules if source in module.TABLES)()
    text = (ROOT / source).read_text()
    text = text if heading is None else section(text, heading)
    text = re.sub(r"\]\(([^)#]+)", lambda link: f"]({PLACES.get(link[1], link[1])}", text)
    return re.sub(r"^\|.*", lambda row: _linked(row[0]), text, flags=re.MULTILINE).strip()


def _linked(row: str) -> str:
    """A row of a table, in which the name of an encoding leads to its page."""
    names = "|".join(map(re.escape, REGISTRY))
    return re.sub(rf"`({names})`", r"[`\1`](encodings/\1.md)", row)


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one that is no lower. In code, a number sign is none."""
    lines, code = text.splitlines(), False
    levels: dict[int, int] = {}
    for i, line in enumerate(lines):
        code ^= line.startswith("```")
        if not code and (marks := re.match(r"#+ ", line)):
            levels[i] = len(marks[0])
    titles = {lines[i].lstrip("# "): i for i in levels}
    if heading not in titles:
        raise ValueError(f"a page includes the section {heading!r}, but there are {', '.join(titles)}")
    first = titles[heading]
    last = next((i for i in levels if i > first and levels[i] <= levels[first]), len(lines))
    return "\n".join(lines[first + 1 : last])

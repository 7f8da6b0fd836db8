"""CONTRIBUTING's map of the tree has each folder of the package once, and nothing that is not there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def read_map(text: str) -> list[str]:
    """Paths of the map from the root of the repository; the parent of a line is the nearest one above with less indent."""
    block = re.search(r"## Map of the tree\n\n```\n(.*?)```", text, re.DOTALL)
    assert block, "CONTRIBUTING has no section 'Map of the tree' with a block of code"
    paths, folders = [], {-1: ""}
    for line in block[1].splitlines():
        indent, name = len(line) - len(line.lstrip()), line.split()[0]
        parent = folders[max(depth for depth in folders if depth < indent)]
        folders = {depth: folder for depth, folder in folders.items() if depth < indent}
        paths.append(parent + name)
        if name.endswith("/"):
            folders[indent] = parent + name
    return paths


def find_packages(root: Path) -> set[str]:
    return {f"{path.parent.relative_to(root)}/" for path in root.glob("src/ropewalk/**/__init__.py")}


def compare_map(text: str, root: Path) -> list[str]:
    """What is wrong with the map, a line each."""
    paths = read_map(text)
    twice = [f"{path} is on the map twice" for path in sorted({path for path in paths if paths.count(path) > 1})]
    gone = [f"{path} is on the map, but not in the tree" for path in paths if not (root / path).exists()]
    missing = [f"{path} is not on the map" for path in sorted(find_packages(root) - set(paths))]
    return twice + gone + missing


def test_the_map_is_the_tree():
    assert compare_map((ROOT / "CONTRIBUTING.md").read_text(), ROOT) == []


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ("src/ropewalk/  library\n  lab/  lab\n", []),
        ("src/ropewalk/  library\n", ["src/ropewalk/lab/ is not on the map"]),
        ("src/ropewalk/  library\n  lab/  lab\n  lab/  lab\n", ["src/ropewalk/lab/ is on the map twice"]),
        ("src/ropewalk/  library\n  lab/  lab\n    x.py  x\n", ["src/ropewalk/lab/x.py is on the map, but not in the tree"]),
    ],
)
def test_a_wrong_map_is_rejected(lines, wrong, tmp_path):
    for folder in ("src/ropewalk", "src/ropewalk/lab"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    assert compare_map(f"## Map of the tree\n\n```\n{lines}```\n", tmp_path) == wrong

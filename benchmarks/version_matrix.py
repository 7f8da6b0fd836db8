"""The adapters' tests with the oldest supported and the newest transformers and timm.

python benchmarks/version_matrix.py                               both, some minutes each
python benchmarks/version_matrix.py --transformers 5.10.2         this transformers, with the newest timm

The oldest are the lower bounds of pyproject.toml. Each pair is installed by pip into a folder, which shadows the packages of
this environment and leaves torch as it is. Results are written to results/version-matrix.json.
"""

import datetime
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import tyro

from ropewalk.lab.environment import list_package_versions

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "version-matrix.json"
TESTS = ("tests/adapters",)
NEWEST = ""


def main(transformers: str | None = None, timm: str | None = None, *, folder: Path = ROOT / "out" / "versions") -> None:
    """Run the tests with one pair of versions, or without any named with the oldest and the newest."""
    if transformers is None and timm is None:
        pairs = [(read_bound("transformers"), read_bound("timm")), (NEWEST, NEWEST)]
    else:
        pairs = [(transformers or NEWEST, timm or NEWEST)]
    rows = [test_pair(*pair, folder) for pair in pairs]
    table = {"versions": list_package_versions(), "date": datetime.date.today().isoformat(), "tests": TESTS, "rows": rows}
    RESULTS.write_text(json.dumps(table, indent=1) + "\n")
    if any(row["failed"] for row in rows):
        raise SystemExit(1)


def read_bound(package: str) -> str:
    """The lower bound of a package in pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    bounds = {found[1] for extra in extras.values() for one in extra if (found := re.fullmatch(rf"{package}>=(\S+)", one))}
    if len(bounds) != 1:
        raise SystemExit(f"pyproject.toml must give {package} one lower bound, got {sorted(bounds)}")
    return bounds.pop()


def test_pair(transformers: str, timm: str, folder: Path) -> dict[str, Any]:
    """How many tests pass with these versions."""
    target = folder / f"transformers-{transformers or 'newest'}-timm-{timm or 'newest'}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(target)]
    subprocess.run([*pip, _require("transformers", transformers)], check=True)
    subprocess.run([*pip, "--no-deps", _require("timm", timm)], check=True)  # its dependencies are torch and what there is
    path = os.pathsep.join(map(str, (target, ROOT / "src")))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *TESTS]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    print(ran.stdout[-3000:], ran.stderr[-1000:])
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (passed|failed|errors?|skipped)", ran.stdout[-300:])}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return {
        "transformers": read_version(target, "transformers"),
        "timm": read_version(target, "timm"),
        "passed": counts.get("passed", 0),
        "skipped": counts.get("skipped", 0),
        "failed": failed or ([] if ran.returncode == 0 else [f"pytest exited with {ran.returncode}"]),
    }


def read_version(target: Path, package: str) -> str:
    """The version of a package in a folder of `pip install --target`."""
    return (
        max(target.glob(f"{package}-*.dist-info"), key=lambda path: path.stat().st_mtime)
        .name.split("-")[1]
        .removesuffix(".dist")
    )


def _require(package: str, version: str) -> str:
    return f"{package}=={version}" if version else package


if __name__ == "__main__":
    tyro.cli(main)

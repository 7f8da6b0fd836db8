"""Exhaustive tests, which `make test` deselects and `make test-all` runs, and the record of their latest run.

A test is marked `exhaustive` if it is slow and repeats, for another encoding or shape, what a test of `make test` checks:
`@pytest.mark.exhaustive("figures", kept=lambda name, **_: name == "mixed")` leaves one of its cases to `make test`.

Each group lists the sources whose changes could break its tests. `results/test-all.json` has, for each group, when it last
passed and the SHA-256 of the code of those files; `tests/test_exhaustive.py` fails when they have changed since.
"""

import ast
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import time
import tokenize
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "results" / "test-all.json"


@dataclass(frozen=True)
class Group:
    """Glob patterns of the files that have a group's tests, and of the sources that they cover."""

    tests: tuple[str, ...]
    sources: tuple[str, ...]


OPS = ("src/ropewalk/ops/**/*.py",)
CODES = (*OPS, "src/ropewalk/code/*.py", "src/ropewalk/tree.py")
ENCODINGS = (
    *CODES,
    "src/ropewalk/arguments.py",
    "src/ropewalk/encoding.py",
    "src/ropewalk/positions.py",
    "src/ropewalk/rotary.py",
    "src/ropewalk/factory.py",
    "src/ropewalk/encodings/*.py",
    "src/ropewalk/extension/*.py",
)

GROUPS = {
    "programs": Group(
        tests=(
            "tests/testing/test_contract.py",
            "tests/test_compile.py",
            "tests/test_export.py",
            "tests/test_attention.py",
            "tests/models/test_lm.py",
            "tests/models/test_vit.py",
        ),
        sources=(
            *ENCODINGS,
            "src/ropewalk/attention.py",
            "src/ropewalk/export.py",
            "src/ropewalk/models/*.py",
            "src/ropewalk/testing/[!f]*.py",  # all but the fuzzer
        ),
    ),
    "kernels": Group(tests=("tests/ops/test_kernels_fused.py",), sources=CODES),
    "training": Group(
        tests=("tests/lab/test_worker_processes.py", "tests/lab/test_train.py", "tests/lab/tasks/test_detect.py"),
        sources=(
            "src/ropewalk/lab/train.py",
            "src/ropewalk/lab/run_store.py",
            "src/ropewalk/lab/metrics_log.py",
            "src/ropewalk/lab/sealed_files.py",
            "src/ropewalk/lab/checkpoint_file.py",
            "src/ropewalk/lab/worker_processes.py",
            "src/ropewalk/lab/data/*.py",
            "src/ropewalk/lab/tasks/*.py",
            "src/ropewalk/lab/vision_heads/*.py",
        ),
    ),
    "hosts": Group(
        tests=("tests/adapters/transformers/test_host_table.py",),
        sources=(*ENCODINGS, "src/ropewalk/adapters/transformers/*.py", "benchmarks/host_*.py", "benchmarks/tiny_*.py"),
    ),
    "figures": Group(
        tests=tuple(f"tests/lab/figures/test_{name}.py" for name in ("equivariance", "figures", "patterns")),
        sources=("src/ropewalk/lab/figures/*.py", "docs/readme_figure.py"),
    ),
}


def find_files(pattern: str, root: Path = ROOT) -> set[str]:
    """Paths from the root of the repository."""
    return {path.relative_to(root).as_posix() for path in root.glob(pattern) if path.is_file()}


def strip_prose(source: str) -> str:
    """Python without comments, docstrings and blank lines, so that mended prose makes no record stale."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]]
    rows = [line.encode() for line in lines]  # the columns of ast count bytes
    for node in ast.walk(ast.parse(source)):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            first, last = text.lineno - 1, text.end_lineno - 1
            rest = rows[first][: text.col_offset] + rows[last][text.end_col_offset :]
            rows[first : last + 1] = [rest, *[b""] * (last - first)]
    return "\n".join(row.decode().rstrip() for row in rows if row.strip())


def read_code(path: Path) -> str:
    return strip_prose(path.read_text()) if path.suffix == ".py" else path.read_text()


def compute_digest(group: Group, root: Path = ROOT) -> str:
    """SHA-256 of the names and the code of all files of a group."""
    found = {path for pattern in (*group.tests, *group.sources) for path in find_files(pattern, root)}
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(f"{path}\0{hashlib.sha256(read_code(root / path).encode()).hexdigest()}\n".encode())
    return digest.hexdigest()


def find_stale_groups(record: dict[str, dict[str, object]], groups: dict[str, Group], root: Path = ROOT) -> list[str]:
    """Groups that were never run, were run without a test that passed, or whose files have changed since."""

    def is_fresh(name: str) -> bool:
        latest = record.get(name, {})
        return bool(latest.get("passed")) and latest.get("sha256") == compute_digest(groups[name], root)

    return [name for name in groups if not is_fresh(name)]


def find_group(item: pytest.Function) -> str | None:
    """The group of an exhaustive test, None for any other test."""
    marker = item.get_closest_marker("exhaustive")
    if marker is None or ("kept" in marker.kwargs and marker.kwargs["kept"](**item.callspec.params)):
        return None
    (name,) = marker.args or (None,)
    if name not in GROUPS:
        raise pytest.UsageError(
            f"{item.nodeid}: unknown group {name!r} of exhaustive tests; expected one of {', '.join(GROUPS)}"
        )
    if not any(item.path.relative_to(ROOT).as_posix() in find_files(pattern) for pattern in GROUPS[name].tests):
        raise pytest.UsageError(f"{item.nodeid}: its file is none of group {name!r}; list it in tests/support/exhaustive.py")
    return name


class ExhaustivePlugin:
    """Selects tests by group, prints how many are deselected, and records the groups that passed."""

    def __init__(self, config: pytest.Config) -> None:
        self.whole, self.only, self.record = (config.getoption(name) for name in ("whole", "group", "record"))
        if self.only is not None and self.only not in GROUPS:
            raise pytest.UsageError(f"unknown group {self.only!r} of exhaustive tests; expected one of {', '.join(GROUPS)}")
        if self.only is not None and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            config.args = [str(ROOT / path) for pattern in GROUPS[self.only].tests for path in sorted(find_files(pattern))]
        self.deselected: Counter[str] = Counter()
        self.outcomes: dict[str, Counter[str]] = {name: Counter() for name in GROUPS}
        self.files: set[str] = set()
        self.began = time.monotonic()
        self.digests = {name: compute_digest(group) for name, group in GROUPS.items()} if self.record else {}

    def is_selected(self, item: pytest.Item, group: str | None) -> bool:
        if self.only is not None:
            return group == self.only
        by_name = any("::" in argument for argument in item.config.args)
        return group is None or self.whole or by_name

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept, left = [], []
        for item in items:
            group = find_group(item)
            if group is not None:
                item.user_properties.append(("exhaustive", group))
            if self.is_selected(item, group):
                kept.append(item)
            else:
                left.append(item)
                self.deselected[group or "other"] += 1
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        group = dict(report.user_properties).get("exhaustive")
        if group is not None and (report.when == "call" or not report.passed):
            self.outcomes[str(group)][report.outcome] += 1
            self.files.add(report.nodeid.partition("::")[0])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Under pytest-xdist each worker deselects the same tests and sends the counts."""
        self.deselected = Counter(getattr(node, "workeroutput", {}).get("deselected", {})) or self.deselected

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["deselected"] = dict(self.deselected)
        elif self.record and exitstatus == pytest.ExitCode.OK:
            self.write_record()

    def write_record(self) -> None:
        whole = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        for name, outcomes in self.outcomes.items():
            complete = self.files >= {path for pattern in GROUPS[name].tests for path in find_files(pattern)}
            if complete and outcomes["passed"] and compute_digest(GROUPS[name]) == self.digests[name]:
                whole[name] = describe_run(outcomes, time.monotonic() - self.began) | {"sha256": self.digests[name]}
        RECORD.write_text(json.dumps({name: whole[name] for name in GROUPS if name in whole}, indent=2) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        counts = {name: count for name, count in sorted(self.deselected.items()) if name in GROUPS}
        if counts and self.only is None:
            listed = ", ".join(f"{name} {count}" for name, count in counts.items())
            terminalreporter.write_line(
                f"{sum(counts.values())} exhaustive tests deselected ({listed}): they are slow and resemble tests that ran; "
                "`make test-all` runs them"
            )


def describe_run(outcomes: Counter[str], seconds: float) -> dict[str, object]:
    """When, where and with what a group was run, and what came of it."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "passed": outcomes["passed"],
        "skipped": outcomes["skipped"],
        "seconds": round(seconds),
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), {gpu}",
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in ("torch", "timm", "transformers")},
    }

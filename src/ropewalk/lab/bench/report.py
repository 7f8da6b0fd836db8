"""Run suites, keep what was measured as it comes, and say a row in words."""

import datetime
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ropewalk.lab.bench import cpu, exponentials, lengths, steps, turning
from ropewalk.lab.bench.job import Job, Row, select

PACKAGES = ("triton", "ropewalk", "timm", "transformers", "liger-kernel", "flash-attn")
LABELS = ("suite", "shape", "mode", "name")
EXCUSES = ("refused", "failed")  # what rows without figures say


class Suite(NamedTuple):
    """Jobs, none of which is begun before it is asked for, and what their rows have in common."""

    jobs: Callable[[], list[Job]]
    settings: Callable[[], Row]


SUITES = {
    "ops": Suite(lambda: [*turning.jobs(), *exponentials.jobs()], turning.settings),
    "lengths": Suite(lengths.jobs, lengths.settings),
    "steps": Suite(steps.jobs, steps.settings),
    "cpu": Suite(cpu.jobs, cpu.settings),
}


def plan(suites: Sequence[str], names: Collection[str] = (), modes: Collection[str] = steps.MODES) -> list[Job]:
    """The jobs of suites, restricted to names and modes."""
    return select([job for suite in suites for job in SUITES[suite].jobs()], names, modes)


def run(
    suites: Sequence[str],
    path: Path,
    told: Callable[[Row], object] = lambda row: None,
    *,
    names: Collection[str] = (),
    modes: Collection[str] = steps.MODES,
    begun: Callable[[Job], object] = lambda job: None,
) -> dict[str, Any]:
    """Measure, and write the document anew after each row: what was measured is not lost.

    `begun` is told each job before it is measured, and `told` its row.
    """
    document: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "date": datetime.date.today().isoformat(),
        "settings": {suite: SUITES[suite].settings() for suite in suites},
        "finished": False,
        "rows": [],
    }
    for job in plan(suites, names, modes):
        begun(job)
        row = {key: _short(value) for key, value in job.row().items()}
        document["rows"].append(row)
        write(document, path)
        told(row)
    document["finished"] = True
    write(document, path)
    return document


def write(document: dict[str, Any], path: Path) -> None:
    """Put the document in place of the one before, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def machine() -> dict[str, Any]:
    """Where."""
    cores = {"processor": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", **cores}


def versions() -> dict[str, str]:
    """With what."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})


def words(row: Row) -> str:
    """A row in a line."""
    label = " · ".join(row[key] for key in LABELS[1:] if key in row)
    figures = [f"{key} {figure(value)}" for key, value in row.items() if isinstance(value, float)]
    return f"{label}: {', '.join(figures) or excuse(row)}"


def excuse(row: Row) -> str:
    """Why a row has no figures; nothing if it has."""
    return next((f"{key}: {row[key]}" for key in EXCUSES if key in row), "")


def figure(value: float) -> str:
    """A number with four digits that count."""
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value

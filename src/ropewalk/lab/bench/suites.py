"""Benchmark suites: run, printed row by row and in tables, and written to a file after each row."""

import datetime
import itertools
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ropewalk.lab.bench.cpu import get_cpu_settings, list_cpu_jobs
from ropewalk.lab.bench.lengths import get_length_settings, list_length_jobs
from ropewalk.lab.bench.operations import get_rotation_settings, list_exponential_jobs, list_rotation_jobs
from ropewalk.lab.bench.steps import STEP_MODES, get_step_settings, list_step_jobs
from ropewalk.lab.bench.timing import BenchJob, BenchRow, select_bench_jobs
from ropewalk.lab.environment import describe_machine, list_package_versions
from ropewalk.lab.errors import CommandError
from ropewalk.lab.figures.cost import draw_step_cost
from ropewalk.lab.figures.figure_files import encode_figure
from ropewalk.validation import describe_unknown

ROW_LABELS = ("suite", "shape", "mode", "name")
FAILURE_KEYS = ("refused", "failed")  # what rows without figures say


class BenchSuite(NamedTuple):
    """Jobs, none of which is begun before it is asked for, and what their rows have in common."""

    jobs: Callable[[], list[BenchJob]]
    settings: Callable[[], BenchRow]


BENCH_SUITES = {
    "ops": BenchSuite(lambda: [*list_rotation_jobs(), *list_exponential_jobs()], get_rotation_settings),
    "lengths": BenchSuite(list_length_jobs, get_length_settings),
    "steps": BenchSuite(list_step_jobs, get_step_settings),
    "cpu": BenchSuite(list_cpu_jobs, get_cpu_settings),
}


def plan_bench_jobs(
    suites: Sequence[str], names: Collection[str] = (), modes: Collection[str] = STEP_MODES
) -> list[BenchJob]:
    """The jobs of suites, restricted to names and modes. Names module:Class add encodings to the steps."""
    return select_bench_jobs(_list_all_jobs(suites, names), names, modes)


def _list_all_jobs(suites: Sequence[str], names: Collection[str]) -> list[BenchJob]:
    own = list(dict.fromkeys(name.partition(",")[0] for name in names if ":" in name))
    return [
        job for suite in suites for job in (list_step_jobs(own) if own and suite == "steps" else BENCH_SUITES[suite].jobs())
    ]


def run_bench_suites(
    suites: Sequence[str],
    path: Path,
    told: Callable[[BenchRow], object] = lambda row: None,
    *,
    names: Collection[str] = (),
    modes: Collection[str] = STEP_MODES,
    begun: Callable[[BenchJob], object] = lambda job: None,
) -> dict[str, Any]:
    """Measure, and write the document anew after each row: what was measured is not lost.

    `begun` is called with each job before it is measured, and `told` with its row.
    """
    document: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": list_package_versions(),
        "date": datetime.date.today().isoformat(),
        "settings": {suite: BENCH_SUITES[suite].settings() for suite in suites},
        "finished": False,
        "rows": [],
    }
    for job in plan_bench_jobs(suites, names, modes):
        begun(job)
        row = {key: _round_figure(value) for key, value in job.row().items()}
        document["rows"].append(row)
        write_bench_document(document, path)
        told(row)
    document["finished"] = True
    write_bench_document(document, path)
    return document


def write_bench_document(document: dict[str, Any], path: Path) -> None:
    """Put the document in place of the one before, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def format_bench_row(row: BenchRow) -> str:
    """A row in a line."""
    label = " · ".join(row[key] for key in ROW_LABELS[1:] if key in row)
    figures = [f"{key} {format_bench_figure(value)}" for key, value in row.items() if isinstance(value, float)]
    return f"{label}: {', '.join(figures) or explain_missing_figures(row)}"


def explain_missing_figures(row: BenchRow) -> str:
    """Why a row has no figures; nothing if it has."""
    return next((f"{key}: {row[key]}" for key in FAILURE_KEYS if key in row), "")


def format_bench_figure(value: float) -> str:
    """A number with four digits that count."""
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _round_figure(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def run_benchmarks(
    suites: Sequence[str],
    path: Path,
    console: Console,
    *,
    names: Collection[str] = (),
    modes: Collection[str] = (),
) -> tuple[dict[str, Any], list[Path]]:
    """Run the suites, and write the document and, if steps were measured, their picture."""
    suites, modes = suites or tuple(BENCH_SUITES), modes or STEP_MODES
    done: list[BenchRow] = []
    count = len(_plan_checked_jobs(suites, path, names, modes))
    try:
        document = _run_with_progress(suites, path, console, count, done, names=names, modes=modes)
    except KeyboardInterrupt:
        where = f"{len(done)} of {count} rows are in {path}" if done else f"nothing was measured, {path} is as it was"
        console.print(f"stopped: {where}")
        raise
    for made in make_bench_tables(document["rows"]):
        console.print(made)
    if not any("train ms ratio" in row for row in document["rows"]):
        return document, [path]
    return document, [path, _write_cost_figure(document, path.with_suffix(".png"))]


def list_figure_columns(rows: Iterable[BenchRow]) -> list[str]:
    """What any of the rows has a figure of."""
    return list(dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, float)))


def group_bench_rows(rows: Sequence[BenchRow]) -> Iterator[tuple[str, list[BenchRow]]]:
    """Rows that differ by their names alone, with the words that they have in common."""

    def common(row: BenchRow) -> str:
        return ", ".join(row[key] for key in ROW_LABELS[:-1] if key in row)

    for title, found in itertools.groupby(rows, common):
        yield title, list(found)


def make_bench_tables(rows: Sequence[BenchRow]) -> Iterator[Table]:
    """A table for each group of rows. A row without figures says why in the last column."""
    for title, group in group_bench_rows(rows):
        made = Table("name", box=box.SIMPLE_HEAD, title=title, title_justify="left")
        for key in list_figure_columns(group):
            made.add_column(key, justify="right")
        made.add_column("")
        for row in group:
            cells = [format_bench_figure(row[key]) if key in row else "" for key in list_figure_columns(group)]
            made.add_row(row["name"], *cells, explain_missing_figures(row))
        yield made


def _plan_checked_jobs(suites: Sequence[str], path: Path, names: Collection[str], modes: Collection[str]) -> list[BenchJob]:
    """The jobs, if all that is asked for is there."""
    if path.suffix != ".json":
        raise CommandError(f"--out must be a file that ends in .json, got {path}")
    for kind, asked, known in (("suite", suites, tuple(BENCH_SUITES)), ("mode", modes, STEP_MODES)):
        if unknown := [word for word in asked if word not in known]:
            raise CommandError(describe_unknown(kind, unknown, known))
    if modes != STEP_MODES and "steps" not in suites:
        raise CommandError(
            f"modes are those of the steps: add the suite steps or leave out --modes, got {', '.join(suites)}"
        )
    every = _list_all_jobs(suites, names)
    if unknown := [name for name in names if not any(job.matches_names([name]) for job in every)]:
        known = tuple(dict.fromkeys(job.labels["name"].partition(",")[0] for job in every))
        raise CommandError(describe_unknown("row", unknown, known))
    if not (jobs := plan_bench_jobs(suites, names, modes)):
        raise CommandError(f"there is nothing to measure: on this machine, steps have no mode {', '.join(modes)}")
    return jobs


def _run_with_progress(
    suites: Sequence[str], path: Path, console: Console, count: int, done: list[BenchRow], **choice: Any
) -> dict[str, Any]:
    """Measure, with a bar that says what is being measured and how many rows are done, and a line for each of them."""
    looks = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    # A bar that moved by itself would take its time from what is measured.
    with Progress(*looks, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("", total=count)

        def begun(job: BenchJob) -> None:
            progress.update(task, description=" · ".join(job.labels.values()), refresh=True)

        def told(row: BenchRow) -> None:
            done.append(row)
            console.print(format_bench_row(row))
            progress.advance(task)

        try:
            return run_bench_suites(suites, path, told, begun=begun, **choice)
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error


def _write_cost_figure(document: dict[str, Any], path: Path) -> Path:
    path.write_bytes(encode_figure(draw_step_cost(document), "png"))
    return path

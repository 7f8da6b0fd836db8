"""Benchmarks from the command line: which suites, told as they go and in tables when they are done, and where they are."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.lab import bench
from ropewalk.lab.bench.job import Job, Row
from ropewalk.lab.bench.report import LABELS, excuse, figure, words
from ropewalk.lab.bench.steps import MODES
from ropewalk.lab.choose import Refusal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def measure(
    suites: Sequence[str],
    path: Path,
    console: "Console",
    *,
    names: Collection[str] = (),
    modes: Collection[str] = (),
) -> tuple[dict[str, Any], list[Path]]:
    """Run the suites, and write the document and, if steps were measured, their picture."""
    suites, modes = suites or tuple(bench.SUITES), modes or MODES
    done: list[Row] = []
    count = len(_planned(suites, path, names, modes))
    try:
        document = _run(suites, path, console, count, done, names=names, modes=modes)
    except KeyboardInterrupt:
        where = f"{len(done)} of {count} rows are in {path}" if done else f"nothing was measured, {path} is as it was"
        console.print(f"stopped: {where}")
        raise
    for made in tables(document["rows"]):
        console.print(made)
    if not any("train ms ratio" in row for row in document["rows"]):
        return document, [path]
    return document, [path, _picture(document, path.with_suffix(".png"))]


def columns(rows: Iterable[Row]) -> list[str]:
    """What any of the rows has a figure of."""
    return list(dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, float)))


def grouped(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Rows that differ by their names alone, with the words that they have in common."""

    def common(row: Row) -> str:
        return ", ".join(row[key] for key in LABELS[:-1] if key in row)

    for title, found in itertools.groupby(rows, common):
        yield title, list(found)


def tables(rows: Sequence[Row]) -> "Iterator[Table]":
    """A table for each group of rows. A row without figures says why in the last column."""
    from rich import box
    from rich.table import Table

    for title, group in grouped(rows):
        made = Table("name", box=box.SIMPLE_HEAD, title=title, title_justify="left")
        for key in columns(group):
            made.add_column(key, justify="right")
        made.add_column("")
        for row in group:
            cells = [figure(row[key]) if key in row else "" for key in columns(group)]
            made.add_row(row["name"], *cells, excuse(row))
        yield made


def _planned(suites: Sequence[str], path: Path, names: Collection[str], modes: Collection[str]) -> list[Job]:
    """The jobs, if all that is asked for is there."""
    if path.suffix != ".json":
        raise Refusal(f"--out must be a file that ends in .json, got {path}")
    for kind, asked, known in (("suite", suites, tuple(bench.SUITES)), ("mode", modes, MODES)):
        if unknown := [word for word in asked if word not in known]:
            raise Refusal(f"no {kind} is named {', '.join(unknown)}; there are {', '.join(known)}")
    every = bench.plan(suites)
    if unknown := [name for name in names if not any(job.answers_to([name]) for job in every)]:
        known = tuple(dict.fromkeys(job.labels["name"].partition(",")[0] for job in every))
        raise Refusal(f"no row is named {', '.join(unknown)}; there are {', '.join(known)}")
    return bench.plan(suites, names, modes)


def _run(
    suites: Sequence[str], path: Path, console: "Console", count: int, done: list[Row], **choice: Any
) -> dict[str, Any]:
    """Measure, with a bar that says what is being measured and how many rows are done, and a line for each of them."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    looks = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    # A bar that moved by itself would take its time from what is measured.
    with Progress(*looks, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("", total=count)

        def begun(job: Job) -> None:
            progress.update(task, description=" · ".join(job.labels.values()), refresh=True)

        def told(row: Row) -> None:
            done.append(row)
            console.print(words(row))
            progress.advance(task)

        try:
            return bench.run(suites, path, told, begun=begun, **choice)
        except OSError as error:
            raise Refusal(f"{path} cannot be written: {error.strerror or error}") from error


def _picture(document: dict[str, Any], path: Path) -> Path:
    from ropewalk.lab.drawing import rendered
    from ropewalk.lab.plots import cost

    path.write_bytes(rendered(cost(document), "png"))
    return path

"""Benchmarks from the command line: which suites, told as they go, and where the results are."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.lab import bench
from ropewalk.lab.bench.report import words
from ropewalk.lab.choose import Refusal

if TYPE_CHECKING:
    from rich.console import Console


def measure(suites: Sequence[str], path: Path, console: "Console") -> tuple[dict[str, Any], list[Path]]:
    """Run the suites, and write the document and, if steps were measured, their picture."""
    unknown = [suite for suite in suites if suite not in bench.SUITES]
    if unknown:
        raise Refusal(f"no suite is named {', '.join(unknown)}; there are {', '.join(bench.SUITES)}")
    if path.suffix != ".json":
        raise Refusal(f"--out must be a file that ends in .json, got {path}")
    with console.status("measuring"):
        document = _run(suites or tuple(bench.SUITES), path, console)
    if not any(row["suite"] == "steps" for row in document["rows"]):
        return document, [path]
    from ropewalk.lab.drawing import rendered
    from ropewalk.lab.plots import cost

    picture = path.with_suffix(".png")
    picture.write_bytes(rendered(cost(document), "png"))
    return document, [path, picture]


def _run(suites: Sequence[str], path: Path, console: "Console") -> dict[str, Any]:
    try:
        return bench.run(suites, path, lambda row: console.print(words(row)))
    except OSError as error:
        raise Refusal(f"{path} cannot be written: {error.strerror or error}") from error

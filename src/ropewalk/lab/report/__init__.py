"""A report of runs: one HTML page that needs nothing else, a table as CSV, and its figures as PNG.

It is built from the folders of the runs alone, and the same folders give the same bytes. Runs are compared where all
settings are equal but encoding, options and seed. What is missing is left out and told. Whatever comes from a file is text.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from ropewalk.lab.report.attending import attention
from ropewalk.lab.report.conclusions import conclude
from ropewalk.lab.report.figures import Shown, Sources, accuracy, cost, learning
from ropewalk.lab.report.gather import Group, groups_of
from ropewalk.lab.report.page import Chapter, page
from ropewalk.lab.report.panels import Styles
from ropewalk.lab.report.pictures import pictures
from ropewalk.lab.report.probed import frequencies, offset, resolution, translation
from ropewalk.lab.report.rows import rows_of, spreadsheet
from ropewalk.lab.report.styles import styles_of
from ropewalk.lab.report.texts import extensions, passkey, positions
from ropewalk.lab.store import Run, put

FIGURES: tuple[Callable[[Sources], Shown | str], ...] = (
    accuracy, learning, resolution, offset, translation, frequencies, attention, cost,
)  # fmt: skip
READING = (accuracy, learning, positions, extensions, passkey, cost)
"""Those of text."""
FINDING = (accuracy, learning, pictures, cost)
"""Those of boxes, masks and maps."""


def report(runs: Sequence[Run], out: Path, *, question: str = "", baseline: str = "none") -> Path:
    """Write report.html, report.csv and figures/*.png into a folder, and return the page.

    `baseline` is the label of an encoding: its name, and its options as in liere:block=4.
    """
    if not runs:
        raise ValueError("a report wants at least one run, got none")
    groups = groups_of(runs)
    styles = styles_of({label for group in groups for label in group.found}, baseline)
    chapters = [
        _chapter(group, styles, baseline, f"-{i}" if len(groups) > 1 else "") for i, group in enumerate(groups, start=1)
    ]
    for each in chapters:
        for panel in (panel for shown in each.figures if not isinstance(shown, str) for panel in shown.panels):
            _write(out / "figures" / f"{panel.name}.png", panel.png)
    _write(out / "report.csv", spreadsheet([each.rows for each in chapters]).encode())
    return _write(out / "report.html", page(chapters, styles, question=question, baseline=baseline).encode())


def _chapter(group: Group, styles: Styles, baseline: str, mark: str) -> Chapter:
    rows = rows_of(group, baseline)
    sources = Sources(group, rows, styles, baseline, mark)
    return Chapter(group, rows, conclude(group, rows, baseline), [draw(sources) for draw in _figures(group)], mark)


def _figures(group: Group) -> tuple[Callable[[Sources], Shown | str], ...]:
    if group.settings.get("task") is not None:
        return FINDING
    return FIGURES if group.settings.get("length") is None else READING


def _write(path: Path, content: bytes) -> Path:
    """Put a file in place, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    put(path, lambda part: part.write_bytes(content))
    return path

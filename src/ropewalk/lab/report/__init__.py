"""A report of runs: one HTML page that needs nothing else, a table as CSV, and its figures as PNG.

It is built from the folders of the runs alone, and the same folders give the same bytes. Runs are compared where all
settings are equal but encoding, options and seed. What is missing is left out and told. Whatever comes from a file is text.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from ropewalk.lab.report.conclusions import write_conclusions
from ropewalk.lab.report.figures import (
    FigureSources,
    ReportFigure,
    make_accuracy_figure,
    make_cost_figure,
    make_learning_figure,
    make_predictions_figure,
)
from ropewalk.lab.report.groups import RunGroup, group_runs
from ropewalk.lab.report.learned_figures import make_attention_figure
from ropewalk.lab.report.page import ReportChapter, render_page
from ropewalk.lab.report.panels import StyleMap
from ropewalk.lab.report.probe_figures import (
    make_frequencies_figure,
    make_offset_figure,
    make_resolution_figure,
    make_translation_figure,
)
from ropewalk.lab.report.table import build_table_rows, format_csv
from ropewalk.lab.report.text_figures import make_extensions_figure, make_passkey_figure, make_positions_figure
from ropewalk.lab.report.theme import assign_styles
from ropewalk.lab.run_store import RunFolder, write_atomically
from ropewalk.lab.task_types import find_task

FIGURES: dict[str, Callable[[FigureSources], ReportFigure | str]] = {
    "accuracy": make_accuracy_figure,
    "learning": make_learning_figure,
    "resolution": make_resolution_figure,
    "offset": make_offset_figure,
    "translation": make_translation_figure,
    "frequencies": make_frequencies_figure,
    "attention": make_attention_figure,
    "positions": make_positions_figure,
    "extensions": make_extensions_figure,
    "passkey": make_passkey_figure,
    "predictions": make_predictions_figure,
    "cost": make_cost_figure,
}
"""Figures by name; a task names those that it shows."""


def write_report(runs: Sequence[RunFolder], out: Path, *, question: str = "", baseline: str = "none") -> Path:
    """Write report.html, report.csv and figures/*.png into a folder, and return the page.

    `baseline` is the label of an encoding: its name, and its options as in liere:block=4.
    """
    if not runs:
        raise ValueError("a report wants at least one run, got none")
    groups = group_runs(runs)
    styles = assign_styles({label for group in groups for label in group.found}, baseline)
    chapters = [
        _build_chapter(group, styles, baseline, f"-{i}" if len(groups) > 1 else "")
        for i, group in enumerate(groups, start=1)
    ]
    for each in chapters:
        for panel in (panel for shown in each.figures if not isinstance(shown, str) for panel in shown.panels):
            _write_file(out / "figures" / f"{panel.name}.png", panel.png)
    _write_file(out / "report.csv", format_csv([each.rows for each in chapters]).encode())
    return _write_file(out / "report.html", render_page(chapters, styles, question=question, baseline=baseline).encode())


def _build_chapter(group: RunGroup, styles: StyleMap, baseline: str, mark: str) -> ReportChapter:
    rows = build_table_rows(group, baseline)
    sources = FigureSources(group, rows, styles, baseline, mark)
    return ReportChapter(
        group,
        rows,
        write_conclusions(group, rows, baseline),
        [FIGURES[name](sources) for name in find_task(group.settings).figures],
        mark,
    )


def _write_file(path: Path, content: bytes) -> Path:
    """Put a file in place, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda part: part.write_bytes(content))
    return path


report = write_report  # a former name, which scripts may import

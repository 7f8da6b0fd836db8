"""A report of runs: one HTML page that needs nothing else, a table as CSV, and its figures as PNG.

It is made from the records of the runs, and from their directories where these are at hand: weights and pictures. The same
records give the same bytes. Runs are compared if all settings but the encoding, its options and the seed are equal. What is
missing is left out, with a sentence that names it. Whatever comes from a file is shown as text.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ropewalk.lab.record import RunRecord
from ropewalk.lab.report.conclusions import write_conclusions
from ropewalk.lab.report.figures import make_figures
from ropewalk.lab.report.groups import RunGroup, group_records
from ropewalk.lab.report.page import ReportChapter, render_page
from ropewalk.lab.report.panels import FigureSources
from ropewalk.lab.report.theme import StyleMap, assign_styles
from ropewalk.lab.result_rows import build_table_rows, sort_table_rows
from ropewalk.lab.results_table import format_csv
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import write_atomically


def write_report(runs: Sequence[RunFolder | RunRecord], out: Path, *, question: str = "", baseline: str = "none") -> Path:
    """Write report.html, report.csv and figures/*.png into a folder, and return the path of the page.

    runs      Run directories, or records from `load_run` and `load_records`.
    baseline  Label of the encoding that others are compared with: its name, and its options as in liere:block=4.
    """
    if not runs:
        raise ValueError("a report needs at least one run, got none")
    groups = group_records([_drop_unreliable_times(_get_record(run)) for run in runs])
    styles = assign_styles({label for group in groups for label in group.found}, baseline)
    chapters = [
        _build_chapter(group, styles, baseline, i, f"-{i}" if len(groups) > 1 else "")
        for i, group in enumerate(groups, start=1)
    ]
    for each in chapters:
        for panel in (panel for shown in each.figures if not isinstance(shown, str) for panel in shown.panels):
            _write_file(out / "figures" / f"{panel.name}.png", panel.png)
    _write_file(out / "report.csv", format_csv([each.rows for each in chapters], "report.csv").encode())
    return _write_file(out / "report.html", render_page(chapters, styles, question=question, baseline=baseline).encode())


def describe_findings(records: Sequence[RunRecord], baseline: str = "none") -> list[str]:
    """The findings of the report in sentences, those of comparable runs together."""
    groups = group_records(records)
    tables = [
        sort_table_rows(build_table_rows(group.found, group.metric, baseline=baseline), first=baseline) for group in groups
    ]
    return [
        sentence
        for group, rows in zip(groups, tables, strict=True)
        for sentence in write_conclusions(group, rows, baseline).findings
    ]


def _get_record(run: RunFolder | RunRecord) -> RunRecord:
    return load_run(run.path) if isinstance(run, RunFolder) else run


def _drop_unreliable_times(record: RunRecord) -> RunRecord:
    """Drop the times of a JSON line that does not record how many other runs shared the machine."""
    if record.location is not None or record.neighbors is not None:
        return record
    result = record.result and {name: value for name, value in record.result.items() if name != "seconds"}
    return replace(record, result=result, probes={name: rows for name, rows in record.probes.items() if name != "cost"})


def _build_chapter(group: RunGroup, styles: StyleMap, baseline: str, number: int, suffix: str) -> ReportChapter:
    rows = build_table_rows(group.found, group.metric, baseline=baseline, group=number)
    rows = sort_table_rows(rows, first=baseline)
    figures = make_figures(FigureSources(group, rows, styles, baseline, suffix))
    return ReportChapter(group, rows, write_conclusions(group, rows, baseline), figures, suffix)


def _write_file(path: Path, content: bytes) -> Path:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda part: part.write_bytes(content))
    return path


report = write_report  # a former name, which scripts may import

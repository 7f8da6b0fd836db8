"""Reports of studies as pages of the site, from the lines of their runs in results: studies/NAME-report.html."""

import shutil
import tempfile
from pathlib import Path

import studied
from ropewalk.lab.report import write_report
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.unfolded import restore_line_runs

PARTS = {"equivariance": "main", "volumes": "half", "pedestrians": "masks"}
"""What is reported of each study."""


def write(name: str, pages: Path) -> None:
    """The report of a study beside its page."""
    with tempfile.TemporaryDirectory() as scratch:
        runs = restore_line_runs(studied.RESULTS / name / f"{PARTS[name]}.jsonl", Path(scratch) / "runs")
        made = write_report(runs, Path(scratch) / "out", question=ALL_STUDIES[name].question, baseline="learned-ape")
        shutil.copy(made, pages / "studies" / f"{name}-report.html")

"""Reports of studies as pages of the site, from the lines of their runs in results: studies/NAME-report.html."""

import shutil
import tempfile
from pathlib import Path

import studied
from ropewalk.lab.report import report
from ropewalk.lab.studies import STUDIES
from ropewalk.lab.studies.unfolded import unfolded

PARTS = {"equivariance": "main", "volumes": "half", "pedestrians": "masks"}
"""What is reported of each study."""


def write(name: str, pages: Path) -> None:
    """The report of a study beside its page."""
    with tempfile.TemporaryDirectory() as scratch:
        runs = unfolded(studied.RESULTS / name / f"{PARTS[name]}.jsonl", Path(scratch) / "runs")
        made = report(runs, Path(scratch) / "out", question=STUDIES[name].question, baseline="learned-ape")
        shutil.copy(made, pages / "studies" / f"{name}-report.html")

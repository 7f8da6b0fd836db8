"""Reports of studies as pages of the site, from the lines of their runs in results: studies/NAME-report.html."""

import shutil
import tempfile
from pathlib import Path

import studied
from ropewalk.lab.record import load_records
from ropewalk.lab.report import write_report
from ropewalk.lab.studies import ALL_STUDIES

PARTS = {"equivariance": "main", "volumes": "half", "pedestrians": "masks"}
"""What is reported of each study."""


def write(name: str, pages: Path) -> None:
    """The report of a study beside its page."""
    with tempfile.TemporaryDirectory() as scratch:
        records = load_records(studied.RESULTS / name / f"{PARTS[name]}.jsonl")
        made = write_report(records, Path(scratch), question=ALL_STUDIES[name].question, baseline="learned-ape")
        shutil.copy(made, pages / "studies" / f"{name}-report.html")

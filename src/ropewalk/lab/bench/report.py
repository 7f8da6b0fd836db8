"""Run suites, keep what was measured as it comes, and say it in a table and a picture."""

import datetime
import json
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ropewalk.lab.bench import lengths, rotations, steps

Rows = Callable[[], Iterator[dict[str, Any]]]
SUITES: dict[str, Rows] = {"ops": rotations.rows, "lengths": lengths.rows, "steps": steps.rows}


def run(suites: Sequence[str], path: Path, told: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measure, and write the document anew after each row: what was measured is not lost."""
    document: dict[str, Any] = {"machine": machine(), "rows": []}
    for suite in suites:
        for row in SUITES[suite]():
            document["rows"].append({key: _short(value) for key, value in row.items()})
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(document, indent=1) + "\n")
            told(document["rows"][-1])
    return document


def machine() -> dict[str, Any]:
    """Where and with what."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    try:
        import triton

        versions["triton"] = triton.__version__
    except ImportError:
        pass
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    return {"device": name, **versions, "date": datetime.date.today().isoformat()}


def words(row: dict[str, Any]) -> str:
    """A row in a line."""
    label = " · ".join(str(row[key]) for key in ("shape", "mode", "name") if key in row)
    figures = [f"{key} {value:,.4g}" for key, value in row.items() if isinstance(value, float)]
    return f"{label}: {', '.join(figures) or row.get('refused', '')}"


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value

"""The lab: what is drawn, measured and trained with the library; it needs the extra `lab`.

    from ropewalk.lab import RECIPES, compare_encodings, probe_run, train_run, write_report

These names are loaded on demand, since most of them import accelerate or matplotlib.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.lab.compare.run import compare_encodings as compare_encodings
    from ropewalk.lab.compare.run import format_comparison_csv as format_comparison_csv
    from ropewalk.lab.compare.run import tabulate_comparison as tabulate_comparison
    from ropewalk.lab.config import Config as Config
    from ropewalk.lab.probes import probe_run as probe_run
    from ropewalk.lab.recipes import RECIPES as RECIPES
    from ropewalk.lab.record import RunRecord as RunRecord
    from ropewalk.lab.record_lines import load_records as load_records
    from ropewalk.lab.report import write_report as write_report
    from ropewalk.lab.run_loading import load_run as load_run
    from ropewalk.lab.run_store import RunFolder as RunFolder
    from ropewalk.lab.tasks.base import normalize_images as normalize_images
    from ropewalk.lab.tasks.classify import open_image_data as open_image_data
    from ropewalk.lab.tasks.trained_images import load_image_model as load_image_model
    from ropewalk.lab.train import train_run as train_run

    Run = RunFolder

_HOMES = {
    "Config": "config:Config",
    "RECIPES": "recipes:RECIPES",
    "Run": "run_store:RunFolder",
    "RunFolder": "run_store:RunFolder",
    "RunRecord": "record:RunRecord",
    "compare_encodings": "compare.run:compare_encodings",
    "format_comparison_csv": "compare.run:format_comparison_csv",
    "load_image_model": "tasks.trained_images:load_image_model",
    "load_records": "record_lines:load_records",
    "load_run": "run_loading:load_run",
    "normalize_images": "tasks.base:normalize_images",
    "open_image_data": "tasks.classify:open_image_data",
    "probe_run": "probes:probe_run",
    "tabulate_comparison": "compare.run:tabulate_comparison",
    "train_run": "train:train_run",
    "write_report": "report:write_report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_HOMES)}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

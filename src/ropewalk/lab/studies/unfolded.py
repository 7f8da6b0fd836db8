"""Run directories made from the JSON lines of a study, for code that reads directories: without weights and cost."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ropewalk.lab.config import Config
from ropewalk.lab.record import RunRecord, load_records
from ropewalk.lab.run_store import RunFolder


def restore_line_runs(path: Path, folder: Path) -> list[RunFolder]:
    """The runs of a file of records, each in a folder of its own within this one."""
    return [_restore_run(record, folder / f"{number:05}") for number, record in enumerate(load_records(path), 1)]


def _restore_run(record: RunRecord, folder: Path) -> RunFolder:
    for origin in record.origins:
        _make_folder(origin, folder)
    run = _make_folder(record.config, folder)
    result = {name: value for name, value in (record.result or {}).items() if name != "seconds"}
    _put(run, "result.json", result)
    _put(run, "metrics.jsonl", *record.metrics)
    _put(run, "probes.json", {name: rows for name, rows in record.probes.items() if name not in ("cost", "refused")})
    _put(run, "environment.json", {"machine": record.machine, "versions": record.versions, "restored": True})
    return run


def _make_folder(config: Config, folder: Path) -> RunFolder:
    run = RunFolder(folder, config)
    run.path.mkdir(parents=True)
    _put(run, "config.json", config.document())
    return run


def _put(run: RunFolder, name: str, *documents: Mapping[str, Any]) -> None:
    """Write a temporary file, without waiting for the disk."""
    (run.path / name).write_text("".join(json.dumps(each) + "\n" for each in documents))

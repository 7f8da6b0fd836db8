"""The record of a run, read from its directory: what is missing is skipped, and what cannot be read is listed as a problem.

    config.json        config; the settings of the runs it was initialised from come from their own directories
    environment.json   encoding, commit, versions, machine, attention_kernel, processes, neighbors, data, created, index_seed
    metrics.jsonl      metrics
    result.json        result, test_correct
    probes.json        probes
    failed.txt         failure

Numbers that are not finite are dropped.
"""

import math
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ropewalk.lab.config import Config
from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.file_gate import read_file_text
from ropewalk.lab.record import MAX_ORIGINS, PROVENANCE_RULES, RunRecord
from ropewalk.lab.run_store import RunFolder
from ropewalk.validation import is_finite_number


def load_run(path: Path | str) -> RunRecord:
    """Load a run directory. Missing files are skipped; files that cannot be read are listed in `problems`.

    Raises ValueError or DamagedFileError if there is no readable config.json.
    """
    run = RunFolder.at(path)
    problems: list[str] = []

    def report(problem: str) -> None:
        problems.append(problem.replace(str(run.path), run.path.name))

    def attempt(read: Callable[[], Any], default: Any) -> Any:
        try:
            found = read()
        except (DamagedFileError, OSError, ValueError) as error:
            report(str(error))
            return default
        return default if found is None else found

    if (problem := run.find_name_problem()) is not None:
        report(problem)
    result = attempt(run.result, None)
    environment = attempt(lambda: run.read_document("environment.json"), {})
    probes = attempt(lambda: run.read_document("probes.json"), {})
    problems += [
        f"{run.path.name}/probes.json must have a list of objects as {name}, got {reprlib.repr(rows)}"
        for name, rows in probes.items()
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows)
    ]
    metrics, failure = attempt(run.metrics, []), attempt(lambda: _read_failure(run.path / "failed.txt"), None)
    for problem in attempt(run.find_metrics_problems, []) if result is not None else []:
        report(problem)
    correct = (result or {}).get("test_correct")
    return RunRecord(
        config=run.config,
        run=run.config.name,
        origins=_load_origins(run),
        result=None if result is None else _select_finite(result),
        metrics=[_select_finite(each) for each in metrics if isinstance(each, dict)],
        probes=_select_rows(probes),
        **{name: found for name, rule in PROVENANCE_RULES.items() if rule.right(found := environment.get(name))},
        encoding=found if isinstance(found := environment.get("encoding"), dict) else None,
        test_correct=correct if isinstance(correct, str) else None,
        failure=failure if result is None else None,
        location=str(run.path),
        problems=tuple(dict.fromkeys(problems)),
    )


def _load_origins(run: RunFolder) -> tuple[Config, ...]:
    """Follow `start`; a directory that is not at its path is looked for beside the run that names it."""
    found: list[Config] = []
    while len(found) < MAX_ORIGINS and (origin := _open_origin(run)) is not None:
        found.append(origin.config)
        run = origin
    return tuple(found)


def _open_origin(run: RunFolder) -> RunFolder | None:
    folder = run.config.start_path
    for place in () if folder is None else (folder, run.path.parent / folder.name):
        try:
            return RunFolder.at(place)
        except (ValueError, DamagedFileError, OSError):
            continue
    return None


def _read_failure(path: Path) -> str | None:
    return read_file_text(path, errors="replace").strip() or None if path.exists() else None


def _select_finite(record: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in record.items() if is_finite_number(value)}


def _select_rows(document: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    lists = {name: value for name, value in document.items() if isinstance(value, list)}
    return {name: [_drop_nonfinite(each) for each in rows if isinstance(each, dict)] for name, rows in lists.items()}


def _drop_nonfinite(value: Any) -> Any:
    """Replace floats that are not finite by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _drop_nonfinite(each) for name, each in value.items()}
    return [_drop_nonfinite(each) for each in value] if isinstance(value, list) else value

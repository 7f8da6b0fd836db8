"""Lines of a study as folders of runs again, for what reads folders: a report needs no more than lines hold.

There are no weights, no pictures, no losses of training, and no refusals of probes; nor times, since lines do not say what
else ran beside a run. First weights, data that a line does not name, and where they lie are as the study has them.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ropewalk.lab.config import Config
from ropewalk.lab.errors import CommandError
from ropewalk.lab.metrics import BOX_AP, select_metric
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.studies.lines import load_result_lines
from ropewalk.lab.studies.run import get_start_config
from ropewalk.lab.studies.whose import (
    LINE_RULES,
    LineDocument,
    check_line,
    check_line_encoding,
    check_line_fields,
    find_line_study,
    find_replaced_settings,
)
from ropewalk.validation import NUMBER_RULE

NO_RESULTS = {*LINE_RULES, "seconds"} - {"step"}
"""What of a line its run did not come to, or what is left out."""
CURVES = ("curve", "box_curve")


def restore_line_runs(path: Path, folder: Path) -> list[RunFolder]:
    """The runs of a file of lines, each in a folder of its own within this one."""
    runs: list[RunFolder] = []
    for number, line in enumerate(load_result_lines(path), 1):
        try:
            runs.append(_run(line, folder / f"{number:05}"))
        except (CommandError, ValueError, TypeError, ArithmeticError, RuntimeError) as error:
            raise ValueError(f"line {number} of {path} must be of a run of a study: {error}") from error
    return runs


def _run(line: LineDocument, folder: Path) -> RunFolder:
    """The folder of a run, and beside it that of the run that it began with."""
    check_line(line)
    study = find_line_study(line)
    given = find_replaced_settings(study, line)
    config = study.of(line["part"], line["name"], line["seed"], given)
    check_line_encoding(line, config)
    if study.parts[line["part"]].after is not None:
        first = _folder(get_start_config(study, line["part"], line["name"], line["seed"], given), folder)
        config = replace(config, start=f"runs/{first.path.name}")
    return _filled(_folder(config, folder), line)


def _folder(config: Config, folder: Path) -> RunFolder:
    run = RunFolder(folder, config)
    run.path.mkdir(parents=True)
    _put(run, "config.json", config.document())
    return run


def _filled(run: RunFolder, line: LineDocument) -> RunFolder:
    """A folder with all that a line says of it."""
    result = {name: value for name, value in line.items() if name not in NO_RESULTS}
    check_line_fields(line, {f"test_{select_metric(run.config.document()).key}": NUMBER_RULE})
    _put(run, "result.json", result)
    _put(run, "metrics.jsonl", *_records(run.config, line))
    _put(run, "probes.json", {name: rows for name, rows in line["probes"].items() if name != "cost"})
    told = {"machine": {"device": line["device"]}, "versions": {"torch": line["torch"]}}
    _put(run, "environment.json", told | {"restored": True})
    return run


def _put(run: RunFolder, name: str, *documents: Mapping[str, Any]) -> None:
    """Write a file that need not outlive a crash: what waits for the disk would take seconds."""
    (run.path / name).write_text("".join(json.dumps(each) + "\n" for each in documents))


def _records(config: Config, line: LineDocument) -> list[dict[str, Any]]:
    """What its validations came to."""
    curves, count = {name: line[name] for name in CURVES if name in line}, len(config.validation_epochs) + 1
    for name, values in curves.items():
        if len(values) != count:
            raise ValueError(f"{name} must have a number for each of {count} validations, got {len(values)}")
    keys = {"curve": select_metric(config.document()).key, "box_curve": BOX_AP.key}
    return [
        {"step": line["step"] * epoch // config.epochs, "epoch": epoch}
        | {f"validation_{keys[name]}": values[i] for name, values in curves.items()}
        for i, epoch in enumerate((*config.validation_epochs, config.epochs))
    ]

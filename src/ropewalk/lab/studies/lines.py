"""What is written down of the runs of a study: a file of JSON lines for each part, a line for each run that is done.

    {"study": "equivariance", "part": "main", "name": "liere-8", "encoding": {"name": "liere", …}, "seed": 0, …}

A line has the whole config of the encoding as it was trained, the name of the data, the result of the run, what each of its
validations came to, and what probes found. Weights stay with the run.
"""

import fcntl
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ropewalk.lab.config import Config
from ropewalk.lab.encoding_weights import load_run_encoding
from ropewalk.lab.metrics import BOX_AP, RunMetric, select_metric
from ropewalk.lab.probes import REFUSED_KEY, load_probes
from ropewalk.lab.run_store import RunFolder, read_json, write_atomically
from ropewalk.lab.studies.study import Study

LINE_DIGITS = 5
LINE_OMITTED_SETTINGS = ("encoding", "options", "seed", "epochs", "data", "root", "workers", "checkpoint", "start")
"""Settings that a line says elsewhere, or not at all: where data and first weights were changes no result."""


def build_result_line(study: Study, part: str, run: RunFolder) -> dict[str, Any]:
    """All that is known of a run that is done."""
    config, result, told = run.config, run.result(), read_json(run.path / "environment.json")
    if result is None:
        raise ValueError(f"only a run that is done has a line, and {run.path} has no result.json")
    head = {
        "study": study.name,
        "part": part,
        "name": study.named(config),
        "encoding": get_trained_encoding(run),
        "seed": config.seed,
        "data": get_data_name(config),
    }
    curves = {"curve": _curve(run, select_metric(config.document()))}
    if config.task == "masks":
        curves["box_curve"] = _curve(run, BOX_AP)
    left_out = (REFUSED_KEY,) if config.seed == 0 else (REFUSED_KEY, "waves")  # of one seed they fill a picture
    probes = {name: rows for name, rows in load_probes(run).items() if name not in left_out}
    more = {**curves, "probes": probes, "device": told["machine"]["device"], "torch": told["versions"]["torch"]}
    return {**head, "epochs": config.epochs, **_short(result), **_short(more), "settings": get_line_settings(config)}


def _curve(run: RunFolder, metric: RunMetric) -> list[float]:
    """What its validations came to."""
    key = f"validation_{metric.key}"
    return [each[key] for each in run.metrics() if key in each]


def get_trained_encoding(run: RunFolder) -> dict[str, Any]:
    """The whole config of the encoding, with the stretch that its span gave it."""
    return load_run_encoding(str(run.path))[0].config()


def get_data_name(config: Config) -> str:
    """The name of the data of a run, wherever they lay."""
    return Path(config.data).absolute().name


def get_line_settings(config: Config) -> dict[str, Any]:
    """Those of a run that its line says together."""
    return drop_unset_settings(
        {name: value for name, value in config.document().items() if name not in LINE_OMITTED_SETTINGS}
    )


def drop_unset_settings(document: dict[str, Any]) -> dict[str, Any]:
    """Settings that say something: lines may be older than some that are none here."""
    return {name: value for name, value in document.items() if value is not None}


def write_result_lines(path: Path, lines: Iterable[dict[str, Any]]) -> Path:
    """Write lines, beside those of other runs that are there; one of the same run is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes may have lines for the same file
        there = {_of(each): each for each in (load_result_lines(path) if path.exists() else [])}
        there |= {_of(each): each for each in lines}
        write_atomically(
            path,
            lambda part: part.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in there.values())),
        )
    return path


def load_result_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a part."""
    found: list[dict[str, Any]] = []
    for number, text in enumerate(_text(path).splitlines(), 1):
        try:
            found.append(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} of {path} must be JSON: {error}") from error
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8, got other bytes: {error}") from error


def _of(one: dict[str, Any]) -> tuple[Any, ...]:
    """By what runs of a part are told apart."""
    return one["name"], one["seed"], one["epochs"]


def _short(value: Any) -> Any:
    """Numbers with few digits."""
    if isinstance(value, float):
        return float(f"{value:.{LINE_DIGITS}g}")
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    return [_short(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else value

"""What the folder of a run says. What it does not have is left out, and what cannot be read is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.metrics import select_metric
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.run_store import read_json as read_file
from ropewalk.validation import is_finite_number

ProbeEntry = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LoadedRun:
    """One run. `result` has finite numbers alone; `failed` says why it ended, if it did; `troubles` are unreadable files."""

    run: RunFolder
    result: dict[str, float] = field(default_factory=dict)
    metrics: list[dict[str, float]] = field(default_factory=list)
    probes: dict[str, list[ProbeEntry]] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    failed: str = ""
    troubles: tuple[str, ...] = ()

    @property
    def score(self) -> float | None:
        """What it is judged by, on the test set, once the run is done."""
        return self.result.get(f"test_{select_metric(self.run.config.document()).key}")

    @property
    def restored(self) -> bool:
        """Whether its folder was made from a line of a study."""
        return self.environment.get("restored") is True

    def format_error(self, error: Exception) -> str:
        """What is wrong, without saying where the runs lie."""
        return _hide_run_path(self.run, error)

    @property
    def state(self) -> str:
        """In a few words."""
        if self.score is not None:
            return "done"
        if self.failed:
            return f"failed: {self.failed}"
        epoch = max((int(record["epoch"]) for record in self.metrics if "epoch" in record), default=0)
        return f"not finished: {epoch} of {self.run.config.epochs} epochs"


def load_run_results(run: RunFolder) -> LoadedRun:
    """All that the folder of a run says."""
    troubles: list[str] = []
    result = _select_finite(_try_read(troubles, run, run.result))
    metric = select_metric(run.config.document())
    failed = "" if f"test_{metric.key}" in result else _read_text(run, "failed.txt")
    if not failed and f"test_{metric.key}" not in result and (run.path / "result.json").exists():
        failed = f"its result.json has no test {metric.name} that is a number"
    return LoadedRun(
        run=run,
        result=result,
        metrics=[_select_finite(record) for record in _try_read(troubles, run, run.metrics) if isinstance(record, dict)],
        probes=_select_probe_entries(_try_read(troubles, run, lambda: _read_object(run, "probes.json"))),
        environment=dict(_try_read(troubles, run, lambda: _read_object(run, "environment.json"))),
        failed=failed,
        troubles=tuple(troubles),
    )


def _try_read(troubles: list[str], run: RunFolder, look: Callable[[], Any]) -> Any:
    """What is there, or nothing, and then what is wrong with it."""
    try:
        return look() or {}
    except (DamagedFileError, OSError) as error:
        troubles.append(_hide_run_path(run, error))
        return {}


def _hide_run_path(run: RunFolder, error: Exception) -> str:
    return str(error).replace(str(run.path), run.path.name)


def _read_object(run: RunFolder, name: str) -> dict[str, Any]:
    """The object in a file, empty where there is no file."""
    return read_file(run.path / name) if (run.path / name).is_file() else {}


def _read_text(run: RunFolder, name: str) -> str:
    path = run.path / name
    return path.read_text(errors="replace").strip() if path.is_file() else ""


def _select_probe_entries(document: Mapping[str, Any]) -> dict[str, list[ProbeEntry]]:
    """The entries that are objects, by probe."""
    lists = {name: value for name, value in document.items() if isinstance(value, list)}
    return {name: [each for each in value if isinstance(each, dict)] for name, value in lists.items()}


def _select_finite(record: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in record.items() if parse_finite(value) is not None}


def parse_finite(value: Any) -> float | None:
    """A finite number, or None."""
    return value if is_finite_number(value) else None

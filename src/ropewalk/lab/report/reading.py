"""What the folder of a run says. What it does not have is left out, and what cannot be read is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ropewalk.lab.metric import metric_of
from ropewalk.lab.rules import finite
from ropewalk.lab.store import Damaged, Run
from ropewalk.lab.store import read as read_file

Entry = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Found:
    """One run. `result` has finite numbers alone; `failed` says why it ended, if it did; `troubles` are unreadable files."""

    run: Run
    result: dict[str, float] = field(default_factory=dict)
    metrics: list[dict[str, float]] = field(default_factory=list)
    probes: dict[str, list[Entry]] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    failed: str = ""
    troubles: tuple[str, ...] = ()

    @property
    def score(self) -> float | None:
        """What it is judged by, on the test set, once the run is done."""
        return self.result.get(f"test_{metric_of(self.run.config.document()).key}")

    @property
    def restored(self) -> bool:
        """Whether its folder was made from a line of a study."""
        return self.environment.get("restored") is True

    def nameless(self, error: Exception) -> str:
        """What is wrong, without saying where the runs lie."""
        return _nameless(self.run, error)

    @property
    def state(self) -> str:
        """In a few words."""
        if self.score is not None:
            return "done"
        if self.failed:
            return f"failed: {self.failed}"
        epoch = max((int(record["epoch"]) for record in self.metrics if "epoch" in record), default=0)
        return f"not finished: {epoch} of {self.run.config.epochs} epochs"


def read(run: Run) -> Found:
    """All that the folder of a run says."""
    troubles: list[str] = []
    result = _numbers(_tried(troubles, run, run.result))
    metric = metric_of(run.config.document())
    failed = "" if f"test_{metric.key}" in result else _text(run, "failed.txt")
    if not failed and f"test_{metric.key}" not in result and (run.path / "result.json").exists():
        failed = f"its result.json has no test {metric.name} that is a number"
    return Found(
        run=run,
        result=result,
        metrics=[_numbers(record) for record in _tried(troubles, run, run.metrics) if isinstance(record, dict)],
        probes=_probes(_tried(troubles, run, lambda: _object(run, "probes.json"))),
        environment=dict(_tried(troubles, run, lambda: _object(run, "environment.json"))),
        failed=failed,
        troubles=tuple(troubles),
    )


def _tried(troubles: list[str], run: Run, look: Callable[[], Any]) -> Any:
    """What is there, or nothing, and then what is wrong with it."""
    try:
        return look() or {}
    except (Damaged, OSError) as error:
        troubles.append(_nameless(run, error))
        return {}


def _nameless(run: Run, error: Exception) -> str:
    return str(error).replace(str(run.path), run.path.name)


def _object(run: Run, name: str) -> dict[str, Any]:
    """The object in a file, empty where there is no file."""
    return read_file(run.path / name) if (run.path / name).is_file() else {}


def _text(run: Run, name: str) -> str:
    path = run.path / name
    return path.read_text(errors="replace").strip() if path.is_file() else ""


def _probes(document: Mapping[str, Any]) -> dict[str, list[Entry]]:
    """The entries that are objects, by probe."""
    lists = {name: value for name, value in document.items() if isinstance(value, list)}
    return {name: [each for each in value if isinstance(each, dict)] for name, value in lists.items()}


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in record.items() if number(value) is not None}


def number(value: Any) -> float | None:
    """A finite number, or None."""
    return value if finite(value) else None

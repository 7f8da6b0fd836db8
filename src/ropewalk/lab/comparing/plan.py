"""A comparison: several encodings, each with the same seeds, that share all other settings.

    comparison-<hash>.json    its encodings, seeds, baseline and settings, and the folders of its runs beside it

It holds no results: these are in the folders of the runs, which several comparisons may share. So a table or a report can be
made of it at any moment, finished or not, and wherever the folder has been moved.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.lab.choose import Refusal, refusing
from ropewalk.lab.comparing.entries import Entry, Said, entry
from ropewalk.lab.comparing.outcomes import Outcome, outcome
from ropewalk.lab.config import Config
from ropewalk.lab.metric import Metric, metric_of
from ropewalk.lab.store import Damaged, Run, read, write

FORMAT = "ropewalk comparison 1"
OWN = ("encoding", "options", "seed")
"""Settings in which the runs of a comparison differ."""


class Member(NamedTuple):
    """One run: the label of its encoding, its seed, and the name of its folder."""

    label: str
    seed: int
    name: str


@dataclass(frozen=True)
class Comparison:
    """Encodings × seeds. `members` are in the order in which they are trained: seeds outermost.

    runs      The folder of all of them, and of the comparison's own file.
    baseline  The label of the encoding that others are compared with; one of the entries.
    settings  What all runs share, by the names that `Config` has for them.
    """

    runs: Path
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...]
    baseline: str
    settings: dict[str, Any]
    members: tuple[Member, ...]

    @classmethod
    def at(cls, path: Path) -> "Comparison":
        """One that is there."""
        said = read(path)
        if said.get("format") != FORMAT:
            raise Damaged(f"{path} must be a {FORMAT}, got {said.get('format')!r}")
        try:
            return cls(
                runs=path.parent,
                entries=tuple(Entry(each["encoding"], each["options"]) for each in said["encodings"]),
                seeds=tuple(said["seeds"]),
                baseline=said["baseline"],
                settings=said["settings"],
                members=tuple(Member(each["label"], each["seed"], each["run"]) for each in said["runs"]),
            )
        except (KeyError, TypeError) as error:
            raise Damaged(f"{path} is not whole ({type(error).__name__}: {error})") from error

    def document(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "format": FORMAT,
            "baseline": self.baseline,
            "seeds": list(self.seeds),
            "encodings": [
                {"label": each.label, "encoding": each.encoding, "options": each.options} for each in self.entries
            ],
            "settings": self.settings,
            "runs": [{"label": each.label, "seed": each.seed, "run": each.name} for each in self.members],
        }

    @property
    def path(self) -> Path:
        """Its own file, named by a hash of its runs and its baseline."""
        said = json.dumps([self.baseline, *self.members])
        return self.runs / f"comparison-{hashlib.sha256(said.encode()).hexdigest()[:10]}.json"

    def save(self) -> None:
        """Write its file, in one move."""
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            write(self.path, self.document())
        except OSError as error:
            raise Refusal(f"{self.path} cannot be written: {error.strerror or error}") from error

    def config(self, member: Member) -> Config:
        """All settings of a run."""
        own = next(each for each in self.entries if each.label == member.label)
        return Config.of({**self.settings, "encoding": own.encoding, "options": own.options, "seed": member.seed})

    @property
    def metric(self) -> Metric:
        """What its runs are judged by."""
        return metric_of(self.settings)

    def outcome(self, member: Member) -> Outcome:
        """How far a run is."""
        return outcome(self.runs / member.name)

    def left(self) -> list[Member]:
        """Runs that are not done."""
        return [member for member in self.members if self.outcome(member).result is None]

    def found(self) -> list[Run]:
        """The runs that have been begun."""
        paths = [self.runs / member.name for member in self.members]
        return [Run.at(path) for path in paths if (path / "config.json").is_file()]

    @property
    def code(self) -> int:
        """For the command line: 0 if all runs are done, 1 if some are not."""
        return 1 if self.left() else 0


def plan(encodings: Sequence[Said], base: Config, runs: Path, *, seeds: Sequence[int], baseline: Said) -> Comparison:
    """The runs of a comparison. A baseline that is not among the encodings comes before them."""
    entries, first = [entry(said) for said in encodings], entry(baseline)
    entries = entries if first in entries else [first, *entries]
    _once("encodings", [each.label for each in entries])
    _once("seeds", seeds)
    if not seeds:
        raise Refusal("a comparison needs at least one seed, got none")
    with refusing():
        settings = {name: value for name, value in base.document().items() if name not in OWN}
        configs = [
            (each.label, Config.of({**settings, "encoding": each.encoding, "options": each.options, "seed": seed}))
            for seed in seeds
            for each in entries
        ]
    members = tuple(Member(label, config.seed, config.name) for label, config in configs)
    return Comparison(Path(runs), tuple(entries), tuple(seeds), first.label, settings, members)


def _once(what: str, given: Sequence[Any]) -> None:
    if twice := sorted({each for each in given if given.count(each) > 1}):
        raise Refusal(f"{what} must differ, got {', '.join(map(str, twice))} more than once")

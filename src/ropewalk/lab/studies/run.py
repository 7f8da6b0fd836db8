"""Runs of one part of a study that begin with the weights of another part's: each with those of its own encoding.

A study is run: part after part, run after run, each trained, probed and written down before the next begins.

A run that has its line is not made again, wherever it was trained: with the lines of its parts, a study goes on elsewhere.
Processes that are started with the same command share its runs: what one of them is at, others pass over.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ropewalk.lab.compare.run import compare_encodings
from ropewalk.lab.config import Config
from ropewalk.lab.console import collapse_whitespace
from ropewalk.lab.errors import CommandError, RunBusyError, translate_value_errors
from ropewalk.lab.metrics import select_metric
from ropewalk.lab.probes import IMAGE_PROBES
from ropewalk.lab.probes.probe_runs import probe_all_runs
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.statistics import estimate_means
from ropewalk.lab.studies.lines import (
    build_result_line,
    drop_unset_settings,
    get_line_settings,
    load_result_lines,
    write_result_lines,
)
from ropewalk.lab.studies.study import Study


def group_by_start(
    study: Study, part: str, names: Sequence[str], seed: int, given: Mapping[str, Any], runs: Path
) -> list[tuple[list[str], Config]]:
    """Encodings whose runs share all other settings, with these: all of them, or each alone if each begins elsewhere."""
    config = study.config(part, given)
    if study.parts[part].after is None:
        return [(list(names), config)]
    return [([name], replace(config, start=str(find_start_run(study, part, name, seed, given, runs)))) for name in names]


def find_start_run(study: Study, part: str, name: str, seed: int, given: Mapping[str, Any], runs: Path) -> Path:
    """The folder of the run that one begins with: of the same seed, or of the first where the other part has it not."""
    wanted, after = get_start_config(study, part, name, seed, given), study.parts[part].after
    for path in sorted(runs.glob(f"{wanted.encoding}-seed{wanted.seed}-*/result.json")):
        if _same_settings(RunFolder.at(path.parent).config, wanted):
            return path.parent
    wanting = f"{runs} has none that is done with the settings that are given for both"
    how = f"--part {after} makes them, with an --out that has no lines of them"
    raise CommandError(f"{part} begins with runs of {after}, and of {name}, seed {wanted.seed}, {wanting}: {how}")


def get_start_config(study: Study, part: str, name: str, seed: int, given: Mapping[str, Any]) -> Config:
    """The settings of the run that one begins with."""
    after = study.parts[part].after
    assert after is not None
    seeds = study.parts[after].seeds
    return study.of(after, name, seed if seed in seeds else seeds[0], given)


def _same_settings(one: Config, other: Config) -> bool:
    """Whether settings are the same, wherever their data lie."""
    named = (one.options == other.options, one.epochs == other.epochs)
    return all(named) and get_line_settings(one) == get_line_settings(other)


@dataclass(frozen=True)
class PartRequest:
    """The runs of a part that are asked for: encodings by name, seeds, settings, and the file for their lines."""

    study: Study
    part: str
    names: Sequence[str]
    seeds: Sequence[int]
    given: Mapping[str, Any]
    config: Config
    path: Path

    def left(self, seed: int) -> list[str]:
        """Encodings that have no line with this seed."""
        there = load_part_scores(self.path, self.config)
        return [name for name in self.names if (name, seed) not in there]

    def complete(self) -> bool:
        """Whether all have a line."""
        return not any(self.left(seed) for seed in self.seeds)


def select_part_runs(
    study: Study, part: str, out: Path, *, only: Sequence[str] = (), seeds: Sequence[int] = (), given: Mapping[str, Any]
) -> PartRequest | None:
    """What is asked for of a part; None if it has none of it."""
    names, numbers = study.members(part, only, seeds)
    if not names:
        return None
    with translate_value_errors():
        config = study.config(part, given)
    return PartRequest(study, part, names, numbers, given, config, out / f"{part}.jsonl")


def run_study_part(wanted: PartRequest, runs: Path, console: Console) -> None:
    """Train, probe and write down what has no line."""
    study, part, path, config = wanted.study, wanted.part, wanted.path, wanted.config
    probes = list(IMAGE_PROBES) if study.parts[part].probed else []

    def keep(run: RunFolder) -> None:
        with contextlib.suppress(RunBusyError):  # another process is at it
            run.lock_folder()
            try:
                note(run)
            finally:
                run.release()

    def note(run: RunFolder) -> None:
        if (study.named(run.config), run.config.seed) in load_part_scores(path, config):
            return
        probed = probe_all_runs([run] if probes else [], probes, Console(quiet=True))  # a bar is shown already
        if probed.errors:
            console.print(f"{run.path.name} could not be probed, and has no line: {collapse_whitespace(probed.errors[0])}")
        else:
            write_result_lines(path, [build_result_line(study, part, run)])

    for seed in wanted.seeds:
        left = wanted.left(seed)
        for some, own in group_by_start(study, part, left, seed, wanted.given, runs) if left else ():
            said = [study.encodings[name] for name in some]
            compare_encodings(said, own, runs, seeds=[seed], baseline=said[0], console=console, after=keep)


def load_part_scores(path: Path, config: Config) -> dict[tuple[str, int], float]:
    """What runs of a part that have a line, of these settings, came to on the test set, by name and seed."""
    said, key = get_line_settings(config), f"test_{select_metric(config.document()).key}"
    lines = load_result_lines(path) if path.exists() else []
    alike = [each for each in lines if each["epochs"] == config.epochs and drop_unset_settings(each["settings"]) == said]
    return {(each["name"], each["seed"]): each[key] for each in alike}


def format_part_table(path: Path, config: Config) -> list[str]:
    """What the runs of a part came to, the best first, in a line each."""
    found: dict[str, list[float]] = {}
    for (name, _), value in load_part_scores(path, config).items():
        found.setdefault(name, []).append(select_metric(config.document()).scale * value)
    level, wide = estimate_means(found), max(map(len, found), default=0)
    ordered = sorted(level, key=lambda name: -level[name].mean)
    return [
        f"{name:{wide}}  {len(found[name])}  {level[name].mean:.2f}" + _format_half_width(level[name].half)
        for name in ordered
    ]


def _format_half_width(half: float | None) -> str:
    return "" if half is None else f" ± {half:.2f}"

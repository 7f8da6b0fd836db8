"""Run a study: part after part, each run trained, probed and recorded before the next begins.

A run that has a record in the part's file is not made again, wherever it was trained, so that a study can be resumed on
another machine from its records alone. Processes started with the same command share the runs: each skips those that
another one is working on.
"""

import contextlib
import glob
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ropewalk.lab.compare.run import compare_encodings
from ropewalk.lab.config import UNHASHED_FIELDS, Config
from ropewalk.lab.console import collapse_whitespace
from ropewalk.lab.encoding_weights import load_run_encoding
from ropewalk.lab.errors import CommandError, DamagedFileError, RunBusyError, translate_value_errors
from ropewalk.lab.probes import list_probe_names, probe_all_runs
from ropewalk.lab.progress_bars import format_duration
from ropewalk.lab.record import RunRecord
from ropewalk.lab.record_lines import load_records, write_records
from ropewalk.lab.result_rows import build_table_rows, sort_table_rows
from ropewalk.lab.results_table import format_text_table
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.studies.study import Study
from ropewalk.lab.task_types import select_metric

LOCATION_FIELDS = ("data", "start", *UNHASHED_FIELDS)
"""Settings with paths, which may differ between machines. Records of earlier versions lack some of them."""
FIRST_SEED_PROBES = ("waves",)
"""Probes that are recorded for seed 0 alone: large, and drawn in a figure of one seed."""


@dataclass(frozen=True)
class PartRequest:
    """The runs of a part that are requested, their settings, and the file of their records."""

    study: Study
    part: str
    names: Sequence[str]
    seeds: Sequence[int]
    overrides: Mapping[str, Any]
    config: Config
    path: Path

    def list_missing(self, seed: int) -> list[str]:
        """Encodings without a record of this seed."""
        recorded = {(record.name, record.config.seed) for record in load_part_records(self)}
        return [name for name in self.names if (name, seed) not in recorded]

    def matches(self, record: RunRecord) -> bool:
        """Whether a record is of a finished run of this part: with its encoding, its settings, its data and its origin."""
        name = record.name
        if record.score is None or name is None or name not in self.study.encodings:
            return False
        run = (self.part, name, record.config.seed, self.overrides)
        if not have_equal_settings(record.config, wanted := self.study.run_config(*run)):
            return False
        if self.study.parts[self.part].after is None:
            return _get_start_name(record.config) == _get_start_name(wanted)
        return bool(record.origins) and have_equal_settings(record.origins[0], self.study.origin_config(*run))

    def is_complete(self) -> bool:
        """Whether all runs have a record."""
        return not any(self.list_missing(seed) for seed in self.seeds)


def select_part_runs(
    study: Study, part: str, out: Path, *, only: Sequence[str] = (), seeds: Sequence[int] = (), given: Mapping[str, Any]
) -> PartRequest | None:
    """Select runs of a part by encoding and seed; None if the part has none of these encodings."""
    names, numbers = study.select_members(part, only, seeds)
    if not names:
        return None
    with translate_value_errors():
        config = study.config(part, given)
    return PartRequest(study, part, names, numbers, given, config, out / f"{part}.jsonl")


def run_study_part(request: PartRequest, runs: Path, console: Console) -> None:
    """Train, probe and record the runs that have no record."""
    study = request.study

    def record_once(run: RunFolder) -> None:
        with contextlib.suppress(RunBusyError):  # another process is working on it
            run.lock_folder()
            try:
                _probe_and_record(request, run, console)
            finally:
                run.release()

    for seed in request.seeds:
        for names, config in _group_by_origin(request, request.list_missing(seed), seed, runs):
            specs = [study.encodings[name] for name in names]
            compare_encodings(specs, config, runs, seeds=[seed], baseline=specs[0], console=console, after=record_once)


def _group_by_origin(request: PartRequest, names: list[str], seed: int, runs: Path) -> list[tuple[list[str], Config]]:
    """Encodings that share their settings: all of them, or each alone if each is initialized from another run."""
    if request.study.parts[request.part].after is None or not names:
        return [(names, request.config)] if names else []
    return [([name], replace(request.config, start=str(_find_origin(request, name, seed, runs)))) for name in names]


def _find_origin(request: PartRequest, name: str, seed: int, runs: Path) -> Path:
    """The directory of the finished run from which one is initialized."""
    wanted = request.study.origin_config(request.part, name, seed, request.overrides)
    beginning = wanted.name.rpartition("-")[0]  # the hash may be another, since it depends on the path of the data
    for path in sorted(runs.glob(f"{glob.escape(beginning)}-*/result.json")):
        with contextlib.suppress(ValueError, DamagedFileError):  # what cannot be read is not the run that is looked for
            if have_equal_settings(RunFolder.at(path.parent).config, wanted):
                return path.parent
    part, after = request.part, request.study.parts[request.part].after
    raise CommandError(
        f"{part} is initialized from runs of {after}, but {runs} has no finished run of {name}, seed {wanted.seed}, with "
        f"these settings: --part {after} makes it, with an --out that has no record of it"
    )


def _probe_and_record(request: PartRequest, run: RunFolder, console: Console) -> None:
    if request.study.find_name(run.config) not in request.list_missing(run.config.seed):
        return
    if request.study.parts[request.part].probed:
        probed = probe_all_runs([run], list_probe_names(run), Console(quiet=True))  # training shows a bar already
        if probed.errors:
            reason = collapse_whitespace(probed.errors[0])
            console.print(f"{run.path.name} could not be probed, and has no record: {reason}")
            return
    write_records(request.path, [make_study_record(request.study, request.part, run)])


def make_study_record(study: Study, part: str, run: RunFolder) -> RunRecord:
    """The record of a finished run of a study. Raises DamagedFileError if one of its files cannot be read."""
    record = load_run(run.path)
    if record.problems:
        raise DamagedFileError(record.problems[0])
    if record.result is None:
        raise ValueError(f"a record of a study needs a finished run, but {run.path} has no result.json")
    left_out = FIRST_SEED_PROBES if run.config.seed else ()
    return replace(
        record,
        study=study.name,
        part=part,
        name=study.find_name(run.config),
        encoding=record.encoding or load_run_encoding(str(run.path))[0].config(),  # earlier versions did not store it
        probes={name: rows for name, rows in record.probes.items() if name not in left_out},
    )


def have_equal_settings(one: Config, other: Config) -> bool:
    """Whether two runs have equal settings and data of the same name, wherever their files are."""
    return _get_data_stem(one) == _get_data_stem(other) and all(
        value == getattr(other, name) for name, value in vars(one).items() if name not in LOCATION_FIELDS
    )


def _get_data_stem(config: Config) -> str:
    """The name of the data without its folder and ending: cifar100 may be in a file cifar100.npz, imagenette in a folder."""
    return Path(config.data).absolute().name.removesuffix(".npz").lower().replace("_", "-")


def _get_start_name(config: Config) -> str | None:
    return None if config.start_path is None else config.start_path.name


def load_part_records(request: PartRequest) -> list[RunRecord]:
    """The recorded runs of a part that have its settings and a result."""
    return [record for record in (load_records(request.path) if request.path.exists() else []) if request.matches(record)]


def format_missing_runs(request: PartRequest) -> list[str]:
    """How many runs of a part have a record, how long they trained, and which are missing, with their seeds."""
    every = [(name, seed) for seed in request.seeds for name in request.names]
    records = {(str(record.name), record.config.seed): record for record in load_part_records(request)}
    found = [records[key] for key in every if key in records]
    lines = [f"{request.part}: {len(found)} of {len(every)} runs are recorded"]
    times = [float(record.result["seconds"]) for record in found if record.result and "seconds" in record.result]
    if times:
        total = math.fsum(times)
        each = f"{format_duration(total / len(times))} each"
        lines[0] += f", trained in {format_duration(total)}" + (f", {each}" if len(times) > 1 else "")
    for name in request.names:
        if seeds := [str(seed) for seed in request.seeds if (name, seed) not in records]:
            lines.append(f"  missing: {name}, seed{'s' if len(seeds) > 1 else ''} {' '.join(seeds)}")
    return lines


def format_part_table(request: PartRequest) -> list[str]:
    """The table of results of a part, the best encoding first."""
    runs: dict[str, dict[int, RunRecord]] = {}
    for record in load_part_records(request):
        runs.setdefault(str(record.name), {})[record.config.seed] = record
    rows = build_table_rows(runs, select_metric(request.config.document()))
    return format_text_table(sort_table_rows(rows))

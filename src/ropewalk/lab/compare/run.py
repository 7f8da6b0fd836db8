"""Train several encodings with several seeds under equal conditions.

    comparison = compare_encodings(["mixed", "liere:block=4"], RECIPES["digits"], "runs", seeds=range(3))
    print(format_comparison_csv(tabulate_comparison(comparison)))

All runs share every setting but the encoding, its options and the seed. Seeds are the outer loop: if the comparison is
interrupted, all encodings have the same seeds, but for one. Finished runs are not trained again, whichever comparison they
belong to, and others are resumed; so the same call resumes a comparison. If a run fails, the reason is written to its
directory and to the table, and the next run begins. The exception are several processes, of which one may fail alone while
the others wait for it within a step: then the comparison ends with the error in that process, and the launcher ends the
others. A loss that is not finite fails in all of them, and the next run begins.
"""

import gc
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env
from rich.console import Console

from ropewalk.lab.compare.plan import (
    Comparison,
    ComparisonRun,
    clear_failure,
    is_run_locked,
    plan_comparison,
    record_failure,
)
from ropewalk.lab.compare.preflight import check_comparison
from ropewalk.lab.config import Config
from ropewalk.lab.console import collapse_whitespace, make_console
from ropewalk.lab.encoding_spec import EncodingSpec
from ropewalk.lab.errors import DamagedFileError, NonFiniteLossError, RunBusyError
from ropewalk.lab.progress_bars import ProgressLines, make_progress
from ropewalk.lab.record import RunRecord
from ropewalk.lab.result_rows import TableRow, build_table_rows
from ropewalk.lab.results_table import format_csv
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.train import train_run


def compare_encodings(
    encodings: Sequence[EncodingSpec],
    base: Config,
    runs: Path | str,
    *,
    seeds: Sequence[int],
    baseline: EncodingSpec = "none",
    console: Console | None = None,
    after: Callable[[RunFolder], None] = lambda run: None,
) -> Comparison:
    """Train the runs that are not finished. All settings are checked before the first run; `code` is 0 if all are finished.

    encodings  Names, names with options as "axial:learned=true", or pairs of a name and a dictionary of options.
    base       All other settings; its own encoding, options and seed are not used.
    runs       The directory of the runs, a path or a file:// URL.
    baseline   The encoding that the others are compared with. If it is not among the encodings, it is trained too.
    console    Where progress is printed; by default standard output.
    after      Called with each finished run in the main process, before the next begins.
    """
    comparison = plan_comparison(encodings, base, runs, seeds=list(seeds), baseline=baseline)
    state = PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))  # as the accelerator of a run will have it
    if comparison.left():
        check_comparison(comparison, processes=state.num_processes)
    if state.is_main_process:
        comparison.save()
    console = (console or make_console()) if state.is_main_process else Console(quiet=True)
    with make_progress(console, runs=len(comparison.members), epochs=base.epochs) as shown:
        try:
            for member in comparison.members:
                _train_member(comparison, member, shown, state)
                if state.is_main_process and comparison.outcome(member).result is not None:
                    after(RunFolder.at(comparison.runs / member.name))
        except KeyboardInterrupt:
            done = len(comparison.members) - len(comparison.left())
            shown.say(f"stopped: {done} of {len(comparison.members)} runs are done; the same command resumes")
            raise
    state.wait_for_everyone()
    return comparison


def _train_member(comparison: Comparison, member: ComparisonRun, shown: ProgressLines, state: PartialState) -> None:
    """Train a run, unless it is finished, and report how it ended."""
    path = comparison.runs / member.name
    shown.begin(f"{member.label}, seed {member.seed}")
    if comparison.outcome(member).result is not None:
        if state.is_main_process:
            RunFolder(comparison.runs, comparison.config(member)).restore_config()
        return shown.end(f"done before, {_describe_outcome(comparison, member)}")
    if state.is_main_process:
        clear_failure(path)
    try:
        train_run(comparison.config(member), comparison.runs, watch=shown.record)
    except Exception as error:
        shown.end(_record_error(path, error, writes=state.is_main_process))
        if state.num_processes > 1 and not isinstance(error, NonFiniteLossError):
            raise
    else:
        shown.end(_describe_outcome(comparison, member))
    finally:
        _free_memory()


def _describe_outcome(comparison: Comparison, member: ComparisonRun) -> str:
    """The test score of a run, or why it has none."""
    result, note = comparison.outcome(member)
    return note if result is None else comparison.metric.format_score("test", result)


def _record_error(path: Path, error: Exception, *, writes: bool) -> str:
    """Describe why a run failed. A run that another process trains has not failed."""
    if is_run_locked(path):
        return "is being trained by another process"
    if isinstance(error, RunBusyError):  # nothing is written to a directory that replaced that of the run
        return f"failed: {error}"
    return f"failed: {record_failure(path, error) if writes else error}"


def _free_memory() -> None:
    """Free the GPU memory of a run. Compiled code stays, for the same encoding with other seeds."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def tabulate_comparison(comparison: Comparison) -> list[TableRow]:
    """A row for each encoding, in the order in which they were given. Runs without a result are listed in notes."""
    runs: dict[str, dict[int, RunRecord]] = {each.label: {} for each in comparison.entries}
    notes: dict[str, list[str]] = {each.label: [] for each in comparison.entries}
    for member in comparison.members:
        record, said = _load_member(comparison, member)
        if record is not None:
            runs[member.label][member.seed] = record
        notes[member.label] += said
    return build_table_rows(
        runs, comparison.metric, baseline=comparison.baseline, planned=len(comparison.seeds), notes=notes
    )


def _load_member(comparison: Comparison, member: ComparisonRun) -> tuple[RunRecord | None, list[str]]:
    """The record of a run that is done, and notes on what is missing."""
    result, note = comparison.outcome(member)
    if result is None:
        return None, [f"seed {member.seed} {note}"]
    try:
        record = load_run(comparison.runs / member.name)
    except (ValueError, DamagedFileError, OSError) as error:
        return None, [f"seed {member.seed} failed: {collapse_whitespace(error)}"]
    if record.score is None:
        return None, [f"seed {member.seed} failed: its result.json has no test_{comparison.metric.key}"]
    return record, [f"seed {member.seed}: {problem}" for problem in _list_problems(record, comparison)]


def _list_problems(record: RunRecord, comparison: Comparison) -> list[str]:
    pace = comparison.metric.throughput_key
    lacking = any(pace not in row for row in record.probes.get("cost", []))
    missing = [f"probes.json must have {pace} in cost"] if lacking else []
    return [*map(collapse_whitespace, record.problems), *missing]


def format_comparison_csv(rows: Sequence[TableRow]) -> str:
    """With a line of titles; numbers are not rounded, and cells without a value are empty."""
    return format_csv([rows], "comparison.csv")

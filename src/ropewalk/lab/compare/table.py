"""The table of a comparison, read from the folders of its runs; `ropewalk.lab.results_table` has its columns."""

from collections.abc import Sequence

from ropewalk.lab.compare.plan import Comparison, ComparisonRun
from ropewalk.lab.console import collapse_whitespace
from ropewalk.lab.errors import DamagedFileError
from ropewalk.lab.record import RunRecord, load_run
from ropewalk.lab.result_rows import TableRow, build_table_rows
from ropewalk.lab.results_table import format_csv


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

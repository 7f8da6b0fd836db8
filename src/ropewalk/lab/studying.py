"""What the verbs fold, train, compare and report do. What is heavy is imported when it is asked for."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.lab.errors import CommandError
from ropewalk.validation import check_choice

if TYPE_CHECKING:
    from rich.console import Console

    from ropewalk.lab.compare.plan import Comparison
    from ropewalk.lab.config import Config
    from ropewalk.lab.fold_run import FoldResult
    from ropewalk.lab.record import RunRecord
    from ropewalk.lab.run_store import RunFolder


def collect_flag_settings(**given: str | None) -> list[str]:
    """Settings that have a flag of their own, as key=value."""
    return [f"{name}={value}" for name, value in given.items() if value is not None]


def execute_study(
    name: str,
    encodings: Sequence[str],
    words: Sequence[str],
    parts: Sequence[str],
    only: Sequence[str],
    seeds: Sequence[int],
    runs: Path,
    out: Path,
    console: "Console",
    *,
    count: int = 1,
) -> int:
    """Run a study, or some of it, part after part; with a count, by so many processes that share its runs."""
    from ropewalk.lab.recipes import parse_replaced_settings
    from ropewalk.lab.run_store import translate_run_errors
    from ropewalk.lab.studies import ALL_STUDIES
    from ropewalk.lab.studies.run import format_part_table, run_study_part, select_part_runs

    chosen = ALL_STUDIES[check_choice("study", name, ALL_STUDIES, error=CommandError)]
    if encodings:
        raise CommandError(f"a study has its encodings: choose among them by --only, got {', '.join(encodings)}")
    _check_process_count(count)
    given, code = parse_replaced_settings(chosen.base.document(), words), 0
    for part in chosen.select_parts(parts):
        console.print(f"{part}: {chosen.parts[part].about}")
        with translate_run_errors():
            wanted = select_part_runs(chosen, part, out, only=only, seeds=seeds, given=given)
            if wanted is None:
                continue
            if count > 1 and not wanted.is_complete():
                if (
                    _run_processes(count, _build_study_command(name, part, words, only, seeds, runs, out), console)
                    == CommandError.code
                ):
                    return CommandError.code
            else:
                run_study_part(wanted, runs, console)
            code = code or int(not wanted.is_complete())
        console.print(*format_part_table(wanted.path, wanted.config), str(wanted.path), sep="\n", highlight=False)
    return code


def _check_process_count(count: int) -> None:
    """Refuse a number of processes that cannot be started."""
    if count < 1:
        raise CommandError(f"together must be a number of processes, 1 or more, got {count}")
    if count > 1 and (world := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise CommandError(
            f"--together starts its own processes: it must not be launched in several, got WORLD_SIZE={world}"
        )


def _build_study_command(
    name: str, part: str, words: Sequence[str], only: Sequence[str], seeds: Sequence[int], runs: Path, out: Path
) -> list[str]:
    """The words that ask for a part of a study on the command line."""
    lists = {"--set": words, "--only": only, "--seed": [str(seed) for seed in seeds]}
    chosen = [word for flag, given in lists.items() if given for word in (flag, *given)]
    return ["compare", "--study", name, "--part", part, *chosen, "--runs", str(runs), "--out", str(out)]


def _run_processes(count: int, words: Sequence[str], console: "Console") -> int:
    """Several processes with these words: the worst of their codes; it is told which were killed."""
    from ropewalk.lab.parallel import run_in_parallel

    try:
        codes = run_in_parallel(count, words, console)
    except (KeyboardInterrupt, SystemExit):
        console.print("stopped; the same command goes on")
        raise
    for number, code in enumerate(codes, 1):
        if code < 0:
            console.print(f"process {number} was ended by signal {-code}; the same command goes on")
    return max(codes)


def execute_fold(path: Path, out: Path | None) -> "FoldResult":
    """Fold the encoding of a run into its projections."""
    from ropewalk.lab.fold_run import fold_run
    from ropewalk.lab.run_store import RunFolder, translate_run_errors

    with translate_run_errors():
        return fold_run(RunFolder.at(path), out)


def execute_train(
    said: str, config: "Config", runs: Path, console: "Console", trackers: tuple[str, ...] = ()
) -> "RunFolder":
    """Train one encoding, or go on with it. What cannot be trained is refused before its folder is made."""
    from ropewalk.lab.compare.plan import plan_comparison
    from ropewalk.lab.compare.preflight import check_comparison
    from ropewalk.lab.environment import check_trackers, count_processes
    from ropewalk.lab.progress_bars import make_progress
    from ropewalk.lab.run_store import translate_run_errors
    from ropewalk.lab.train import train_run

    check_trackers(trackers)
    alone = plan_comparison([said], config, runs, seeds=[config.seed], baseline=said)
    (member,) = alone.members
    with make_progress(console, runs=1, epochs=config.epochs) as shown, translate_run_errors():
        if alone.left():
            check_comparison(alone, processes=count_processes())
        shown.begin(f"{member.label}, seed {member.seed}")
        try:
            run = train_run(alone.config(member), runs, watch=shown.record, trackers=trackers)
        except KeyboardInterrupt:
            shown.say("stopped; the same command goes on")
            raise
        result = run.result()  # of several processes, the first alone has written it for sure
        shown.end("done" if result is None else alone.metric.told("test", result))
    return run


def merge_encodings(encodings: Sequence[str], also: Sequence[str]) -> list[str]:
    """Encodings, and those that are trained beside them if they are not among them, however they are spelt."""
    from ropewalk.lab.encoding_spec import parse_encoding

    named = {parse_encoding(each).label for each in encodings}
    return [*encodings, *(each for each in also if parse_encoding(each).label not in named)]


def execute_compare(
    encodings: Sequence[str], config: "Config", runs: Path, seeds: int, baseline: str, console: "Console"
) -> "Comparison":
    """Train encodings with several seeds."""
    from ropewalk.lab.compare.run import compare_encodings
    from ropewalk.lab.environment import count_processes
    from ropewalk.lab.run_store import translate_run_errors

    count_processes()
    with translate_run_errors():
        return compare_encodings(encodings, config, runs, seeds=range(seeds), baseline=baseline, console=console)


def list_finished_runs(comparison: "Comparison") -> list["RunFolder"]:
    """The runs of a comparison that are done."""
    from ropewalk.lab.run_store import RunFolder, translate_run_errors

    done = [each.name for each in comparison.members if comparison.outcome(each).result is not None]
    with translate_run_errors():
        return [RunFolder.at(comparison.runs / name) for name in done]


def print_comparison(comparison: "Comparison", console: "Console") -> None:
    """Print the table of a comparison."""
    from ropewalk.lab.compare.table import tabulate_comparison
    from ropewalk.lab.results_table import make_rich_table

    console.print(make_rich_table(tabulate_comparison(comparison)))


def execute_report(
    runs: Sequence["RunRecord"], out: Path, console: "Console", *, question: str = "", baseline: str = "none"
) -> Path:
    """Write the page on runs, and say where it is."""
    from ropewalk.lab.encoding_spec import parse_encoding
    from ropewalk.lab.report import write_report
    from ropewalk.lab.run_store import translate_run_errors

    label = parse_encoding(baseline).label
    with console.status(f"a report of {len(runs)} run{'' if len(runs) == 1 else 's'}"), translate_run_errors():
        return write_report(runs, out, question=question, baseline=label)

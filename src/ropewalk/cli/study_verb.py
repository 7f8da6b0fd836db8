"""The verb study: list the studies, or run one, in this process or in several that share its runs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.lab.console import make_console
from ropewalk.lab.errors import CommandError
from ropewalk.validation import check_choice

if TYPE_CHECKING:
    from rich.console import Console


def run_study(
    name: str | None = None,
    /,
    *,
    part: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    seed: tuple[int, ...] = (),
    together: int = 1,
    set: tuple[str, ...] = (),
    runs: str = "runs",
    out: str | None = None,
    left: bool = False,
) -> int:
    """Run a study, or list all studies with their questions and parts; runs that have a record are not trained again.

    For example:
        ropewalk study
        ropewalk study volumes --part half --only mixed
        ropewalk study equivariance --together 4
        ropewalk study equivariance --part main --left

    Args:
        name: The study; without it, all are listed.
        part: Parts of the study; all, in order, by default.
        only: Encodings, by their names in the study; all by default.
        seed: Seeds; those of each part by default.
        together: The number of processes that share the runs, and the processor cores.
        set: Settings that replace those of the study, as for `train`.
        runs: The folder of all runs.
        out: The folder of the records, a file PART.jsonl for each part; out/NAME by default.
        left: Print which runs have no record, and run nothing; the exit code is 1 if there are any.
    """
    from ropewalk.lab.recipes import parse_replaced_settings
    from ropewalk.lab.run_store import translate_run_errors
    from ropewalk.lab.studies import ALL_STUDIES
    from ropewalk.lab.studies.run import format_missing_runs, format_part_table, run_study_part, select_part_runs

    if name is None:
        given = {"--part": part, "--only": only, "--seed": seed, "--set": set, "--out": out, "--left": left}
        if unused := [option for option, value in given.items() if value] + ["--together"] * (together != 1):
            raise CommandError(f"`ropewalk study` lists all studies; to run one, give its name before {', '.join(unused)}")
        return _list_studies()
    study = ALL_STUDIES[check_choice("study", name, ALL_STUDIES, error=CommandError)]
    _check_process_count(together)
    folder, console = Path(out or f"out/{name}"), make_console()
    replaced = parse_replaced_settings(study.base.document(), set)
    with translate_run_errors():
        selected = [
            (each, select_part_runs(study, each, folder, only=only, seeds=seed, given=replaced))
            for each in study.select_parts(part)
        ]
    wanted = [(each, request) for each, request in selected if request is not None]
    if not wanted:
        parts = ", ".join(each for each, _ in selected)
        raise CommandError(f"there is nothing to run: {parts} of {name}: has none of {', '.join(only)}")
    for each, request in selected:
        if request is None and each in part:
            console.print(f"{each}: has none of {', '.join(only)}")
    if left:
        with translate_run_errors():
            lines = [line for _, request in wanted for line in format_missing_runs(request)]
            console.print(*lines, sep="\n", highlight=False, soft_wrap=True)
            return int(not all(request.is_complete() for _, request in wanted))
    code = 0
    for each, request in wanted:
        console.print(f"{each}: {study.parts[each].about}")
        with translate_run_errors():
            if together > 1 and not request.is_complete():
                lists = {"--set": set, "--only": only, "--seed": [str(number) for number in seed]}
                words = [word for option, values in lists.items() if values for word in (option, *values)]
                words = ["study", name, "--part", each, *words, "--runs", runs, "--out", str(folder)]
                if _run_processes(together, words, console) == CommandError.code:
                    return CommandError.code
            else:
                run_study_part(request, Path(runs), console)
            code = code or int(not request.is_complete())
        console.print(*format_part_table(request), str(request.path), sep="\n", highlight=False)
    return code


def _list_studies() -> int:
    from ropewalk.lab.studies import ALL_STUDIES

    console = make_console()
    for study in ALL_STUDIES.values():
        console.print(f"{study.name}: {study.question}")
        wide = max(map(len, study.parts))
        for name, part in study.parts.items():
            runs = len(part.encodings) * len(part.seeds)
            console.print(f"  {name:<{wide}}  {runs:>3} run{'s' if runs > 1 else ' '}  {part.about}")
        console.print()
    return 0


def _check_process_count(count: int) -> None:
    """Refuse a number of processes that cannot be started."""
    if count < 1:
        raise CommandError(f"--together must be a number of processes, 1 or more, got {count}")
    if count > 1 and (world := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise CommandError(
            f"--together starts its own processes: it must not be launched in several, got WORLD_SIZE={world}"
        )


def _run_processes(count: int, words: Sequence[str], console: "Console") -> int:
    """Run `ropewalk` with these words in several processes; return the largest of their exit codes."""
    from ropewalk.lab.worker_processes import run_in_parallel

    try:
        codes = run_in_parallel(count, words, console)
    except (KeyboardInterrupt, SystemExit):
        console.print("stopped; the same command resumes")
        raise
    for number, code in enumerate(codes, 1):
        if code < 0:
            console.print(f"process {number} was ended by signal {-code}; the same command resumes")
    return max(codes)

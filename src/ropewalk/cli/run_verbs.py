"""The verbs about runs: fold, train, evaluate, compare, report, bench."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.lab.console import (
    align_columns,
    is_main_process,
    make_console,
    print_file_link,
    print_json,
    print_line,
    require_matplotlib,
)
from ropewalk.lab.errors import CommandError
from ropewalk.validation import describe_unknown

if TYPE_CHECKING:
    from rich.console import Console

    from ropewalk.lab.record import RunRecord

LONGEST_LIST = 6
"""Values of a list that `evaluate` prints in full."""


def fold_encoding(run: str, /, *, out: str | None = None, import_: tuple[str, ...] = ()) -> int:
    """Fold the encoding of a trained run into its projections: the same outputs from mixed RoPE, at no further cost.

    For example:
        ropewalk fold runs/mixed-seed0-2b3d4f5a6c

    Args:
        run: The folder of a finished run.
        out: The file of the folded weights, .safetensors; by default folded.safetensors in the run's folder.
        import_: Modules that define the run's encoding.
    """
    from ropewalk.lab.encoding_spec import import_modules
    from ropewalk.lab.fold_run import fold_run
    from ropewalk.lab.run_store import RunFolder, translate_run_errors

    import_modules(import_)
    with translate_run_errors():
        folded = fold_run(RunFolder.at(Path(run)), None if out is None else Path(out))
    make_console().print(folded.summary)
    print_line(folded.path)
    return 0


def train_encoding(
    name: str,
    /,
    *,
    recipe: str = "digits",
    model: str | None = None,
    task: str | None = None,
    from_: str | None = None,
    set: tuple[str, ...] = (),
    seed: int = 0,
    runs: str = "runs",
    track: tuple[str, ...] = (),
    import_: tuple[str, ...] = (),
) -> int:
    """Train a model with an encoding and test it once; a run that was interrupted is resumed.

    For example:
        ropewalk train mixed
        ropewalk train liere:block=4 --set epochs=10 batch=256
        ropewalk train mymodule:MyEncoding --recipe books

    Args:
        name: An encoding from `ropewalk list` or module:Class, with options after a colon: liere:block=4,scale=0.5.
        recipe: Settings by name; `ropewalk list --recipes` lists them.
        model: A vision transformer of timm, as timm:vit_small_patch16_224; the recipe's own by default.
        task: What the model predicts: a task of `ropewalk list --tasks`; the recipe's own by default.
        from_: The folder of a finished run; weights that both models have are initialized from it.
        set: Settings that replace those of the recipe: epochs=10 augment=flip,crop. `ropewalk list --settings` lists them.
        seed: The seed of everything that is random.
        runs: The folder of all runs.
        track: Trackers of accelerate that are installed, such as tensorboard or wandb.
        import_: Modules that define the encoding of the run in --from.
    """
    from ropewalk.lab.compare.plan import plan_comparison
    from ropewalk.lab.compare.preflight import check_comparison
    from ropewalk.lab.encoding_spec import import_modules, parse_encoding
    from ropewalk.lab.environment import check_trackers, count_processes
    from ropewalk.lab.progress_bars import make_progress
    from ropewalk.lab.recipes import parse_settings
    from ropewalk.lab.run_store import translate_run_errors
    from ropewalk.lab.train import train_run

    import_modules(import_)
    words = (*set, *_collect_settings(model=model, task=task, start=from_))
    config, console = replace(parse_settings(recipe, words), seed=seed), make_console()
    check_trackers(track)
    label = parse_encoding(name, load=True).label
    alone = plan_comparison([label], config, Path(runs), seeds=[config.seed], baseline=label)
    (member,) = alone.members
    with make_progress(console, runs=1, epochs=config.epochs) as shown, translate_run_errors():
        if alone.left():
            check_comparison(alone, processes=count_processes())
        shown.begin(f"{member.label}, seed {member.seed}")
        try:
            run = train_run(alone.config(member), Path(runs), watch=shown.record, trackers=track)
        except KeyboardInterrupt:
            shown.say("stopped; the same command resumes")
            raise
        result = run.result()  # of several processes, only the first is sure to have written it
        shown.end("done" if result is None else alone.metric.format_score("test", result))
    console.print(str(run.path))
    return 0


def evaluate_runs(path: str, /, *, probes: tuple[str, ...] = (), import_: tuple[str, ...] = (), json: bool = False) -> int:
    """Probe trained runs and print what was measured: accuracy at other resolutions, under shifts, cost and others.

    For example:
        ropewalk evaluate runs/mixed-seed0-2b3d4f5a6c
        ropewalk evaluate runs --probes resolution cost --json

    Args:
        path: The folder of a run, a folder of runs, or the comparison-*.json that `compare` wrote.
        probes: Probes of `ropewalk list --probes`; all by default. Those that are in probes.json are not run again.
        import_: Modules that define the encodings of the runs.
        json: Print one JSON document and nothing else.
    """
    from ropewalk.lab.encoding_spec import import_modules
    from ropewalk.lab.probes import choose_probes, list_probe_names, probe_or_raise
    from ropewalk.lab.record_search import find_run_folders

    import_modules(import_)
    chosen, console = choose_probes(probes), make_console(stderr=json)
    folders = find_run_folders([Path(path)])
    supported = {name for folder in folders for name in list_probe_names(folder)}
    unused = [name for name in chosen if name not in supported]
    if probes and 0 < len(unused) < len(chosen):  # where none is supported, probing says why
        raise CommandError(describe_unknown("probe", unused, sorted(supported), of="these runs"))
    probed = probe_or_raise(folders, probes, console)
    if json:
        print_json(probed.found)
        return 1 if probed.errors else 0
    for run, found in probed.found.items():
        console.print(str(Path(run) / "probes.json"))
        for name in [*chosen, "refused"]:
            for line in _format_probe_table(name, found.get(name, [])):
                console.print(line)
    return 1 if probed.errors else 0


def _format_probe_table(probe: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The name of a probe and the table of its rows; nothing without rows."""
    titles = list(dict.fromkeys(name for row in rows for name in row))
    if not titles:
        return
    yield f"\n{probe}"
    cells = [[_format_value(row[name]) if name in row else "" for name in titles] for row in rows]
    yield from (f"  {line}" for line in align_columns([titles, *cells]))


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list) and (len(value) > LONGEST_LIST or any(isinstance(each, list | dict) for each in value)):
        return f"({len(value)} values)"
    if isinstance(value, list):
        return ", ".join(map(_format_value, value))
    return f"({len(value)} values)" if isinstance(value, dict) else "none" if value is None else str(value)


def compare_runs(
    encodings: tuple[str, ...] = (),
    /,
    *,
    recipe: str = "digits",
    model: str | None = None,
    task: str | None = None,
    set: tuple[str, ...] = (),
    seeds: int = 3,
    baseline: str = "none",
    also: tuple[str, ...] = ("learned-ape",),
    runs: str = "runs",
    probes: tuple[str, ...] = (),
    out: str | None = None,
    no_report: bool = False,
) -> int:
    """Train encodings under equal conditions with several seeds, probe the runs, and write a report.

    For example:
        ropewalk compare axial mixed
        ropewalk compare mixed mymodule:MyEncoding --seeds 5

    Args:
        encodings: Encodings as for `train`: axial liere:block=4 module:Class.
        recipe: Settings by name, as for `train`.
        model: A vision transformer of timm, as timm:vit_small_patch16_224; the recipe's own by default.
        task: What the model predicts: a task of `ropewalk list --tasks`; the recipe's own by default.
        set: Settings that replace those of the recipe, as for `train`.
        seeds: The number of seeds: each encoding is trained with seeds 0, 1, ….
        baseline: The encoding with which the others are compared; it is trained too.
        also: Encodings that are trained in every comparison; `--also` without a value trains no others.
        runs: The folder of all runs. Finished runs are not trained again.
        probes: Probes of the finished runs, as for `evaluate`; all by default.
        out: The folder of report.html; out/report by default.
        no_report: Train and print the table only: no probes, no report.
    """
    from ropewalk.lab.compare.run import compare_encodings, tabulate_comparison
    from ropewalk.lab.environment import count_processes
    from ropewalk.lab.probes import choose_probes, probe_all_runs
    from ropewalk.lab.recipes import parse_settings
    from ropewalk.lab.record_search import find_records
    from ropewalk.lab.result_rows import sort_table_rows
    from ropewalk.lab.results_table import make_rich_table
    from ropewalk.lab.run_store import RunFolder, translate_run_errors

    if not encodings:
        raise CommandError("compare needs encodings: ropewalk compare axial mixed. Studies are run by `ropewalk study NAME`")
    if no_report and (probes or out is not None):
        unused = "--probes" if probes else "--out"
        raise CommandError(f"--no-report probes nothing and writes no report: leave out {unused}")
    chosen, console = choose_probes(probes), make_console()
    if not no_report:
        require_matplotlib()
    every = _merge_encodings([*encodings], also, baseline)
    config = parse_settings(recipe, (*set, *_collect_settings(model=model, task=task)))
    count_processes()
    with translate_run_errors():
        done = compare_encodings(every, config, Path(runs), seeds=range(seeds), baseline=baseline, console=console)
    if not is_main_process():
        return done.code
    with translate_run_errors():
        finished = [each.name for each in done.members if done.outcome(each).result is not None]
        folders = [RunFolder.at(done.runs / name) for name in finished]
    missed = [] if no_report else probe_all_runs(folders, chosen, console).errors
    console.print(make_rich_table(sort_table_rows(tabulate_comparison(done), first=done.baseline)))
    print_line(done.path)
    if not no_report:
        _write_report(find_records([done.path]), Path(out or "out/report"), console, baseline=done.baseline)
    return 1 if missed else done.code


def _collect_settings(**given: str | None) -> list[str]:
    """Settings that have an option of their own, as key=value."""
    return [f"{name}={value}" for name, value in given.items() if value is not None]


def _merge_encodings(encodings: Sequence[str], also: Sequence[str], baseline: str) -> list[str]:
    """Encodings, and those of `also` that are not among them in another spelling. Modules are imported."""
    from ropewalk.lab.encoding_spec import parse_encoding

    parse_encoding(baseline, load=True)
    named = {parse_encoding(each, load=True).label for each in encodings}
    return [*encodings, *(each for each in also if parse_encoding(each, load=True).label not in named)]


def report_runs(
    paths: tuple[str, ...] = ("runs",),
    /,
    *,
    out: str = "out/report",
    question: str = "",
    baseline: str | None = None,
    import_: tuple[str, ...] = (),
) -> int:
    """Write a report of runs: one HTML page with settings, results and figures, and a table as CSV.

    For example:
        ropewalk report runs --baseline axial
        ropewalk report results/equivariance/main.jsonl

    Args:
        paths: Folders of runs, or of many; the comparison-*.json that `compare` wrote; or .jsonl files of records, such as
            results/equivariance/main.jsonl.
        out: The folder of report.html, report.csv and figures/.
        question: The question that the runs answer, in a sentence.
        baseline: The encoding with which the others are compared; none by default.
        import_: Modules that define the encodings of the runs.
    """
    from ropewalk.lab.encoding_spec import import_modules
    from ropewalk.lab.record_search import find_records

    require_matplotlib()
    import_modules(import_)
    records = find_records([Path(path) for path in paths])
    label = "none" if baseline is None else _find_baseline(baseline, records)
    _write_report(records, Path(out), make_console(stderr=True), question=question, baseline=label)
    return 0


def _find_baseline(baseline: str, records: "Sequence[RunRecord]") -> str:
    """The label of the baseline, which must be that of a run."""
    from ropewalk.lab.encoding_spec import parse_encoding

    labels = sorted({record.label for record in records})
    label = baseline if baseline in labels else parse_encoding(baseline, load=True).label
    if label not in labels:
        raise CommandError(describe_unknown("baseline", [baseline], labels))
    return label


def _write_report(
    records: "Sequence[RunRecord]", out: Path, console: "Console", *, question: str = "", baseline: str
) -> None:
    """Write a report, and print what it finds and a link to it."""
    from ropewalk.lab.report import describe_findings, write_report
    from ropewalk.lab.run_store import translate_run_errors

    with console.status(f"a report of {len(records)} run{'' if len(records) == 1 else 's'}"), translate_run_errors():
        page = write_report(records, out, question=question, baseline=baseline)
    for sentence in describe_findings(records, baseline):
        print_line(sentence)
    print_file_link(page)


def bench_encodings(
    suites: tuple[str, ...] = (),
    /,
    *,
    names: tuple[str, ...] = (),
    modes: tuple[str, ...] = (),
    out: str = "out/bench.json",
    json: bool = False,
) -> int:
    """Measure the cost of encodings on this machine, against a plain copy, a model without an encoding, and other libraries.

    For example:
        ropewalk bench
        ropewalk bench steps --names axial mymodule:MyEncoding

    Args:
        suites: Of ops, lengths, steps and cpu; all by default. Without a GPU, shapes are small and times mean little.
        names: Only rows of these names, or of names that begin with one and a comma: axial, timm, "axial, learned"; or
            encodings of your own, as module:Class, for the steps.
        modes: Of the steps: eager, compiled, and on a GPU captured (in a CUDA graph) and "compiled and captured"; all by
            default. Without a GPU, "compiled" is traced, not optimized.
        out: The JSON file of the measurements, written after each row; a figure of the steps is written beside it.
        json: Print one JSON document and nothing else.
    """
    from ropewalk.lab.bench.suites import run_benchmarks
    from ropewalk.lab.encoding_spec import find_encoding_class

    for name in names:
        if ":" in name:
            find_encoding_class(name.partition(",")[0])
    console = make_console(stderr=json)
    document, written = run_benchmarks(suites, Path(out), console, names=names, modes=modes)
    if json:
        print_json(document)
    else:
        for path in written:
            print_line(path)
    return 1 if any("refused" in row or "failed" in row for row in document["rows"]) else 0

"""The verbs on runs: fold, train, evaluate, compare, report. Signatures and docstrings make their command lines."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from ropewalk.lab.console import is_main_process, make_console, print_json, require_matplotlib
from ropewalk.lab.errors import CommandError
from ropewalk.lab.probes.probe_runs import choose_probes, probe_all_runs, probe_or_raise
from ropewalk.lab.recipes import parse_settings
from ropewalk.lab.record_search import find_records, find_run_folders
from ropewalk.lab.studying import (
    collect_flag_settings,
    execute_compare,
    execute_fold,
    execute_report,
    execute_study,
    execute_train,
    list_finished_runs,
    merge_encodings,
    print_comparison,
)


def run_fold_command(run: str, /, *, out: str | None = None) -> int:
    """Fold the encoding of a trained run into its weights: the same answers from mixed RoPE, at no further cost.

    Args:
        run: The folder of a run that is done.
        out: A file for the weights, which ends in .safetensors; folded.safetensors in the run's folder by default.
    """
    done = execute_fold(Path(run), None if out is None else Path(out))
    make_console().print(done.told())
    print(done.path)
    return 0


def run_train_command(
    name: str,
    /,
    *,
    recipe: str = "digits",
    model: str | None = None,
    task: str | None = None,
    start: Annotated[str | None, tyro.conf.arg(name="from")] = None,
    set: tuple[str, ...] = (),
    seed: int = 0,
    runs: str = "runs",
    track: tuple[str, ...] = (),
) -> int:
    """Train a model with an encoding, or go on where that was left, and test it once.

    Args:
        name: An encoding from `ropewalk list`, with its options if need be: liere:block=4,scale=0.5.
        recipe: Settings by name: digits, cifar100-tiny, cifar100-small, van-de-geijn, van-de-geijn-cifar, deit-iii, liere,
            comrope, penn-fudan, penn-fudan-maps, modelnet10, modelnet10-half, books.
        model: A vision transformer of timm's, as timm:vit_small_patch16_224; the recipe's own by default.
        task: detect, masks or segment; the recipe's own by default.
        start: The folder of a run that is done, whose weights it begins with, as far as the encodings have them in common.
        set: Settings that replace the recipe's, as key=value: epochs=10 batch=256 augment=flip,crop.
        seed: Of all that is drawn.
        runs: The folder of runs.
        track: Trackers of accelerate that are installed, such as tensorboard or wandb.
    """
    words = (*set, *collect_flag_settings(model=model, task=task, start=start))
    config, console = dataclasses.replace(parse_settings(recipe, words), seed=seed), make_console()
    console.print(str(execute_train(name, config, Path(runs), console, track).path))
    return 0


def run_evaluate_command(path: str, /, *, probes: tuple[str, ...] = (), json: bool = False) -> int:
    """Probe a trained run: other resolutions, moved positions and images, shuffled patches, longer texts, cost.

    Args:
        path: The folder of a run; or that of many, or the file that `compare` wrote.
        probes: Some of resolution, offset, translation, shuffle, reached, frequencies, waves, equivariance, cost, or,
            of text, positions, passkey, cost; all by default. What was found before is not measured again.
        json: Print one JSON document and nothing else.
    """
    probed = probe_or_raise(find_run_folders([Path(path)]), probes, make_console(stderr=json))
    if json:
        print_json(probed.found)
    else:
        for path in probed.found:
            print(Path(path) / "probes.json")
    return 1 if probed.errors else 0


def run_compare_command(
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
    out: str = "out/report",
    no_report: bool = False,
    study: str | None = None,
    part: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    seed: tuple[int, ...] = (),
    together: int = 1,
) -> int:
    """Train encodings under the same conditions with several seeds, probe them, and report what they come to.

    Args:
        encodings: Names from `ropewalk list`, with options if need be: axial liere:block=4. None for a study.
        recipe: Settings by name, as for `train`.
        model: A vision transformer of timm's, as timm:vit_small_patch16_224; the recipe's own by default.
        task: detect, masks or segment; the recipe's own by default.
        set: Settings that replace the recipe's, as key=value.
        seeds: How many.
        baseline: What others are compared with; it is trained too.
        also: What is trained beside them in every comparison; `--also` with nothing leaves it out.
        runs: The folder of runs. Those that are done are not trained again.
        probes: What runs are probed for, as in `evaluate`; everything by default.
        out: The folder for report.html.
        no_report: Probe nothing and write no report: train, and print the table.
        study: A study by name, equivariance, equivariance-imagenette, volumes or pedestrians, with encodings, recipe and
            seeds of its own. Its lines go to the folder `out`.
        part: Parts of the study; all, one after another, by default.
        only: Encodings of the study, by the names that they have in it; all by default.
        seed: Seeds of the study; those of each part by default.
        together: Processes that share the runs of a study, each with its share of the processors.
    """
    if study is not None:
        places, console = (Path(runs), Path(out)), make_console()
        return execute_study(study, encodings, set, part, only, seed, *places, console, count=together)
    if not encodings or part or only or seed or together != 1:
        raise CommandError("compare needs the names of encodings, or --study with --part, --only, --seed or --together")
    chosen, console = choose_probes(probes), make_console()
    if not no_report:
        require_matplotlib()
    every, base = (
        merge_encodings(encodings, also),
        parse_settings(recipe, (*set, *collect_flag_settings(model=model, task=task))),
    )
    done = execute_compare(every, base, Path(runs), seeds, baseline, console)
    if not is_main_process():
        return done.code
    missed = [] if no_report else probe_all_runs(list_finished_runs(done), chosen, console).errors
    print_comparison(done, console)
    print(done.path)
    if not no_report:
        print(execute_report(find_records([done.path]), Path(out), console, baseline=done.baseline))
    return 1 if missed else done.code


def run_report_command(
    paths: tuple[str, ...] = ("runs",), /, *, out: str = "out/report", question: str = "", baseline: str = "none"
) -> int:
    """Write one page on runs: what was asked, held equal and found, with figures; and a table as CSV.

    Args:
        paths: Folders of runs, or of many, or the file that `compare` wrote; or files of lines that a study wrote, such as
            results/equivariance/main.jsonl, which need no folders beside them.
        out: The folder for report.html.
        question: What was asked, in a sentence.
        baseline: What others are compared with.
    """
    require_matplotlib()
    records = find_records([Path(path) for path in paths])
    print(execute_report(records, Path(out), make_console(stderr=True), question=question, baseline=baseline))
    return 0

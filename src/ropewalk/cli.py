"""The command `ropewalk`. A verb is a function and a line in `VERBS`; its signature and docstring make its command line."""

import contextlib
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from ropewalk import factory
from ropewalk.encoding import Encoding
from ropewalk.lab.console import collapse_whitespace, make_console, print_json, require_matplotlib
from ropewalk.lab.encoding_spec import build_encoding, find_encoding_class, get_class_examples
from ropewalk.lab.encoding_weights import is_run_path, load_encoding_weights, load_run_encoding
from ropewalk.lab.errors import CommandError, translate_value_errors
from ropewalk.lab.inspect.contract_results import run_contract_checks
from ropewalk.lab.inspect.encoding_facts import (
    describe_encoding,
    format_encoding_facts,
    format_encoding_table,
    summarize_encoding,
)
from ropewalk.lab.inspect.terminal_sketch import can_draw_sketch, draw_terminal_sketch
from ropewalk.lab.inspect.theory_facts import analyze_encoding
from ropewalk.lab.inspect.theory_text import format_theory_facts
from ropewalk.lab.verbs import (
    run_compare_command,
    run_evaluate_command,
    run_fold_command,
    run_report_command,
    run_train_command,
)
from ropewalk.theory.commuting import turns


def list_encodings(*, json: bool = False) -> int:
    """All encodings, in a table.

    Args:
        json: Print one JSON document and nothing else.
    """
    rows = [summarize_encoding(factory.find(name)) for name in factory.names()]
    if json:
        return print_json(rows)
    console = make_console()
    for line in format_encoding_table(rows, width=console.width):
        console.print(line)
    return 0


def show(name: str, options: tuple[str, ...] = (), /, *, draw: str | None = None, json: bool = False) -> int:
    """One encoding: what it does and promises, what it learns, how to build it again, and how it looks.

    Args:
        name: A name from `ropewalk list`, or module:Class.
        options: What to build it with, as key=value: head_dim=64 size=14,14. Eight heads of 48 channels by default.
        draw: Draw attention patterns to this file, .png or .svg, instead of to the terminal.
        json: Print one JSON document and nothing else.
    """
    torch.manual_seed(0)
    encoding = build_encoding(find_encoding_class(name), options)
    card = describe_encoding(encoding)
    if json and draw is not None:
        raise CommandError(f"--json prints a document and draws nothing, got --draw {draw}")
    if json:
        return print_json(card)
    drawn = [] if draw is None else _drawn(encoding, "patterns", draw)
    console = make_console()
    console.print(f"{card['class']}, {card['paper']}\n\n{card['description']}\n")
    for label, words in format_encoding_facts(card):
        console.print(f"{label:<12} {words}")
    for path in drawn:
        console.print(f"{'drawn to':<12} {path}")
    if draw is None and can_draw_sketch(console):
        console.print()
        console.print(draw_terminal_sketch(encoding, width=console.width))
    return 0


def check(name: str, options: tuple[str, ...] = (), /, *, json: bool = False) -> int:
    """Hold an encoding, ours or yours, to the contract of `ropewalk.testing`.

    Args:
        name: A name from `ropewalk list`, or module:Class, the current directory included.
        options: Check the one instance built with these, as key=value, instead of all examples.
        json: Print one JSON document and nothing else.
    """
    kind = find_encoding_class(name)
    torch.manual_seed(0)
    instances = [build_encoding(kind, options)] if options else get_class_examples(kind)
    console = make_console(stderr=json)
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        results = [result for instance in instances for result in run_contract_checks(instance, console, quiet=json)]
    failed = sum(not result["passed"] for result in results)
    if json:
        print_json({"name": name, "passed": not failed, "checks": results})
    else:
        counts = f"{_count(results, 'check')} of {_count(instances, 'instance')}"
        console.print(f"{name}: {counts}, {failed or 'none'} failed")
    return 1 if failed else 0


def draw_figures(
    name: str,
    options: tuple[str, ...] = (),
    /,
    *,
    figure: str = "all",
    out: str = "out",
    theme: Literal["light", "dark"] = "light",
    format: Literal["png", "svg"] | None = None,
    seed: int = 0,
) -> int:
    """Draw an encoding: attention patterns, frequencies, decay, and whatever else there is of it.

    Args:
        name: A name from `ropewalk list`, or module:Class.
        options: What to build it with, as key=value: head_dim=64 size=14,14. Eight heads of 48 channels by default.
        figure: One of patterns, frequencies, sphere, decay, turns, tables; or all that there are.
        out: A folder, for files named NAME-FIGURE-THEME; or a file for one figure.
        theme: Dark words on white, or light ones on black.
        format: What to write to a folder, png by default; a file's own ending says it.
        seed: Of what the encoding draws at random when it is made.
    """
    kind = find_encoding_class(name)
    torch.manual_seed(seed)
    for path in _drawn(build_encoding(kind, options), figure, out, theme=theme, format=format):
        print(path)
    return 0


def theory(
    name: str,
    options: tuple[str, ...] = (),
    /,
    *,
    weights: str | None = None,
    out: str = "out",
    theme: Literal["light", "dark"] = "light",
    seed: int = 0,
    json: bool = False,
) -> int:
    """What an encoding's mathematics says of it, trained or not: whether it commutes, is relative, folds, and how it turns.

    Args:
        name: A name from `ropewalk list`, or module:Class; or the folder of a run, for its trained encoding.
        options: What to build it with, as key=value: head_dim=64 size=14,14. Eight heads of 48 channels by default.
        weights: A safetensors file of its numbers, or of a model's that has it as `encoding`. Drawn at random without.
        out: A folder, for a figure named NAME-equivariance-THEME.png; or a file.
        theme: Dark words on white, or light ones on black.
        seed: Of what the encoding draws at random when it is made.
        json: Print one JSON document and nothing else, and draw nothing.
    """
    if is_run_path(name):
        _refuse_more(options, weights, seed)
        encoding, weights, seed = load_run_encoding(name)
    else:
        encoding = _encoding(name, options, weights, seed)
    path = None if json or not turns(encoding) else _place(encoding, out, theme)
    try:
        with translate_value_errors():
            found = analyze_encoding(encoding) | {"weights": weights, "seed": seed}
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise CommandError(f"{encoding.name} has numbers that are too large to compute with: {error}") from error
    if json:
        return print_json(found)
    if path is not None:
        _picture(encoding, path, theme)
    console = make_console()
    for label, words in format_theory_facts(found):
        console.print(f"{label:<12} {words}")
    if path is not None:
        console.print(f"{'drawn to':<12} {path}")
    return 0


def bench(
    suites: tuple[str, ...] = (),
    /,
    *,
    names: tuple[str, ...] = (),
    modes: tuple[str, ...] = (),
    out: str = "out/bench.json",
    json: bool = False,
) -> int:
    """Measure what encodings cost on this machine, beside a plain copy, the same model with none, and peers.

    Args:
        suites: Of ops, lengths, steps and cpu; all by default. Without a GPU, shapes are small and say little.
        names: Rows of these names alone, or of names that begin so before a comma: axial, timm, "axial, learned".
        modes: Of the steps: eager, compiled, and on a GPU captured (in a CUDA graph) and "compiled and captured"; all by
            default. Without a GPU, "compiled" is traced, not optimised.
        out: A file for what is measured; it is written anew after each row. A picture of the steps lies beside it.
        json: Print one JSON document and nothing else.
    """
    from ropewalk.lab.bench.suites import run_benchmarks

    console = make_console(stderr=json)
    document, written = run_benchmarks(suites, Path(out), console, names=names, modes=modes)
    if json:
        print_json(document)
    else:
        for path in written:
            print(path)
    return 1 if any("refused" in row or "failed" in row for row in document["rows"]) else 0


VERBS: dict[str, Callable[..., int]] = {
    "list": list_encodings,
    "show": show,
    "check": check,
    "draw": draw_figures,
    "theory": theory,
    "fold": run_fold_command,
    "train": run_train_command,
    "evaluate": run_evaluate_command,
    "compare": run_compare_command,
    "report": run_report_command,
    "bench": bench,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and say how it went: 0 well, 1 a check or a run failed, 2 refused, 130 interrupted."""
    if any(importlib.util.find_spec(name) is None for name in ("rich", "tyro")):
        print("ropewalk: the command line needs rich and tyro: pip install 'ropewalk[lab]'", file=sys.stderr)
        return 2
    import tyro

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    style = (tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName)
    about = "Positional encodings for PyTorch: look at them, hold them to their promises, draw, train and compare them."
    try:
        return tyro.extras.subcommand_cli_from_dict(VERBS, prog="ropewalk", description=about, args=arguments, config=style)
    except CommandError as refusal:
        return _said(refusal, refusal.code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read the output has gone; what is left in the buffer must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _said(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error, 2)


def _said(words: object, code: int) -> int:
    print(f"ropewalk: {collapse_whitespace(words)}", file=sys.stderr)
    return code


def _encoding(name: str, options: Sequence[str], weights: str | None, seed: int) -> Encoding:
    """Built from a name, with numbers from a file or drawn at random."""
    torch.manual_seed(seed)
    encoding = build_encoding(find_encoding_class(name), options)
    if weights is not None:
        load_encoding_weights(encoding, weights)
    return encoding


def _refuse_more(options: Sequence[str], weights: str | None, seed: int) -> None:
    """A run has options, weights and a seed of its own."""
    given = [*options, *([] if weights is None else [f"--weights {weights}"]), *([f"--seed {seed}"] if seed else [])]
    if given:
        raise CommandError(f"a run has options, weights and a seed of its own, and takes no others, got {' '.join(given)}")


def _drawn(encoding: Encoding, figure: str, out: str, **options: Any) -> list[Path]:
    require_matplotlib()
    from ropewalk.lab.figures.figure_files import draw_figure_files

    return draw_figure_files(encoding, figure, out, **options)


def _place(encoding: Encoding, out: str, theme: str) -> Path:
    """Where the figure of `theory` goes."""
    require_matplotlib()
    from ropewalk.lab.figures.figure_files import resolve_figure_paths

    (path,) = resolve_figure_paths(["equivariance"], out, encoding=encoding, theme=theme, format=None).values()
    return path


def _picture(encoding: Encoding, path: Path, theme: str) -> None:
    """Draw the figure of `theory`."""
    from ropewalk.lab.figures.equivariance import draw_equivariance
    from ropewalk.lab.figures.figure_files import encode_figure, write_figure_file

    content = encode_figure(draw_equivariance(encoding, theme=theme), path.suffix.removeprefix(".").lower())
    try:
        write_figure_file(path, content)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}" + ("" if len(things) == 1 else "s")

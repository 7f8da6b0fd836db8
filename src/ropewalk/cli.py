"""The command `ropewalk`. A verb is a function and a line in `VERBS`; its signature and docstring make its command line."""

import contextlib
import dataclasses
import importlib.util
import io
import json as notation
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from ropewalk import factory
from ropewalk.encoding import Encoding
from ropewalk.lab import choose, describe, findings, listing, studying, telling, terminal, verdicts
from ropewalk.lab import weights as files
from ropewalk.theory.commuting import turns

if TYPE_CHECKING:
    from rich.console import Console


def list_encodings(*, json: bool = False) -> int:
    """All encodings, in a table.

    Args:
        json: Print one JSON document and nothing else.
    """
    rows = [describe.row(factory.find(name)) for name in factory.names()]
    if json:
        return _document(rows)
    console = _console()
    for line in listing.listing(rows, width=console.width):
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
    encoding = choose.build(choose.find(name), options)
    card = describe.card(encoding)
    if json and draw is not None:
        raise choose.Refusal(f"--json prints a document and draws nothing, got --draw {draw}")
    if json:
        return _document(card)
    drawn = [] if draw is None else _drawn(encoding, "patterns", draw)
    console = _console()
    console.print(f"{card['class']}, {card['paper']}\n\n{card['description']}\n")
    for label, words in describe.facts(card):
        console.print(f"{label:<12} {words}")
    for path in drawn:
        console.print(f"{'drawn to':<12} {path}")
    if draw is None and terminal.can_draw(console):
        console.print()
        console.print(terminal.sketch(encoding, width=console.width))
    return 0


def check(name: str, options: tuple[str, ...] = (), /, *, json: bool = False) -> int:
    """Hold an encoding, ours or yours, to the contract of `ropewalk.testing`.

    Args:
        name: A name from `ropewalk list`, or module:Class, the current directory included.
        options: Check the one instance built with these, as key=value, instead of all examples.
        json: Print one JSON document and nothing else.
    """
    kind = choose.find(name)
    torch.manual_seed(0)
    instances = [choose.build(kind, options)] if options else choose.examples(kind)
    console = _console(stderr=json)
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        results = [result for instance in instances for result in verdicts.verdicts(instance, console, quiet=json)]
    failed = sum(not result["passed"] for result in results)
    if json:
        _document({"name": name, "passed": not failed, "checks": results})
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
    kind = choose.find(name)
    torch.manual_seed(seed)
    for path in _drawn(choose.build(kind, options), figure, out, theme=theme, format=format):
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
        name: A name from `ropewalk list`, or module:Class.
        options: What to build it with, as key=value: head_dim=64 size=14,14. Eight heads of 48 channels by default.
        weights: A safetensors file of its numbers, or of a model's that has it as `encoding`. Drawn at random without.
        out: A folder, for a figure named NAME-equivariance-THEME.png; or a file.
        theme: Dark words on white, or light ones on black.
        seed: Of what the encoding draws at random when it is made.
        json: Print one JSON document and nothing else, and draw nothing.
    """
    torch.manual_seed(seed)
    encoding = choose.build(choose.find(name), options)
    if weights is not None:
        files.load(encoding, weights)
    path = None if json or not turns(encoding) else _place(encoding, out, theme)
    try:
        with choose.refusing():
            found = findings.findings(encoding) | {"weights": weights, "seed": seed}
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise choose.Refusal(f"{encoding.name} has numbers that are too large to compute with: {error}") from error
    if json:
        return _document(found)
    if path is not None:
        _picture(encoding, path, theme)
    console = _console()
    for label, words in telling.told(found):
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
    from ropewalk.lab import benching

    console = _console(stderr=json)
    document, written = benching.measure(suites, Path(out), console, names=names, modes=modes)
    if json:
        _document(document)
    else:
        for path in written:
            print(path)
    return 1 if any("refused" in row or "failed" in row for row in document["rows"]) else 0


def train(
    name: str,
    /,
    *,
    recipe: str = "digits",
    set: tuple[str, ...] = (),
    seed: int = 0,
    runs: str = "runs",
    track: tuple[str, ...] = (),
) -> int:
    """Train a model with an encoding, or go on where that was left, and test it once.

    Args:
        name: An encoding from `ropewalk list`, with its options if need be: liere:block=4,scale=0.5.
        recipe: Settings by name: digits, cifar100-tiny, cifar100-small, van-de-geijn, van-de-geijn-cifar, deit-iii, liere,
            comrope.
        set: Settings that replace the recipe's, as key=value: epochs=10 batch=256 augment=flip,crop.
        seed: Of all that is drawn.
        runs: The folder of runs.
        track: Trackers of accelerate, tensorboard or wandb.
    """
    config = dataclasses.replace(studying.settings(recipe, set), seed=seed)
    run = studying.train(name, config, Path(runs), _console(), track)
    print(run.path)
    return 0


def evaluate(path: str, /, *, probes: tuple[str, ...] = (), json: bool = False) -> int:
    """Probe a trained run: other resolutions, moved positions and images, shuffled patches, cost, what it learned.

    Args:
        path: The folder of a run.
        probes: Some of resolution, offset, translation, shuffle, reached, frequencies, waves, equivariance, cost; all by
            default. What was found before is not measured again.
        json: Print one JSON document and nothing else.
    """
    found = studying.evaluate(Path(path), probes, _console(stderr=json))
    if json:
        return _document(found)
    print(Path(path) / "probes.json")
    return 0


def compare(
    encodings: tuple[str, ...],
    /,
    *,
    recipe: str = "digits",
    set: tuple[str, ...] = (),
    seeds: int = 3,
    baseline: str = "none",
    runs: str = "runs",
) -> int:
    """Train encodings under the same conditions with several seeds, and print what they come to.

    Args:
        encodings: Names from `ropewalk list`, with options if need be: axial liere:block=4.
        recipe: Settings by name, as for `train`.
        set: Settings that replace the recipe's, as key=value.
        seeds: How many.
        baseline: What others are compared with; it is trained too.
        runs: The folder of runs. Those that are done are not trained again.
    """
    done = studying.compare(encodings, studying.settings(recipe, set), Path(runs), seeds, baseline, _console())
    print(done.path)
    return done.code


def report(
    paths: tuple[str, ...] = ("runs",), /, *, out: str = "out/report", question: str = "", baseline: str = "none"
) -> int:
    """Write one page on runs: what was asked, held equal and found, with figures; and a table as CSV.

    Args:
        paths: Folders of runs, or of many, or the file that `compare` wrote.
        out: The folder for report.html.
        question: What was asked, in a sentence.
        baseline: What others are compared with.
    """
    from ropewalk.lab.report import report as write

    with choose.refusing():
        print(write(studying.found([Path(path) for path in paths]), Path(out), question=question, baseline=baseline))
    return 0


VERBS: dict[str, Callable[..., int]] = {
    "list": list_encodings,
    "show": show,
    "check": check,
    "draw": draw_figures,
    "theory": theory,
    "train": train,
    "evaluate": evaluate,
    "compare": compare,
    "report": report,
    "bench": bench,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and say how it went: 0 well, 1 a check failed, 2 refused, 130 interrupted."""
    if any(importlib.util.find_spec(name) is None for name in ("rich", "tyro")):
        print("ropewalk: the command line needs rich and tyro: pip install 'ropewalk[lab]'", file=sys.stderr)
        return 2
    import tyro

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    style = (tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName)
    about = "Positional encodings for PyTorch: look at them, hold them to their promises, draw them."
    try:
        return tyro.extras.subcommand_cli_from_dict(VERBS, prog="ropewalk", description=about, args=arguments, config=style)
    except choose.Refusal as refusal:
        print(f"ropewalk: {verdicts.one_line(refusal)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read the output has gone; what is left in the buffer must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _drawn(encoding: Encoding, figure: str, out: str, **options: Any) -> list[Path]:
    _need_matplotlib()
    from ropewalk.lab import drawing

    return drawing.draw(encoding, figure, out, **options)


def _place(encoding: Encoding, out: str, theme: str) -> Path:
    """Where the figure of `theory` goes."""
    _need_matplotlib()
    from ropewalk.lab import drawing

    (path,) = drawing.destinations(["equivariance"], out, encoding=encoding, theme=theme, format=None).values()
    return path


def _picture(encoding: Encoding, path: Path, theme: str) -> None:
    """Draw the figure of `theory`."""
    from ropewalk.lab import drawing, plots

    content = drawing.rendered(plots.equivariance(encoding, theme=theme), path.suffix.removeprefix(".").lower())
    try:
        drawing.write(path, content)
    except OSError as error:
        raise choose.Refusal(f"{path} cannot be written: {error.strerror or error}") from error


def _need_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise choose.Refusal("figures need matplotlib: pip install 'ropewalk[lab]'")


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}" + ("" if len(things) == 1 else "s")


def _document(value: Any) -> int:
    print(notation.dumps(value, indent=2), flush=True)
    return 0


def _console(*, stderr: bool = False) -> "Console":
    """Plain words, wrapped by the terminal. A pipe has no width: what goes there has a line to itself."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:  # Rich would end the program as if a check had failed.
            raise BrokenPipeError

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 1000
    return Piped(stderr=stderr, width=wide, markup=False, highlight=False, soft_wrap=True)

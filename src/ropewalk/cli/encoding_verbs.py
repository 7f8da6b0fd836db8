"""The verbs about encodings: list, show, check, draw, theory."""

import contextlib
import inspect
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ropewalk.lab.console import collapse_whitespace, make_console, print_json, print_line, require_matplotlib
from ropewalk.lab.errors import CommandError, translate_value_errors

if TYPE_CHECKING:
    from rich.console import Console

    from ropewalk.encoding import Encoding

Theme = Literal["light", "dark"]


def list_encodings(
    classes: tuple[str, ...] = (),
    /,
    *,
    recipes: bool = False,
    settings: bool = False,
    tasks: bool = False,
    probes: bool = False,
    figures: bool = False,
    json: bool = False,
) -> int:
    """List all encodings in a table; or the recipes, settings, tasks or probes of runs, or the figures of encodings.

    For example:
        ropewalk list
        ropewalk list mymodule:MyEncoding
        ropewalk list --recipes
        ropewalk list --settings

    Args:
        classes: Encodings of your own, as module:Class, which are added to the table.
        recipes: List the recipes of `train` and `compare` instead.
        settings: List the settings that `--set` takes instead.
        tasks: List the tasks that `--task` takes instead.
        probes: List the probes of `evaluate` and `compare`, with the tasks that they support, instead.
        figures: List the figures of `draw` instead.
        json: Print one JSON document and nothing else.
    """
    others = {"recipes": recipes, "settings": settings, "tasks": tasks, "probes": probes, "figures": figures}
    if chosen := [name for name, given in others.items() if given]:
        return _list_others(chosen, classes, json=json)
    from ropewalk import factory
    from ropewalk.lab.encoding_spec import find_encoding_class
    from ropewalk.lab.inspect.encoding_facts import format_encoding_table, summarize_encoding

    for name in classes:
        if find_encoding_class(name) and ":" not in name:
            raise CommandError(
                f"list takes encodings of your own, as module:Class, got the built-in {name!r}: "
                f"`ropewalk list` lists all built-in ones, `ropewalk show {name}` describes this one"
            )
    found = [(name, find_encoding_class(name)) for name in dict.fromkeys([*factory.names(), *classes])]
    rows = [summarize_encoding(kind) | {"name": factory.canonical_name(name)} for name, kind in found]
    rows = list({row["name"]: row for row in rows}.values())
    if json:
        return print_json(rows)
    console = make_console()
    for line in format_encoding_table(rows, width=console.width):
        console.print(line)
    return 0


def _list_others(chosen: Sequence[str], classes: Sequence[str], *, json: bool) -> int:
    """Print the recipes, the settings, the tasks, the probes or the figures."""
    if len(chosen) > 1:
        raise CommandError(f"list prints one table: give {' or '.join(f'--{name}' for name in chosen)}, not several")
    if classes:
        raise CommandError(f"--{chosen[0]} lists no encodings, got {', '.join(classes)}")
    if chosen == ["settings"]:
        return _list_settings(json=json)
    describe = {
        "recipes": _describe_recipes,
        "tasks": _describe_tasks,
        "probes": _describe_probes,
        "figures": _describe_figures,
    }
    found = describe[chosen[0]]()
    if json:
        return print_json(found)
    wide = max(map(len, found))
    make_console().print("\n".join(f"{name:<{wide}}  {text}" for name, text in found.items()))
    return 0


def _describe_recipes() -> dict[str, str]:
    from ropewalk.lab.recipes import describe_recipes

    return describe_recipes()


def _describe_tasks() -> dict[str, str]:
    from ropewalk.lab.task_types import TASK_TYPES

    return {name: f"{task.summary} Evaluated by {task.metric.name}." for name, task in TASK_TYPES.items()}


def _describe_probes() -> dict[str, str]:
    from ropewalk.lab.probes import PROBES
    from ropewalk.lab.task_types import TASK_TYPES

    return {
        name: f"{probe.summary} Tasks: {', '.join(task for task in TASK_TYPES if probe.supports(task))}."
        for name, probe in PROBES.items()
    }


def _describe_figures() -> dict[str, str]:
    require_matplotlib()
    from ropewalk.lab.figures import FIGURES

    return {name: (inspect.getdoc(draw) or "").partition("\n")[0] for name, draw in FIGURES.items()}


def _list_settings(*, json: bool) -> int:
    from ropewalk.lab.config import PER_RUN_FIELDS, describe_settings, format_setting_value

    described = [each for each in describe_settings() if each.name not in PER_RUN_FIELDS]
    described.sort(key=lambda each: each.group)
    if json:
        return print_json([each._asdict() for each in described])
    console, wide = make_console(), max(len(each.name) for each in described)
    for group, members in itertools.groupby(described, key=lambda each: each.group):
        console.print(group)
        for each in members:
            console.print(
                f"  {each.name:<{wide}}  {each.help} Type: {each.type}. Default: {format_setting_value(each.default)}"
            )
    return 0


def show_encoding(name: str, options: tuple[str, ...] = (), /, *, draw: str | None = None, json: bool = False) -> int:
    """Describe one encoding: its definition, traits, parameters and config, and its attention patterns.

    For example:
        ropewalk show spherical
        ropewalk show axial head_dim=64 --draw out/axial.png

    Args:
        name: A name from `ropewalk list`, or module:Class.
        options: Its options: head_dim=64 size=14,14. By default it has 8 heads of 48 channels.
        draw: Draw the attention patterns to this file, .png or .svg, and not to the terminal.
        json: Print one JSON document and nothing else.
    """
    if json and draw is not None:
        raise CommandError(f"--json prints a document and draws nothing, got --draw {draw}")
    from ropewalk.lab.inspect.encoding_facts import describe_encoding, format_encoding_facts
    from ropewalk.lab.inspect.terminal_sketch import can_draw_sketch, draw_terminal_sketch

    encoding = _build_encoding(name, options)
    card = describe_encoding(encoding)
    if json:
        return print_json(card)
    drawn = [] if draw is None else _draw_files(encoding, "patterns", draw)
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


def check_encoding(name: str, options: tuple[str, ...] = (), /, *, json: bool = False) -> int:
    """Check an encoding, built-in or your own, against the contract of `ropewalk.testing`.

    For example:
        ropewalk check axial
        ropewalk check mymodule:MyEncoding heads=2 --json

    Args:
        name: A name from `ropewalk list`, or module:Class; modules of the current directory are found.
        options: Check the one instance with these options, and not the examples of the class.
        json: Print one JSON document and nothing else.
    """
    import torch

    from ropewalk.lab.encoding_spec import build_encoding, find_encoding_class, get_class_examples

    kind = find_encoding_class(name)
    torch.manual_seed(0)
    instances = [build_encoding(kind, options)] if options else get_class_examples(kind)
    console = make_console(stderr=json)
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        results = [result for instance in instances for result in _run_checks(instance, console, quiet=json)]
    failed = sum(not result["passed"] for result in results)
    if json:
        print_json({"name": name, "passed": not failed, "checks": results})
    else:
        counts = f"{_format_count(results, 'check')} of {_format_count(instances, 'instance')}"
        console.print(f"{name}: {counts}, {failed or 'none'} failed")
    return 1 if failed else 0


def _run_checks(instance: "Encoding", console: "Console", *, quiet: bool) -> Iterator[dict[str, Any]]:
    """The result of each check of one instance; printed as it comes, unless quiet."""
    from ropewalk.testing import checks_for

    checks = checks_for(instance)
    if not quiet:
        console.print(repr(instance))
    for number, check in enumerate(checks, start=1):
        title = check.__name__.removeprefix("check_").replace("_", " ")
        promise = (check.__doc__ or "").strip().partition("\n")[0]
        fault = None
        with console.status(f"{title}, {number} of {len(checks)}"):
            try:
                check(instance)
            except AssertionError as error:
                fault = collapse_whitespace(error) or "it failed without a message"
            except Exception as error:
                fault = collapse_whitespace(f"{type(error).__name__}: {error}")
        if not quiet:
            console.print("✗" if fault else "✓", style="red" if fault else "green", end=" ")
            console.print(f"{title:<12} {fault or promise}")
        row = {"encoding": repr(instance), "check": check.__name__, "promise": promise}
        yield row | {"passed": fault is None, "message": fault}
    if not quiet:
        console.print()


def draw_encoding(
    name: str,
    options: tuple[str, ...] = (),
    /,
    *,
    figure: str = "all",
    out: str = "out",
    theme: Theme = "light",
    format: Literal["png", "svg"] | None = None,
    seed: int = 0,
) -> int:
    """Draw figures of an encoding: attention patterns, frequencies, decay and others.

    For example:
        ropewalk draw mixed
        ropewalk draw spherical --figure sphere --out out/s.svg

    Args:
        name: A name from `ropewalk list`, or module:Class.
        options: Its options: head_dim=64 size=14,14. By default it has 8 heads of 48 channels.
        figure: A figure of `ropewalk list --figures`; all that apply by default.
        out: A folder, for files named NAME-FIGURE-THEME; or a file, for one figure.
        theme: Dark text on white, or light text on black.
        format: The format of files in a folder, png by default; that of a file is its suffix.
        seed: The seed of the encoding's random initialization.
    """
    for path in _draw_files(_build_encoding(name, options, seed=seed), figure, out, theme=theme, format=format):
        print_line(path)
    return 0


def analyze_theory(
    name: str,
    options: tuple[str, ...] = (),
    /,
    *,
    weights: str | None = None,
    out: str | None = None,
    theme: Theme | None = None,
    seed: int | None = None,
    import_: tuple[str, ...] = (),
    json: bool = False,
) -> int:
    """Analyze an encoding, trained or not: whether it commutes, is relative, folds to mixed RoPE, and its frequencies.

    For example:
        ropewalk theory spherical
        ropewalk theory runs/mixed-seed0-2b3d4f5a6c --json

    Args:
        name: A name from `ropewalk list`, or module:Class; or the folder of a run, for its trained encoding.
        options: Its options: head_dim=64 size=14,14. By default it has 8 heads of 48 channels.
        weights: A safetensors file of its parameters, or of a model that has it as `encoding`.
        out: A folder, for a figure named NAME-equivariance-THEME.png, or a file; out/ by default.
        theme: Dark text on white, or light text on black; light by default.
        seed: The seed of its random initialization, 0 by default.
        import_: Modules that define the encoding of a run.
        json: Print one JSON document and no figure.
    """
    import torch

    from ropewalk.lab.encoding_spec import import_modules
    from ropewalk.lab.encoding_weights import is_run_path, load_encoding_weights, load_run_encoding
    from ropewalk.lab.inspect.theory_facts import analyze_encoding, format_theory_facts
    from ropewalk.theory.commuting import turns

    import_modules(import_)
    figure_options = {"--out": out, "--theme": theme}
    if json:
        _refuse_options("--json prints a document and draws nothing", figure_options)
    if is_run_path(name):
        own = {"": " ".join(options) or None, "--weights": weights, "--seed": seed}
        _refuse_options("a run has options, weights and a seed of its own, and takes no others", own)
        encoding, weights, seed = load_run_encoding(name)
    else:
        seed = seed or 0
        encoding = _build_encoding(name, options, seed=seed)
        if weights is not None:
            load_encoding_weights(encoding, weights)
    if not turns(encoding):
        _refuse_options(f"{encoding.name} rotates no channels, and has no such figure", figure_options)
    path = None if json or not turns(encoding) else _resolve_figure_path(encoding, out or "out", theme or "light")
    try:
        with translate_value_errors():
            found = analyze_encoding(encoding) | {"weights": weights, "seed": seed}
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise CommandError(f"{encoding.name} has parameters that are too large to compute with: {error}") from error
    if json:
        return print_json(found)
    if path is not None:
        _draw_equivariance(encoding, path, theme or "light")
    console = make_console()
    for label, words in format_theory_facts(found):
        console.print(f"{label:<12} {words}")
    if path is not None:
        console.print(f"{'drawn to':<12} {path}")
    return 0


def _refuse_options(reason: str, given: Mapping[str, object]) -> None:
    """Refuse options that would have no effect; those that are None were not given."""
    if words := [f"{name} {value}".strip() for name, value in given.items() if value is not None]:
        raise CommandError(f"{reason}, got {' '.join(words)}")


def _build_encoding(name: str, options: Sequence[str], *, seed: int = 0) -> "Encoding":
    """An encoding with these options, initialized with this seed."""
    import torch

    from ropewalk.lab.encoding_spec import build_encoding, find_encoding_class

    kind = find_encoding_class(name)
    torch.manual_seed(seed)
    return build_encoding(kind, options)


def _draw_files(encoding: "Encoding", figure: str, out: str, **options: Any) -> list[Path]:
    require_matplotlib()
    from ropewalk.lab.figures.figure_files import draw_figure_files

    return draw_figure_files(encoding, figure, out, **options)


def _resolve_figure_path(encoding: "Encoding", out: str, theme: str) -> Path:
    """The file of the figure of `theory`."""
    require_matplotlib()
    from ropewalk.lab.figures.figure_files import resolve_figure_paths

    (path,) = resolve_figure_paths(["equivariance"], out, encoding=encoding, theme=theme, format=None).values()
    return path


def _draw_equivariance(encoding: "Encoding", path: Path, theme: str) -> None:
    """Draw the figure of `theory`."""
    from ropewalk.lab.figures.equivariance import draw_equivariance
    from ropewalk.lab.figures.figure_files import encode_figure, write_figure_file

    content = encode_figure(draw_equivariance(encoding, theme=theme), path.suffix.removeprefix(".").lower())
    try:
        write_figure_file(path, content)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error


def _format_count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}" + ("" if len(things) == 1 else "s")

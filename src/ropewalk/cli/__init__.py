"""The command `ropewalk`.

encoding_verbs.py  list, show, check, draw, theory
run_verbs.py       fold, train, evaluate, compare, report, bench
study_verb.py      study

A verb is a function and an entry of `VERBS`; its signature and docstring are its command line and its help. Verbs import
what they need when they are called, so that `--help` does not wait for torch.
"""

import functools
import importlib.util
import inspect
import io
import itertools
import os
import re
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from ropewalk.cli.encoding_verbs import analyze_theory, check_encoding, draw_encoding, list_encodings, show_encoding
from ropewalk.cli.run_verbs import (
    bench_encodings,
    compare_runs,
    evaluate_runs,
    fold_encoding,
    report_runs,
    train_encoding,
)
from ropewalk.cli.study_verb import run_study
from ropewalk.lab.console import collapse_whitespace, escape_control_characters, escape_warnings
from ropewalk.lab.errors import CommandError
from ropewalk.lab.task_types import TASK_TYPES
from ropewalk.validation import check_choice, describe_unknown

Verb = Callable[..., int]

VERBS: dict[str, Verb] = {
    "list": list_encodings,
    "show": show_encoding,
    "check": check_encoding,
    "draw": draw_encoding,
    "theory": analyze_theory,
    "fold": fold_encoding,
    "train": train_encoding,
    "evaluate": evaluate_runs,
    "compare": compare_runs,
    "study": run_study,
    "report": report_runs,
    "bench": bench_encodings,
}

VALUE_NAMES = {"options": "KEY=VALUE", "set": "KEY=VALUE", "out": "PATH", "runs": "FOLDER", "import_": "MODULE"}
"""What the help calls the values of a parameter, where the parameter's own name does not say it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code: 0 success, 1 a check or a run failed, 2 refused, 130 interrupted."""
    if any(importlib.util.find_spec(name) is None for name in ("rich", "tyro")):
        return _print_refusal("the command line needs rich and tyro: pip install 'ropewalk[lab]'", 2)
    import tyro

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    style = (tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName)
    about = "Positional encodings for PyTorch: list, check and draw them; train, compare and measure models that use them."
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        escape_warnings()
        _check_words(arguments)
        verbs = {name: _annotate_verb(verb) for name, verb in VERBS.items()}
        return tyro.extras.subcommand_cli_from_dict(verbs, prog="ropewalk", description=about, args=arguments, config=style)
    except CommandError as refusal:
        return _print_refusal(refusal, refusal.code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the output has gone; what is left in the buffer must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except MemoryError as error:
        return _print_refusal(f"memory is used up: {error or 'no memory could be reserved'}; what was saved is kept", 2)
    except RecursionError as error:
        return _print_refusal(f"what was given is nested too deeply: {error}; what was saved is kept", 2)
    except OSError as error:
        return _print_refusal(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error, 2)


def _print_refusal(words: object, code: int) -> int:
    print(escape_control_characters(f"ropewalk: {collapse_whitespace(words)}"), file=sys.stderr)
    return code


def _check_words(arguments: Sequence[str]) -> None:
    """Refuse an unknown verb, unknown options and an unknown task.

    tyro would refuse unknown options too, but with the help of all verbs, and would ask for a missing NAME first.
    """
    if not arguments or arguments[0].startswith("-"):
        return
    verb = check_choice("verb", arguments[0], VERBS, error=CommandError)
    given = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    if verb == "compare" and "--study" in given:
        raise CommandError("compare has no --study: a study is run by `ropewalk study NAME`, and listed by `ropewalk study`")
    options = [*_list_options(VERBS[verb]), "--help"]
    if unknown := [name for name in given if name.replace("_", "-") not in options]:
        message = describe_unknown("option", unknown, options, of=verb)
        raise CommandError(f"{message}{'' if message.endswith('?') else '.'} See `ropewalk {verb} --help`")
    for word, following in itertools.pairwise([*arguments, ""]):
        name, equals, value = word.partition("=")
        task = value if equals else following
        if name == "--task" and task and task not in TASK_TYPES:
            message = describe_unknown("task", [task], TASK_TYPES)
            raise CommandError(f"{message}{'' if message.endswith('?') else '.'} `ropewalk list --tasks` describes them")


def _list_options(verb: Verb) -> list[str]:
    """The options of a verb, as they are written on the command line."""
    parameters = inspect.signature(verb).parameters.values()
    return [f"--{each.name.rstrip('_').replace('_', '-')}" for each in parameters if each.kind is each.KEYWORD_ONLY]


def _annotate_verb(verb: Verb) -> Verb:
    """The verb with annotations for tyro: names of values, and defaults in the help only where there are any."""
    import tyro

    @functools.wraps(verb)
    def call(*values: Any, **options: Any) -> int:
        return verb(*values, **options)

    signature = inspect.signature(verb)

    def annotate(name: str, hint: Any) -> Any:
        metavar = _name_values(signature.parameters[name], hint)
        return Annotated[
            hint,
            tyro.conf.arg(name=name.rstrip("_"), metavar=metavar, help_behavior_hint=_describe_default),
        ]

    hints = {name: annotate(name, hint) for name, hint in typing.get_type_hints(verb).items() if name != "return"}
    parameters = [each.replace(annotation=hints[each.name]) for each in signature.parameters.values()]
    del call.__wrapped__  # tyro would read the signature of what it finds there
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {**hints, "return": int}
    # tyro keeps line breaks within the description of an option.
    call.__doc__ = re.sub(r"\n {8,}(?=\S)", " ", inspect.getdoc(verb) or "")
    return call


def _name_values(parameter: inspect.Parameter, hint: Any) -> str | None:
    """What the help calls the values of a parameter; None for flags and choices, which tyro describes."""
    name = parameter.name
    if hint is bool or Literal in (typing.get_origin(each) for each in (hint, *typing.get_args(hint))):
        return None
    own = VALUE_NAMES.get(name, {int: "N"}.get(hint, name.rstrip("_").upper()))
    if typing.get_origin(hint) is tuple:
        return f"[{own} ...]"
    optional = parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is not parameter.empty
    return f"[{own}]" if optional else own


def _describe_default(value: str) -> str:
    return "" if value in ("", "''", "None", "False") else f"(default: {value})"

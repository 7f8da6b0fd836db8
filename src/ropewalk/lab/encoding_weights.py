"""Trained numbers of an encoding, from a safetensors file (its own, or a model's that has it as `encoding`) or a run."""

import contextlib
import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from ropewalk import factory
from ropewalk.encoding import Encoding
from ropewalk.lab.errors import CommandError

ENCODING_PREFIX = "encoding."


def load_encoding_weights(encoding: Encoding, path: str) -> None:
    """Give an encoding, in float64 from now on, its numbers from a safetensors file, all of them and no others.

    They are named as in its state dict. If names begin with "encoding.", as in a model's file, those alone are read.
    """
    wanted = encoding.double().state_dict()
    if not wanted:
        raise CommandError(f"{encoding.name} with these options learns nothing: there is nothing to load from {path}")
    found = _read_tensors(path)
    if found.keys() != wanted.keys():
        named = f"{_format_names(wanted)}, alone or with the prefix {ENCODING_PREFIX}"
        raise CommandError(
            f"{path} does not fit {encoding.name}: wanted are {named}; there are {_format_names(found) or 'none'}"
        )
    for name, value in found.items():
        _check_tensor(encoding, path, name, value, wanted[name])
    encoding.load_state_dict(found)


def is_run_path(name: str) -> bool:
    """Whether a word means the folder of a run: it is one, or can be nothing but a path. Names of encodings come first."""
    with contextlib.suppress(ValueError):
        return not factory.find(name)
    return os.sep in name or (Path(name) / "config.json").is_file()


def load_run_encoding(path: str) -> tuple[Encoding, str, int]:
    """The encoding of a run with the numbers of its checkpoint, the path of that, and the seed of the run."""
    from ropewalk.lab.run_store import RunFolder, translate_run_errors
    from ropewalk.lab.tasks import load_trained_model

    with translate_run_errors():
        run = RunFolder.at(Path(path))
        return load_trained_model(run).encoding, str(run.path / "checkpoint.safetensors"), run.config.seed


def _read_tensors(path: str) -> dict[str, Tensor]:
    """The tensors of a file, those with the prefix without it, if there are any."""
    if importlib.util.find_spec("safetensors") is None:
        raise CommandError("weights are read by safetensors: pip install 'ropewalk[lab]'")
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            chosen = [name for name in names if name.startswith(ENCODING_PREFIX)] or names
            return {name.removeprefix(ENCODING_PREFIX): file.get_tensor(name) for name in chosen}
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror or error}") from error
    except SafetensorError as error:
        raise CommandError(f"{path} is no whole safetensors file: {error}") from error


def _check_tensor(encoding: Encoding, path: str, name: str, value: Tensor, wanted: Tensor) -> None:
    shape, own = tuple(value.shape), tuple(wanted.shape)
    if shape != own:
        advice = "give the options that it was trained with"
        raise CommandError(f"{name} in {path} is {shape}, but that of {encoding.name} with these options is {own}: {advice}")
    if not value.is_floating_point():
        raise CommandError(f"{name} in {path} must be floating, got {value.dtype}")
    if bad := int((~value.float().isfinite()).sum()):
        raise CommandError(f"{name} in {path} must be finite in float32, got {bad} numbers of {value.numel()} that are not")


def _format_names(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")

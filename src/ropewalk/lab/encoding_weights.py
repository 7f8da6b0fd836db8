"""Trained parameters of an encoding, from a safetensors file (its own, or a model's that has it as `encoding`) or a run."""

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from ropewalk import factory
from ropewalk.encoding import Encoding
from ropewalk.lab.errors import CommandError
from ropewalk.lab.file_gate import check_regular_file

ENCODING_PREFIX = "encoding."


def load_encoding_weights(encoding: Encoding, path: str) -> None:
    """Load the parameters of an encoding, which is converted to float64, from a safetensors file.

    The file has the names of its state dict, all of them and no others. If any name begins with "encoding.", as in the file
    of a model, only these are read.
    """
    wanted = encoding.double().state_dict()
    if not wanted:
        raise CommandError(f"{encoding.name} with these options has no parameters: there is nothing to load from {path}")
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
    """Whether a word is the folder of a run: it is one, or it can only be a path. Names of encodings take precedence."""
    if factory.is_known(name):
        return False
    return os.sep in name or (Path(name) / "config.json").is_file()


def load_run_encoding(path: str) -> tuple[Encoding, str, int]:
    """The encoding of a run with the parameters of its checkpoint, the path of the checkpoint, and the seed of the run."""
    from ropewalk.lab.run_store import RunFolder, translate_run_errors
    from ropewalk.lab.tasks import load_trained_model

    with translate_run_errors():
        run = RunFolder.at(Path(path))
        return load_trained_model(run).encoding, str(run.path / "checkpoint.safetensors"), run.config.seed


def _read_tensors(path: str) -> dict[str, Tensor]:
    """The tensors of a file; if some have the prefix, only these, without it."""
    if importlib.util.find_spec("safetensors") is None:
        raise CommandError("weights are read by safetensors: pip install 'ropewalk[lab]'")
    from safetensors import SafetensorError, safe_open

    try:
        check_regular_file(path)
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            chosen = [name for name in names if name.startswith(ENCODING_PREFIX)] or names
            return {name.removeprefix(ENCODING_PREFIX): file.get_tensor(name) for name in chosen}
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror or error}") from error
    except SafetensorError as error:
        raise CommandError(f"{path} is not a complete safetensors file: {error}") from error


def _check_tensor(encoding: Encoding, path: str, name: str, value: Tensor, wanted: Tensor) -> None:
    shape, own = tuple(value.shape), tuple(wanted.shape)
    if shape != own:
        advice = "give the options that it was trained with"
        raise CommandError(f"{name} in {path} is {shape}, but that of {encoding.name} with these options is {own}: {advice}")
    if not value.is_floating_point():
        raise CommandError(f"{name} in {path} must be floating, got {value.dtype}")
    if bad := int((~value.float().isfinite()).sum()):
        raise CommandError(f"{name} in {path} must be finite in float32, got {bad} values of {value.numel()} that are not")


def _format_names(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")

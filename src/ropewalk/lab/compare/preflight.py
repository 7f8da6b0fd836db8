"""Checks before training: a comparison that fails in its fifth hour was checked too late.

Settings and data are checked by the task. Then each encoding goes through the model once, in one block, with two blank
samples: what it refuses there is refused before any run. Nothing is measured on the test set; where boxes or segmentation
masks are predicted, its files are read.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ropewalk.lab.compare.plan import Comparison
from ropewalk.lab.config import Config, setting_applies
from ropewalk.lab.errors import CommandError, translate_value_errors
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks import load_task


def check_comparison(comparison: Comparison, *, processes: int = 1) -> None:
    """Refuse a comparison of which some run could not be trained."""
    configs = {each.label: comparison.config(each) for each in comparison.members[: len(comparison.entries)]}
    config = configs[comparison.baseline]
    if setting_applies("heads", config.document()) and config.width % config.heads:
        raise CommandError(f"heads must divide the width, got {config.heads} heads and a width of {config.width}")
    for member in comparison.members:
        _check_start(comparison.config(member))
    with _translate_data_errors(config):
        check_forward = load_task(config).open_trial(config, processes)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for label, each in configs.items():
            with _name_encoding_in_errors(label):
                check_forward(each)


@contextmanager
def _translate_data_errors(config: Config) -> Iterator[None]:
    try:
        with translate_value_errors():
            yield
    except (OSError, RuntimeError) as error:
        raise CommandError(f"the data {config.data!r} cannot be read: {error}") from error


def _check_start(config: Config) -> None:
    """Check that the run whose weights a run is initialized from is finished."""
    if config.start_path is not None:
        with translate_value_errors():
            if RunFolder.at(config.start_path).result() is None:
                raise ValueError(
                    f"a run can be initialized from a finished run only; {config.start_path} has no result.json"
                )


@contextmanager
def _name_encoding_in_errors(label: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, RuntimeError) as error:
        raise CommandError(f"{label} cannot be trained with these settings: {error}") from error
